// Where the plan of the form came from, and the plans of other workloads that can be gone back to.

import { useRef, useState } from 'preact/hooks';

import { emptyPlan, withWorkload } from '../../lib/plan.ts';
import { textOf } from '../../lib/schema.ts';
import type { JsonObject } from '../../server/types.ts';
import type { Draft } from './draft.ts';

/** `own`: begun with nothing; `ready`: by its name; `other`: a file, or the plan of a stored run. */
export type Origin = { kind: 'own' } | { kind: 'ready'; name: string } | { kind: 'other' };

export interface KeptPlan {
  plan: JsonObject;
  origin: Origin;
}

/** What the form shows for `workload`: the plan that was left for another workload, or a new one. */
export function planFor(workload: string, shown: KeptPlan, kept: ReadonlyMap<string, KeptPlan>): KeptPlan {
  const before = kept.get(workload);
  if (before) return before;
  return {
    plan: withWorkload(shown.plan, workload, shown.origin.kind === 'own'),
    origin: { kind: 'own' },
  };
}

export interface Origins {
  origin: Origin;
  /** The workload whose plan was left last, and is kept; `null`: none. */
  keptFor: string | null;
  setWorkload: (workload: string) => void;
  /** Begins with a plan that is there. */
  begin: (toml: string, origin: Origin) => void;
  beginEmpty: (workload: string) => void;
}

export function useOrigins(draft: Draft): Origins {
  const [origin, setOrigin] = useState<Origin>({ kind: 'own' });
  const [keptFor, setKeptFor] = useState<string | null>(null);
  const kept = useRef(new Map<string, KeptPlan>()).current;
  return {
    origin,
    keptFor: keptFor === textOf(draft.plan.workload) ? null : keptFor,
    setWorkload: (workload) => {
      const old = textOf(draft.plan.workload);
      if (workload === old) return;
      kept.set(old, { plan: draft.plan, origin });
      const next = planFor(workload, { plan: draft.plan, origin }, kept);
      setKeptFor(old);
      setOrigin(next.origin);
      draft.setPlan(next.plan);
    },
    begin: (toml, from) => {
      setKeptFor(null);
      setOrigin(from);
      draft.setToml(toml);
    },
    beginEmpty: (workload) => {
      setKeptFor(null);
      setOrigin({ kind: 'own' });
      draft.setPlan(emptyPlan(workload));
    },
  };
}
