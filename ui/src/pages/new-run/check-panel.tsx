// What the server says of the plan, what it costs, and the button that starts it.

import { useWords } from '../../i18n/index.ts';
import { Problem } from '../../parts/states.tsx';
import type { Action } from '../../server/resource.ts';
import type { PlanError } from '../../server/types.ts';
import type { Draft } from './draft.ts';

interface Props {
  draft: Draft;
  /** Errors that no field shows. */
  otherErrors: PlanError[];
  isRoot: boolean;
  start: Action<[]>;
}

export function CheckPanel({ draft, otherErrors, isRoot, start }: Props) {
  const t = useWords();
  const { check, isChecking } = draft;
  const lacksRoot = check?.needs_root === true && !isRoot;
  const isReady = check?.valid === true && !isChecking && !lacksRoot;
  const state =
    check === null || isChecking
      ? t.newRun.checking
      : check.valid
        ? t.newRun.valid
        : t.newRun.invalid(check.errors.length);
  return (
    <aside class="check-panel" aria-label={t.newRun.check}>
      <p role="status" class={`check-state ${check && !isChecking ? (check.valid ? 'good' : 'bad') : ''}`}>
        {state}
      </p>
      {otherErrors.map((error) => (
        <p key={error.message} class="field-error">
          {error.line !== null && `${t.newRun.line(error.line)}: `}
          {error.message}
        </p>
      ))}
      {check?.valid && (
        <dl class="facts">
          <div>
            <dt>{t.newRun.cost}</dt>
            <dd>{check.cost_words ?? t.newRun.costUnknown}</dd>
          </div>
        </dl>
      )}
      {lacksRoot && <p class="problem">{t.newRun.rootPlan}</p>}
      <Problem error={draft.error} />
      <button
        type="button"
        class="primary large"
        disabled={!isReady || start.isRunning}
        onClick={() => start.run()}
      >
        {t.newRun.start}
      </button>
      <Problem error={start.error} />
    </aside>
  );
}
