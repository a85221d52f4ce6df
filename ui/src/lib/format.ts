// Numbers with units, as the terminal prints them: three significant digits, decimal prefixes.

export const UNKNOWN = '–';

const PREFIXES = ['', 'k', 'M', 'G', 'T', 'P'];

/** `value` in three significant digits, without a needless exponent. */
export function number(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return UNKNOWN;
  if (value === 0) return '0';
  const size = Math.abs(value);
  const digits =
    size >= 1000
      ? Math.round(size).toLocaleString('en-US')
      : size < 0.001
        ? size.toExponential(1).replace('-', '−')
        : String(Number(size.toPrecision(3)));
  return value < 0 ? `−${digits}` : digits;
}

/** A quantity with its unit; rates, sizes and times get a prefix. */
export function quantity(value: number | null | undefined, unit: string): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return UNKNOWN;
  if (unit === 's') return seconds(value);
  if (unit === 'ms') return seconds(value / 1e3);
  if (unit === 'us' || unit === 'µs') return seconds(value / 1e6);
  if (unit === 'ns') return seconds(value / 1e9);
  if (unit === 'bit/s' || unit === 'B' || unit === 'B/s') {
    const { factor, prefix } = scale(value);
    return `${number(value / factor)} ${prefix}${unit}`;
  }
  return unit === '' || unit === '1' ? number(value) : `${number(value)} ${unit}`;
}

/** The decimal prefix that leaves 1 to 999 before the point. */
export function scale(value: number): { factor: number; prefix: string } {
  let factor = 1;
  let at = 0;
  // 999.5 would be printed as 1,000.
  while (Math.abs(value) / factor >= 999.5 && at < PREFIXES.length - 1) {
    factor *= 1000;
    at += 1;
  }
  return { factor, prefix: PREFIXES[at] ?? '' };
}

function seconds(value: number): string {
  const size = Math.abs(value);
  if (size === 0) return '0 s';
  if (size < 1e-6) return `${number(value * 1e9)} ns`;
  if (size < 1e-3) return `${number(value * 1e6)} µs`;
  if (size < 1) return `${number(value * 1e3)} ms`;
  return size < 120 ? `${number(value)} s` : duration(value);
}

/** A length of time in whole seconds: `7 s`, `3 min 24 s`, `2 h 5 min`. */
export function duration(value_s: number | null | undefined): string {
  if (value_s === null || value_s === undefined || !Number.isFinite(value_s)) return UNKNOWN;
  const all = Math.max(0, Math.round(value_s));
  const [h, min, s] = [Math.floor(all / 3600), Math.floor(all / 60) % 60, all % 60];
  if (h > 0) return min > 0 ? `${h} h ${min} min` : `${h} h`;
  if (min > 0) return s > 0 ? `${min} min ${s} s` : `${min} min`;
  return `${s} s`;
}

/** `0:07`, `3:24`, `1:02:03`: the labels of a time axis. */
export function clock(value_s: number): string {
  const all = Math.max(0, Math.round(value_s));
  const two = (part: number) => String(part).padStart(2, '0');
  const [h, min, s] = [Math.floor(all / 3600), Math.floor(all / 60) % 60, all % 60];
  return h > 0 ? `${h}:${two(min)}:${two(s)}` : `${min}:${two(s)}`;
}

/** Date and time of the viewer's zone: `2026-11-21 08:20`. */
export function moment(time: string | null | undefined): string {
  const date = time ? new Date(time) : null;
  if (!date || Number.isNaN(date.getTime())) return UNKNOWN;
  const two = (part: number) => String(part).padStart(2, '0');
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}`;
}

/** Suffixes of metric names and the units that they stand for, longest first. */
const SUFFIXES: readonly (readonly [string, string])[] = [
  ['_bit_per_s', 'bit/s'],
  ['_bytes_per_s', 'B/s'],
  ['_percent', '%'],
  ['_bytes', 'B'],
  ['_ratio', ''],
  ['_per_s', '/s'],
  ['_ms', 'ms'],
  ['_us', 'us'],
  ['_ns', 'ns'],
  ['_s', 's'],
];

/** The unit that ends a metric's name. */
export function unitOf(name: string): string {
  return SUFFIXES.find(([suffix]) => name.endsWith(suffix))?.[1] ?? '';
}

/** A metric's name in words, without its unit: `server_cpu_percent` is `server CPU`. */
export function wordsOf(name: string): string {
  const suffix = SUFFIXES.find(([ending]) => name.endsWith(ending))?.[0] ?? '';
  const words = name.slice(0, name.length - suffix.length).split(/[_.]+/);
  const acronyms: Record<string, string> = {
    cpu: 'CPU',
    tcp: 'TCP',
    udp: 'UDP',
    io: 'I/O',
    p50: 'median',
    p99: '99 %',
  };
  return words.map((word) => acronyms[word] ?? word).join(' ') || name;
}

/** A change such as `+3.2 %`. */
export function percentChange(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return UNKNOWN;
  const sign = value > 0 ? '+' : value < 0 ? '−' : '';
  return `${sign}${number(Math.abs(value))} %`;
}
