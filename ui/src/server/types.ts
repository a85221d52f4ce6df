// The documents of the server's HTTP API, as far as the pages use them. Keys end with their unit.

export interface Server {
  version: string;
  host: string;
  cores: number | null;
  memory_bytes: number | null;
  kernel: string | null;
  is_root: boolean;
  data_dir: string;
  started: string;
  has_fleet: boolean;
  store_problem: string | null;
}

export interface Metric {
  name: string;
  unit: string;
  better: 'higher' | 'lower' | 'neither';
  help: string;
}

export interface Role {
  name: string;
  many: boolean;
  meaning: string;
}

export interface Workload {
  name: string;
  summary: string | null;
  load_unit: string | null;
  schema: JsonObject;
  metrics: Metric[];
  /** Names that a condition of the result can begin with. */
  objectives: string[];
  roles: Role[];
}

export type Json = null | boolean | number | string | Json[] | JsonObject;
export interface JsonObject {
  [key: string]: Json | undefined;
}

export interface ReadyPlan {
  name: string;
  title: string;
  workload: string;
  toml: string;
  needs_root: boolean;
  about: string;
  /** The longest time that it takes; `null`: unknown. */
  cost_short: string | null;
}

/** What was asked for by a job. */
export interface JobPlan {
  toml: string;
  /** Of trials of settings. */
  tune: { settings: string[]; metric: string | null; blocks: number | null } | null;
}

export interface PlanError {
  message: string;
  field: string | null;
  line: number | null;
}

export interface PlanCheck {
  valid: boolean;
  errors: PlanError[];
  toml: string | null;
  plan: JsonObject | null;
  cost_s: number | null;
  cost_words: string | null;
  needs_root: boolean | null;
}

export type JobState = 'queued' | 'running' | 'stopping' | 'ended' | 'failed' | 'interrupted';

export interface Job {
  id: string;
  name: string;
  workload: string;
  state: JobState;
  position: number | null;
  run: string | null;
  created: string;
  began: string | null;
  ended: string | null;
  elapsed_s: number | null;
  left_s: number | null;
  done: number | null;
  phase: string | null;
  load: number | null;
  unit: string | null;
  variant: string | null;
  message: string | null;
  targets: string[];
  kind: 'run' | 'tune';
  tags: string[];
  /** Of `tune`: what the trials showed. */
  answer: JsonObject | null;
}

export interface RunRow {
  id: string;
  name: string;
  workload: string;
  began: string;
  state: string;
  answer: string;
  limit: string;
  trials: number;
  tags: string[];
  note: string;
}

export interface RunList {
  runs: RunRow[];
  next: string | null;
}

export type Verdict = 'better' | 'worse' | 'equal' | 'differs' | 'mixed' | 'unknown';
export type Interval = [number | null, number | null];

export interface ComparedValue {
  value: number | null;
  interval: Interval | null;
  n: number;
}

export interface ComparedChange {
  change_percent: number | null;
  /** Of the difference, in the unit of the row. */
  change_interval: Interval | null;
  verdict: Verdict;
}

export interface ComparedRow extends ComparedChange {
  variant: string;
  metric: string;
  unit: string;
  /** `null`: the result itself. */
  load: number | null;
  better: 'higher' | 'lower' | 'neither';
  /** In the order of the ids; `null` where a run does not have it. */
  values: (ComparedValue | null)[];
  reason: string | null;
  /** Of the second and later runs, against the first. */
  others: ComparedChange[];
}

export interface Comparison {
  /** Limits, settings and what else differs. */
  circumstances: string[];
  /** On the second and later runs, each against the first. */
  verdicts: Verdict[];
  /** Results that more repetitions could decide. */
  has_too_few: boolean;
  notes: string[];
  ids: string[];
  names: string[];
  rows: (ComparedRow | null)[];
}

export interface Host {
  name: string;
  is_this: boolean;
  address: string | null;
  state: 'free' | 'busy' | 'lost';
  version: string | null;
  cores: number | null;
  clock_offset_us: number | null;
  clock_bound_us: number | null;
  running: string | null;
}

export interface Setting {
  name: string;
  meaning: string;
  range: string;
  scope: string;
  value: string | null;
  kernel_default: string | null;
  unit: string | null;
  absent: string | null;
  affects: string;
}

export interface SettingChange {
  name: string;
  before: string | null;
  value: string;
  outcome: 'restored' | 'unchanged' | 'left_alone' | 'kept' | 'not_restored' | null;
  note: string | null;
}

export interface AppliedSettings {
  id: string;
  from_console: boolean;
  state: 'applied' | 'ended';
  began: string | null;
  until_words: string | null;
  /** By the server's clock. */
  left_s: number | null;
  /** They were kept, and undoing gives them their values before. */
  can_be_put_back: boolean;
  changes: SettingChange[];
}

export interface Statement {
  subject: string;
  finding: string;
  text: string;
  counters: { name: string; value: number }[];
  setting: string | null;
  try: string | null;
}

export interface Advice {
  observed_s: number;
  tcp_sockets: number;
  udp_sockets: number;
  statements: Statement[];
  missing: string[];
}

export interface QosClass {
  name: string;
  target_ms: number | null;
  sockets: number;
  udp_sockets: number;
  messages: number;
  in_time: number;
  transfer_p50_ms: number | null;
  transfer_p99_ms: number | null;
  acked_bytes: number;
}

export interface QosSocket {
  class: string;
  pid: number;
  program: string;
  local: string;
  peer: string;
  asked_bit_per_s: number | null;
  enforced_bit_per_s: number | null;
  verified_bit_per_s: number | null;
}

export interface QosRecord {
  pid: number;
  policy: string;
  age_s: number;
  status: {
    interface: string;
    state: string | null;
    capacity_bit_per_s: number | null;
    bulk_bit_per_s: number | null;
    queue_ms: number | null;
    classes: QosClass[];
    sockets: QosSocket[];
    problems: string[];
  };
}

export interface QosStatus {
  policies: QosRecord[];
}

export interface QosVerdict {
  name: string;
  priority: number;
  verdict: string;
  target_ms: number | null;
  predicted_response_ms: number | null;
  need_bit_per_s: number | null;
  allocated_bit_per_s: number | null;
  fix: string | null;
  fixes: string[];
  unknown: string[];
}

export interface QosCheck {
  bottleneck: {
    interface: string;
    capacity_bit_per_s: number | null;
    usable_bit_per_s: number | null;
    capacity_needed_bit_per_s: number | null;
  };
  classes: QosVerdict[];
}
