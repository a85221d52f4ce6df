// What this host's counters say.

import { useState } from 'preact/hooks';

import { useWords } from '../../i18n/index.ts';
import { duration } from '../../lib/format.ts';
import { Badge, Problem } from '../../parts/states.tsx';
import { post } from '../../server/api.ts';
import { useAction } from '../../server/resource.ts';
import type { Advice, Statement } from '../../server/types.ts';

const WATCH_S = 5;
const TONES: Record<string, 'good' | 'bad' | 'odd' | 'calm'> = {
  limit: 'bad',
  delay: 'odd',
  not_the_limit: 'good',
  fine: 'good',
};

export function AdviceSection({ choose }: { choose: (name: string, value: string) => void }) {
  const t = useWords();
  const [advice, setAdvice] = useState<Advice | null>(null);
  const watch = useAction(async () => setAdvice(await post<Advice>('/advice', { for_s: WATCH_S })));
  return (
    <section aria-live="polite">
      <h2>{t.tune.advice}</h2>
      <p class="soft">{t.tune.adviceHelp}</p>
      <p class="buttons">
        <button type="button" class="primary" disabled={watch.isRunning} onClick={() => watch.run()}>
          {watch.isRunning ? t.tune.watching : t.tune.watch(WATCH_S)}
        </button>
      </p>
      <Problem error={watch.error} />
      {advice && (
        <>
          <p>{t.tune.watched(duration(advice.observed_s), advice.tcp_sockets, advice.udp_sockets)}</p>
          <ul class="statements">
            {advice.statements.map((statement) => (
              <StatementItem key={statement.text} statement={statement} choose={choose} />
            ))}
          </ul>
          {advice.missing.map((missing) => (
            <p key={missing} class="soft">
              {missing}
            </p>
          ))}
        </>
      )}
    </section>
  );
}

interface ItemProps {
  statement: Statement;
  choose: (name: string, value: string) => void;
}

function StatementItem({ statement, choose }: ItemProps) {
  const t = useWords();
  const { finding, text, setting, try: proposal, counters } = statement;
  return (
    <li>
      <Badge tone={TONES[finding] ?? 'calm'}>{t.tune.findings[finding] ?? finding}</Badge>
      <div>
        <p>{text}</p>
        {counters.length > 0 && (
          <p class="soft counters">
            {counters
              .map((counter) => `${counter.name} ${counter.value.toLocaleString('en-US')}`)
              .join(' · ')}
          </p>
        )}
        {setting !== null && proposal !== null && (
          <button type="button" onClick={() => choose(setting, proposal)}>
            {t.tune.tryIt(`${setting} = ${proposal}`)}
          </button>
        )}
      </div>
    </li>
  );
}
