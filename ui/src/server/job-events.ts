// Events of a job, as `kagiri --json-lines` prints them.

import type { Interval } from './types.ts';

export interface Capacity {
  value: number | null;
  unit: string;
  interval: Interval;
}

export interface Doubt {
  message?: string;
  advice?: string | null;
}

export interface Limit {
  resource: string;
  certainty: string;
  evidence: { statement: string; inferred: boolean; values?: Record<string, number> }[];
}

export interface Trial {
  number: number;
  variant: string;
  repetition: number;
  phase: string;
  load: number;
  verdict: string;
  reasons: string[];
  account?: { headline?: string | null; limit?: Limit | null };
}

export interface EndedVariant {
  name: string;
  capacity: Capacity | null;
  findings?: unknown[];
  limit: Limit | null;
  doubts: unknown[];
}

export interface ProgressEvent {
  done: number;
  live: Record<string, number | null>;
  elapsed_s: number;
  left_s: number | null;
}

export interface BeganEvent {
  variant: string;
  load: number;
  phase: string;
  elapsed_s: number;
  left_s: number | null;
}

export interface EndEvent {
  state: string;
  failure: string | null;
  variants: EndedVariant[];
  doubts: unknown[];
}
