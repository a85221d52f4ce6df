// What the trials of `kagiri tune auto` have shown.

import { useWords } from '../../i18n/index.ts';
import { number, percentChange } from '../../lib/format.ts';
import { Intervals } from '../../parts/intervals.tsx';
import type { Interval, JsonObject } from '../../server/types.ts';

interface Candidate {
  candidate: string;
  verdict: string;
  change: number | null;
  interval: [number, number] | null;
  detectable_change: number | null;
  blocks: number;
  /** Metrics that it makes worse. */
  worse: { metric: string; change: number }[];
}

interface Answer {
  goal: string;
  conclusion: string;
  diagnosis: { limits: string[] };
  candidates: Candidate[];
  winner: Record<string, string> | null;
}

export function TuneAnswer(props: { answer: JsonObject }) {
  const t = useWords();
  const answer = props.answer as unknown as Answer;
  const winner =
    answer.winner && answer.conclusion === 'better'
      ? Object.entries(answer.winner).map(([name, value]) => `${name} = ${value}`)
      : [];
  return (
    <>
      <p class="answer">{t.tune.conclusions[answer.conclusion] ?? answer.conclusion}</p>
      {winner.length > 0 && <p>{t.tune.winner(winner.join('; '))}</p>}
      {answer.diagnosis.limits.map((limit) => (
        <p key={limit}>{limit}</p>
      ))}
      {answer.candidates.length > 0 && <Candidates all={answer.candidates} />}
    </>
  );
}

function Candidates({ all }: { all: Candidate[] }) {
  const t = useWords();
  return (
    <div class="scroll">
      <table>
        <thead>
          <tr>
            <th scope="col">{t.tune.candidate}</th>
            <th scope="col" class="number">
              {t.compare.change}
            </th>
            <th scope="col">{t.compare.interval}</th>
            <th scope="col">{t.compare.verdict}</th>
          </tr>
        </thead>
        <tbody>
          {all.map((one) => (
            <tr key={one.candidate}>
              <td>
                <code>{one.candidate}</code>
              </td>
              <td class="number">{percentChange(asPercent(one.change))}</td>
              <td>
                <Intervals
                  spans={[{ value: asPercent(one.change), interval: intervalOf(one) }]}
                  label={intervalWords(intervalOf(one))}
                />
                <small>
                  {intervalWords(intervalOf(one))} · {t.compare.n(one.blocks)}
                </small>
              </td>
              <td>
                {t.compare.verdicts[one.verdict] ?? t.tune.conclusions[one.verdict] ?? one.verdict}
                {one.verdict === 'no_difference' && one.detectable_change !== null && (
                  <small>{t.tune.detectable(percentChange(asPercent(one.detectable_change)))}</small>
                )}
                {one.verdict === 'better' && one.worse.length > 0 && (
                  <small>{t.tune.worseIn(worseWords(one))}</small>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function worseWords(one: Candidate): string {
  return one.worse.map(({ metric, change }) => `${metric} (${percentChange(asPercent(change))})`).join(', ');
}

const asPercent = (ratio: number | null) => (ratio === null ? null : ratio * 100);

function intervalOf(one: Candidate): Interval | null {
  return one.interval && [one.interval[0] * 100, one.interval[1] * 100];
}

function intervalWords(interval: Interval | null): string {
  return interval ? `${number(interval[0])} … ${number(interval[1])} %` : '–';
}
