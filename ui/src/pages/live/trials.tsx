// The trials of a job, newest first.

import { useWords } from '../../i18n/index.ts';
import { number } from '../../lib/format.ts';
import { Badge } from '../../parts/states.tsx';
import type { Trial } from '../../server/job-events.ts';
import type { LiveModel } from './model.ts';

const TONES: Record<string, 'good' | 'bad' | 'odd'> = { pass: 'good', fail: 'bad' };

export function Trials(props: { model: LiveModel; unit: string }) {
  const t = useWords();
  const { trials, trialCount } = props.model;
  const hasVariants = trials.some((trial) => trial.variant !== 'default');
  return (
    <section>
      <h2>
        {t.live.trials} {trialCount > 0 && <span class="soft">({trialCount})</span>}
      </h2>
      {trials.length === 0 ? (
        <p class="soft">{t.live.noTrials}</p>
      ) : (
        <div class="scroll">
          <table>
            <thead>
              <tr>
                <th scope="col" class="number">
                  #
                </th>
                {hasVariants && <th scope="col">{t.live.variant}</th>}
                <th scope="col" class="number">
                  {t.live.load}
                  <small>{props.unit}</small>
                </th>
                <th scope="col">{t.live.verdict}</th>
                <th scope="col">{t.live.why}</th>
              </tr>
            </thead>
            <tbody>
              {trials.map((trial) => (
                <TrialRow key={`${trial.run} ${trial.number}`} trial={trial} hasVariants={hasVariants} />
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

function TrialRow(props: { trial: Trial; hasVariants: boolean }) {
  const t = useWords();
  const { trial } = props;
  return (
    <tr>
      <td class="number">{trial.number}</td>
      {props.hasVariants && <td>{trial.variant}</td>}
      <td class="number">{number(trial.load)}</td>
      <td>
        <Badge tone={TONES[trial.verdict] ?? 'odd'}>{t.live.verdicts[trial.verdict] ?? trial.verdict}</Badge>
      </td>
      <td>{trial.reasons.length > 0 ? trial.reasons.join('; ') : (trial.account?.headline ?? '')}</td>
    </tr>
  );
}
