// Samples of one run in bounded memory.

/** Unknown is a gap, not zero. */
type Value = number | null;

/**
 * Times and values of several series in at most `capacity` points. When all points are in use, pairs are joined to
 * their mean, and each new point is the mean of twice as many samples: the whole run stays visible, however long.
 */
export class SampleRing {
  readonly capacity: number;
  /** Samples per point. */
  samplesPerPoint = 1;
  /** Samples that were added, joined or not. */
  samples = 0;
  private length = 0;
  private readonly times: Float64Array;
  private readonly series = new Map<string, Float64Array>();
  private readonly seriesMax: number;
  private pending = 0;
  private pendingTime = 0;
  private readonly sums = new Map<string, { sum: number; count: number }>();

  constructor(capacity: number, seriesMax = 64) {
    this.capacity = Math.max(2, capacity - (capacity % 2));
    this.seriesMax = seriesMax;
    this.times = new Float64Array(this.capacity);
  }

  /** Adds a sample. A time before the last one is ignored: streams may repeat events. */
  add(time_s: number, values: Readonly<Record<string, Value>>): void {
    if (!Number.isFinite(time_s) || time_s < this.lastTime()) return;
    this.samples += 1;
    this.pending += 1;
    this.pendingTime += time_s;
    for (const [name, value] of Object.entries(values)) {
      if (value === null || !Number.isFinite(value)) continue;
      const sum = this.sums.get(name);
      if (sum) {
        sum.sum += value;
        sum.count += 1;
      } else if (this.series.has(name) || this.series.size + this.sums.size < this.seriesMax) {
        this.sums.set(name, { sum: value, count: 1 });
      }
    }
    if (this.pending >= this.samplesPerPoint) this.flush();
  }

  /** Ends the lines: between two trials nothing is measured. */
  gap(time_s: number): void {
    if (this.pending > 0) this.flush();
    if (this.length === 0 || time_s < this.lastTime()) return;
    this.pending = 1;
    this.pendingTime = time_s;
    this.flush();
  }

  names(): string[] {
    return [...this.series.keys()];
  }

  points(): number {
    return this.length;
  }

  timesS(): number[] {
    return Array.from(this.times.subarray(0, this.length));
  }

  values(name: string): Value[] {
    const values = this.series.get(name)?.subarray(0, this.length);
    return values ? Array.from(values, (value) => (Number.isNaN(value) ? null : value)) : [];
  }

  /** The newest known value of a series. */
  last(name: string): Value {
    const values = this.series.get(name);
    if (!values || this.length === 0) return null;
    const value = values[this.length - 1];
    return value === undefined || Number.isNaN(value) ? null : value;
  }

  private lastTime(): number {
    return this.length === 0 ? Number.NEGATIVE_INFINITY : (this.times[this.length - 1] ?? 0);
  }

  private flush(): void {
    if (this.length === this.capacity) this.halve();
    this.times[this.length] = this.pendingTime / this.pending;
    for (const name of this.sums.keys()) {
      if (!this.series.has(name)) this.series.set(name, new Float64Array(this.capacity).fill(Number.NaN));
    }
    for (const [name, values] of this.series) {
      const sum = this.sums.get(name);
      values[this.length] = sum ? sum.sum / sum.count : Number.NaN;
    }
    this.length += 1;
    this.pending = 0;
    this.pendingTime = 0;
    this.sums.clear();
  }

  private halve(): void {
    const half = this.capacity / 2;
    for (const values of [this.times, ...this.series.values()]) {
      for (let at = 0; at < half; at += 1) values[at] = mean(values[2 * at], values[2 * at + 1]);
      values.fill(Number.NaN, half);
    }
    this.length = half;
    this.samplesPerPoint *= 2;
  }
}

function mean(a = Number.NaN, b = Number.NaN): number {
  if (Number.isNaN(a)) return b;
  return Number.isNaN(b) ? a : (a + b) / 2;
}
