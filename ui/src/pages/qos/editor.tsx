// A policy as text, with its verdict before it is applied.

import { useEffect, useState } from 'preact/hooks';

import { useWords } from '../../i18n/index.ts';
import { quantity } from '../../lib/format.ts';
import { keepDraft, storedDraft } from '../../lib/theme.ts';
import { AreaField } from '../../parts/field.tsx';
import { Badge, Problem } from '../../parts/states.tsx';
import { type ApiError, post } from '../../server/api.ts';
import { toApiError, useAction, useDebounced } from '../../server/resource.ts';
import type { QosCheck, QosRecord, QosVerdict } from '../../server/types.ts';
import { EXAMPLE } from './example.ts';

const DEBOUNCE_MS = 300;
const KEY = 'kagiri.policy';
const MISSED = ['DEGRADED', 'IMPOSSIBLE'];
const TONES: Record<string, 'good' | 'bad' | 'odd'> = {
  GUARANTEED: 'good',
  STATISTICAL: 'good',
  DEGRADED: 'bad',
  IMPOSSIBLE: 'bad',
  UNKNOWN: 'odd',
};

interface Judged {
  toml: string;
  check: QosCheck | null;
  error: ApiError | null;
}

function useVerdict(toml: string): Judged | null {
  const settled = useDebounced(toml, DEBOUNCE_MS);
  const [judged, setJudged] = useState<Judged | null>(null);
  useEffect(() => {
    if (settled.trim() === '') {
      setJudged(null);
      return;
    }
    const abort = new AbortController();
    post<QosCheck>('/qos/check', { toml: settled }, abort.signal)
      .then((check) => setJudged({ toml: settled, check, error: null }))
      .catch((failure: unknown) => {
        if (!abort.signal.aborted) setJudged({ toml: settled, check: null, error: toApiError(failure) });
      });
    return () => abort.abort();
  }, [settled]);
  return judged;
}

export function PolicyEditor({ inForce, onApply }: { inForce: QosRecord[]; onApply: () => void }) {
  const t = useWords();
  const [toml, setToml] = useState(storedDraft(KEY) ?? '');
  const [isApplied, setIsApplied] = useState(false);
  const judged = useVerdict(toml);
  // A verdict of an older text says nothing of this one.
  const isCurrent = judged !== null && judged.toml === toml;
  const check = isCurrent ? judged.check : null;
  const isMissed = check?.classes.some((one) => MISSED.includes(one.verdict)) ?? false;
  const before = inForce.find((one) => one.status.interface === check?.bottleneck.interface);
  const replaces = before !== undefined;
  const apply = useAction(async (while_measuring: boolean) => {
    try {
      // Only the policy that is shown here: another person may have put one in force meanwhile.
      const replaced = { replace: replaces, replaces: before?.pid ?? null };
      await post('/qos/apply', { toml, for_s: null, ...replaced, while_measuring });
      setIsApplied(true);
    } finally {
      onApply();
    }
  });
  const edit = (text: string) => {
    setIsApplied(false);
    keepDraft(KEY, text);
    setToml(text);
  };
  // What a person has written is not replaced without a question.
  const begin = () => {
    if (toml.trim() === '' || confirm(t.qos.exampleSure)) edit(EXAMPLE);
  };
  return (
    <section class="policy">
      <div>
        <h2>{t.qos.policy}</h2>
        <AreaField
          isLabelHidden
          label={t.qos.policy}
          help={t.qos.policyHelp}
          value={toml}
          onValue={edit}
          rows={22}
          isCode
        />
        <button type="button" disabled={toml === EXAMPLE} onClick={begin}>
          {t.qos.example}
        </button>
      </div>
      <div class="policy-verdict" aria-live="polite">
        <h2>{t.qos.verdict}</h2>
        {toml.trim() !== '' && !isCurrent && <p class="soft">{t.qos.checking}</p>}
        {isCurrent && <Problem error={judged.error} />}
        {check && <Verdicts check={check} />}
        <p class="soft">{t.qos.applyHelp(check?.bottleneck.interface ?? null)}</p>
        <p class="buttons">
          <button
            type="button"
            class="primary"
            disabled={!check || apply.isRunning}
            onClick={() => apply.run(false)}
          >
            {replaces
              ? isMissed
                ? t.qos.replaceMissed
                : t.qos.replace
              : isMissed
                ? t.qos.applyMissed
                : t.qos.apply}
          </button>
          <span role="status">{isApplied && t.qos.applied}</span>
        </p>
        <Problem error={apply.error} />
        {apply.error?.field === 'while_measuring' && (
          <button type="button" disabled={!check || apply.isRunning} onClick={() => apply.run(true)}>
            {t.qos.applyAnyway}
          </button>
        )}
      </div>
    </section>
  );
}

function Verdicts({ check }: { check: QosCheck }) {
  const t = useWords();
  const { bottleneck } = check;
  return (
    <>
      {bottleneck.usable_bit_per_s !== null && (
        <p>{t.qos.allocate(quantity(bottleneck.usable_bit_per_s, 'bit/s'), bottleneck.interface)}</p>
      )}
      <ul class="verdicts">
        {check.classes.map((one) => (
          <VerdictItem key={one.name} one={one} />
        ))}
      </ul>
    </>
  );
}

function VerdictItem({ one }: { one: QosVerdict }) {
  const t = useWords();
  const columns = t.qos.columns;
  const facts: [string, string][] = [
    [columns.target, quantity(one.target_ms, 'ms')],
    [columns.predicted, quantity(one.predicted_response_ms, 'ms')],
    [columns.needs, quantity(one.need_bit_per_s, 'bit/s')],
    [columns.gets, quantity(one.allocated_bit_per_s, 'bit/s')],
  ];
  return (
    <li>
      <p>
        <strong>{one.name}</strong>{' '}
        <Badge tone={TONES[one.verdict] ?? 'calm'}>{t.qos.verdicts[one.verdict] ?? one.verdict}</Badge>
        <span class="soft"> {t.qos.verdictHelp[one.verdict]}</span>
      </p>
      <dl class="facts">
        {facts
          .filter(([, value]) => value !== '–')
          .map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ))}
      </dl>
      {one.fixes.length > 0 && (
        <>
          <p class="soft">{t.qos.fix}:</p>
          <ul>
            {one.fixes.map((fix) => (
              <li key={fix}>{fix}</li>
            ))}
          </ul>
        </>
      )}
    </li>
  );
}
