// Changes that end by themselves, with the time that is left.

import { useEffect, useRef, useState } from 'preact/hooks';

import { useWords } from '../../i18n/index.ts';
import { duration } from '../../lib/format.ts';
import { Badge, Problem } from '../../parts/states.tsx';
import { post } from '../../server/api.ts';
import { type Resource, useAction } from '../../server/resource.ts';
import type { AppliedSettings, SettingChange } from '../../server/types.ts';

export function Applied(props: { resource: Resource<AppliedSettings[]>; onChange: () => void }) {
  const t = useWords();
  const { data, error } = props.resource;
  const problem = <Problem error={error?.status === 403 ? null : error} />;
  if (!data || data.length === 0) return problem;
  return (
    <section>
      <h2>{t.tune.applied}</h2>
      {problem}
      {data.map((one) => (
        <AppliedItem key={one.id} one={one} onChange={props.onChange} />
      ))}
    </section>
  );
}

/** The time left, counted down from what the server says; `null`: it does not end by itself. */
function useSecondsLeft(one: AppliedSettings): number | null {
  const [seconds, setSeconds] = useState(one.left_s);
  useEffect(() => {
    setSeconds(one.left_s);
    const { left_s } = one;
    if (left_s === null) return;
    const began = performance.now();
    const timer = setInterval(() => setSeconds(leftOf(left_s, performance.now() - began)), 1000);
    return () => clearInterval(timer);
  }, [one]);
  return seconds;
}

/** What is left of a time after some milliseconds. */
const leftOf = (left_s: number, passed_ms: number): number => Math.max(0, left_s - passed_ms / 1000);

/** Calls `onEnd` when `isApplied` ends. */
function useEnd(isApplied: boolean, onEnd: () => void): void {
  const wasApplied = useRef(isApplied);
  useEffect(() => {
    if (wasApplied.current && !isApplied) onEnd();
    wasApplied.current = isApplied;
  }, [isApplied]);
}

function AppliedItem({ one, onChange }: { one: AppliedSettings; onChange: () => void }) {
  const t = useWords();
  const isApplied = one.state === 'applied';
  const left = useSecondsLeft(one);
  useEnd(isApplied, onChange);
  const act = useAction(async (what: 'keep' | 'undo') => {
    await post(`/settings/applied/${encodeURIComponent(one.id)}/${what}`);
    onChange();
  });
  return (
    <article class="card applied">
      <ul>
        {one.changes.map((change) => (
          <li key={change.name}>
            <code>{change.name}</code> {change.before ?? '–'} → <strong>{change.value}</strong>
            <ChangeOutcome change={change} />
          </li>
        ))}
      </ul>
      {isApplied && (
        <p class="countdown" role="timer">
          {left === null ? one.until_words : left > 0 ? t.tune.left(duration(left)) : t.tune.ending}
        </p>
      )}
      <Problem error={act.error} />
      {(isApplied || one.can_be_put_back) && (
        <p class="buttons">
          <button type="button" class="primary" disabled={act.isRunning} onClick={() => act.run('undo')}>
            {isApplied ? t.tune.undo : t.tune.putBack}
          </button>
          {isApplied && one.from_console && (
            <button type="button" disabled={act.isRunning} onClick={() => act.run('keep')}>
              {t.tune.keepHelp}
            </button>
          )}
        </p>
      )}
    </article>
  );
}

function ChangeOutcome({ change }: { change: SettingChange }) {
  const t = useWords();
  if (change.outcome === null) return null;
  return (
    <>
      {' '}
      <Badge
        tone={change.outcome === 'not_restored' ? 'bad' : change.outcome === 'left_alone' ? 'odd' : 'calm'}
      >
        {t.tune.outcomes[change.outcome]}
      </Badge>
      {change.note && <small>{change.note}</small>}
    </>
  );
}
