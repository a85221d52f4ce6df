// What the page of a job knows, in bounded memory.

import { unitOf, wordsOf } from '../../lib/format.ts';
import { SampleRing } from '../../lib/ring.ts';
import type { BeganEvent, EndEvent, ProgressEvent, Trial } from '../../server/job-events.ts';
import type { Job } from '../../server/types.ts';

/** Points of each line: about as many as a wide screen has pixels for. */
const POINTS_MAX = 1200;
/** Trials that are listed; the report has all. */
const TRIALS_MAX = 200;

export const EVENTS = [
  'job',
  'run',
  'preparing',
  'trial_began',
  'progress',
  'trial',
  'end',
  'removed',
] as const;

export type Group = 'load' | 'rate' | 'response' | 'cpu' | 'memory' | 'caches' | 'disk' | 'network' | 'other';
const GROUPS: readonly Group[] = [
  'load',
  'rate',
  'response',
  'cpu',
  'memory',
  'caches',
  'disk',
  'network',
  'other',
];

export interface ChartData {
  group: Group;
  unit: string;
  series: { name: string; label: string }[];
}

/** Where a value is drawn, by its name. */
export function groupOf(name: string): Group {
  if (name === LOAD) return 'load';
  if (/disk/.test(name)) return 'disk';
  if (/network/.test(name)) return 'network';
  // Caches are so much larger that nothing else could be seen beside them.
  if (/cache|slab/.test(name)) return 'caches';
  if (/memory/.test(name)) return 'memory';
  if (/cpu|softirq|steal|throttled/.test(name)) return 'cpu';
  if (/_(ms|us|ns|s)$/.test(name) && !name.endsWith('_per_s')) return 'response';
  if (/_per_s$/.test(name)) return 'rate';
  return 'other';
}

/** Counts since the start, of which rates are drawn. */
const COUNTER = /^passed_/;

/** The offered load among the live values. */
export const LOAD = 'load';

/** Values in charts: one chart for each group and unit, in a fixed order. */
export function chartsOf(names: readonly string[], loadUnit: string): ChartData[] {
  const charts = new Map<string, ChartData>();
  for (const name of names) {
    if (COUNTER.test(name)) continue;
    const group = groupOf(name);
    const unit = name === LOAD ? loadUnit : unitOf(name);
    const key = `${group} ${unit}`;
    const chart = charts.get(key) ?? { group, unit, series: [] };
    chart.series.push({ name, label: name === LOAD ? loadUnit : wordsOf(name) });
    charts.set(key, chart);
  }
  const order = (chart: ChartData) => GROUPS.indexOf(chart.group);
  return [...charts.values()].sort((a, b) => order(a) - order(b));
}

/** A trial of one of the runs of a job; each run counts its trials. */
export type ListedTrial = Trial & { run: number };

export class LiveModel {
  job: Job | null = null;
  /** Runs that have begun: trials of settings are several. */
  runs = 0;
  /** Of the run under way, as its clock. */
  ring = new SampleRing(POINTS_MAX);
  trials: ListedTrial[] = [];
  trialCount = 0;
  phase: string | null = null;
  variant: string | null = null;
  load: number | null = null;
  isPreparing = false;
  left_s: number | null = null;
  elapsed_s: number | null = null;
  end: EndEvent | null = null;

  /** The stream begins anew: everything comes again. */
  restart(): void {
    Object.assign(this, new LiveModel(), { job: this.job });
  }

  apply(name: string, data: unknown): void {
    switch (name) {
      case 'job':
        this.job = data as Job;
        break;
      case 'run':
        this.beginRun();
        break;
      case 'preparing':
        this.isPreparing = true;
        this.variant = (data as { variant: string }).variant;
        break;
      case 'trial_began':
        this.begin(data as BeganEvent);
        break;
      case 'progress':
        this.progress(data as ProgressEvent);
        break;
      case 'trial':
        this.addTrial((data as { trial: Trial }).trial);
        break;
      case 'end':
        this.end = data as EndEvent;
        break;
    }
  }

  private beginRun(): void {
    this.runs += 1;
    this.ring = new SampleRing(POINTS_MAX);
    this.phase = null;
    this.load = null;
    this.elapsed_s = null;
    this.left_s = null;
    this.end = null;
  }

  private begin(event: BeganEvent): void {
    this.isPreparing = false;
    this.variant = event.variant;
    this.phase = event.phase;
    this.load = event.load;
    this.elapsed_s = event.elapsed_s;
    this.left_s = event.left_s;
    this.ring.gap(event.elapsed_s);
  }

  private progress(event: ProgressEvent): void {
    this.elapsed_s = event.elapsed_s;
    this.left_s = event.left_s;
    this.ring.add(event.elapsed_s, { ...event.live, [LOAD]: this.load });
  }

  private addTrial(trial: Trial): void {
    this.trialCount += 1;
    this.trials = [{ ...trial, run: this.runs }, ...this.trials].slice(0, TRIALS_MAX);
  }

  /** The job with the newest times, which arrive more often than the job itself. */
  current(): Job | null {
    const job = this.job;
    // The times of one run are not those of all the runs of 'tune'.
    if (job?.state !== 'running' || job.kind === 'tune') return job;
    return { ...job, elapsed_s: this.elapsed_s ?? job.elapsed_s, left_s: this.left_s ?? job.left_s };
  }
}
