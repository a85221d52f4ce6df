// What is wrong with the plan, what it costs, and the button that starts it.

import { useWords } from '../../i18n/index.ts';
import { Problem } from '../../parts/states.tsx';
import type { Action } from '../../server/resource.ts';
import type { Draft } from './draft.ts';
import type { Correction } from './errors.ts';

interface Props {
  draft: Draft;
  corrections: Correction[];
  /** Shows the control of an error. */
  show: (field: string) => void;
  isRoot: boolean;
  start: Action<[]>;
}

export function CheckPanel({ draft, corrections, show, isRoot, start }: Props) {
  const t = useWords();
  const { check, isChecking } = draft;
  const lacksRoot = check?.needs_root === true && !isRoot;
  const isReady = check?.valid === true && !isChecking && !lacksRoot;
  const isWrong = corrections.length > 0;
  const state = isWrong
    ? t.newRun.invalid(corrections.length)
    : check === null || isChecking
      ? t.newRun.checking
      : t.newRun.valid;
  const tone = isWrong ? 'bad' : check && !isChecking ? 'good' : '';
  return (
    <aside class="check-panel" aria-label={t.newRun.check}>
      <p role="status" class={`check-state ${tone}`}>
        {state}
      </p>
      {isWrong && (
        <ul class="corrections">
          {corrections.map((one) => (
            <li key={`${one.field} ${one.message}`} class="field-error">
              <CorrectionWords one={one} show={show} />
            </li>
          ))}
        </ul>
      )}
      {check?.valid && !isWrong && (
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

function CorrectionWords({ one, show }: { one: Correction; show: (field: string) => void }) {
  const t = useWords();
  const { field, label, message, line } = one;
  if (field === null) return <>{line === null ? message : `${t.newRun.line(line)}: ${message}`}</>;
  return (
    <button type="button" class="link" title={t.newRun.showField} onClick={() => show(field)}>
      <strong>{label}</strong>: {message}
    </button>
  );
}
