// Changes that end by themselves, with the time that is left.

import { useEffect, useState } from 'preact/hooks';

import { useWords } from '../../i18n/index.ts';
import { duration } from '../../lib/format.ts';
import { Badge, Problem } from '../../parts/states.tsx';
import { post } from '../../server/api.ts';
import { type Resource, useAction } from '../../server/resource.ts';
import type { AppliedSettings, SettingChange } from '../../server/types.ts';

export function Applied(props: { resource: Resource<AppliedSettings[]>; onChange: () => void }) {
  const t = useWords();
  const { data, error } = props.resource;
  if (!data || data.length === 0) return <Problem error={error?.status === 403 ? null : error} />;
  return (
    <section>
      <h2>{t.tune.applied}</h2>
      {data.map((one) => (
        <AppliedItem key={one.id} one={one} onChange={props.onChange} />
      ))}
    </section>
  );
}

/** Seconds until `until`, counted down; `null`: it does not end by itself. */
function useSecondsLeft(until: string | null, onEnd: () => void): number | null {
  const left = () => (until === null ? null : Math.max(0, (new Date(until).getTime() - Date.now()) / 1000));
  const [seconds, setSeconds] = useState(left());
  useEffect(() => {
    setSeconds(left());
    if (until === null) return;
    const timer = setInterval(() => {
      const now = left();
      setSeconds(now);
      if (now === 0) {
        clearInterval(timer);
        onEnd();
      }
    }, 1000);
    return () => clearInterval(timer);
  }, [until]);
  return seconds;
}

function AppliedItem({ one, onChange }: { one: AppliedSettings; onChange: () => void }) {
  const t = useWords();
  const isApplied = one.state === 'applied';
  const left = useSecondsLeft(isApplied ? one.until : null, onChange);
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
          {left === null ? one.until_words : left > 0 ? t.tune.left(duration(left)) : t.tune.ended}
        </p>
      )}
      <Problem error={act.error} />
      {(isApplied || one.can_be_put_back) && (
        <p class="buttons">
          <button type="button" class="primary" disabled={act.isRunning} onClick={() => act.run('undo')}>
            {isApplied ? t.tune.undo : t.tune.putBack}
          </button>
          {isApplied && (
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
