// The plan that is being edited, as a form or as TOML, and what the server says of it.

import { useEffect, useRef, useState } from 'preact/hooks';
import { emptyPlan } from '../../lib/plan.ts';
import { type ApiError, post } from '../../server/api.ts';
import { toApiError, useDebounced } from '../../server/resource.ts';
import type { JsonObject, PlanCheck } from '../../server/types.ts';

const DEBOUNCE_MS = 250;

/** Who changed the plan last decides: the form (`plan`) or the text (`toml`). */
type Source = { plan: JsonObject } | { toml: string };

export interface Draft {
  plan: JsonObject;
  toml: string;
  check: PlanCheck | null;
  /** The check concerns an older text than the one that is shown. */
  isChecking: boolean;
  /** The text cannot be read, so the form shows the plan before it. */
  isFormStale: boolean;
  error: ApiError | null;
  setPlan: (plan: JsonObject) => void;
  setToml: (toml: string) => void;
}

export function useDraft(workload: string): Draft {
  const [source, setSource] = useState<Source>({ plan: emptyPlan(workload) });
  const [plan, setPlan] = useState<JsonObject>(emptyPlan(workload));
  const [toml, setToml] = useState('');
  const [check, setCheck] = useState<PlanCheck | null>(null);
  const [checked, setChecked] = useState<Source | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const settled = useDebounced(source, DEBOUNCE_MS);
  const latest = useRef(source);
  latest.current = source;

  useEffect(() => {
    const abort = new AbortController();
    post<PlanCheck>('/plans/check', settled, abort.signal)
      .then((answer) => {
        setCheck(answer);
        setChecked(settled);
        setError(null);
        // What a person has changed since then stays.
        if (latest.current !== settled) return;
        if ('plan' in settled && answer.toml !== null) setToml(answer.toml);
        if ('toml' in settled && answer.plan !== null) setPlan(answer.plan);
      })
      .catch((failure: unknown) => {
        if (!abort.signal.aborted) setError(toApiError(failure));
      });
    return () => abort.abort();
  }, [settled]);

  return {
    plan,
    toml,
    check,
    isChecking: checked !== source,
    isFormStale: 'toml' in source && check !== null && check.plan === null,
    error,
    setPlan: (changed) => {
      setPlan(changed);
      setSource({ plan: changed });
    },
    setToml: (changed) => {
      setToml(changed);
      setSource({ toml: changed });
    },
  };
}
