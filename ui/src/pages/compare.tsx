// Two or more stored runs beside each other.

import { useState } from 'preact/hooks';

import { useWords } from '../i18n/index.ts';
import { number, percentChange, quantity, wordsOf } from '../lib/format.ts';
import { Intervals } from '../parts/intervals.tsx';
import { Badge, Empty, Loaded, Page } from '../parts/states.tsx';
import { useResource } from '../server/resource.ts';
import type { ComparedRow, Comparison, Interval, Verdict } from '../server/types.ts';

const TONES: Record<Verdict, 'good' | 'bad' | 'odd' | 'calm'> = {
  better: 'good',
  worse: 'bad',
  mixed: 'odd',
  differs: 'odd',
  equal: 'calm',
  unknown: 'calm',
};

export function Compare(props: { runs: string[] }) {
  const t = useWords();
  const ids = props.runs.map(encodeURIComponent).join(',');
  const comparison = useResource<Comparison>(props.runs.length >= 2 ? `/compare?ids=${ids}` : null);
  return (
    <Page title={t.compare.title}>
      <p class="crumb">
        <a href="/runs">{t.compare.back}</a>
      </p>
      {props.runs.length < 2 ? (
        <Empty title={t.compare.none} />
      ) : (
        <Loaded resource={comparison}>{(data) => <Compared comparison={data} />}</Loaded>
      )}
    </Page>
  );
}

function Compared({ comparison }: { comparison: Comparison }) {
  const t = useWords();
  const [isShort, setIsShort] = useState(false);
  const isDifferent = (row: ComparedRow) => row.verdict !== 'equal' && row.verdict !== 'unknown';
  const rows = comparison.rows
    .filter((row) => row !== null)
    .filter((row) => row.load === null || !isShort || isDifferent(row));
  const isUnknown = comparison.verdict === 'unknown';
  return (
    <>
      <Words comparison={comparison} />
      <ol class="compared">
        {comparison.ids.map((id, at) => (
          <li key={id} class={`interval-${(at % 6) + 1}`}>
            <svg width="14" height="14" viewBox="0 0 14 14" aria-hidden="true">
              <circle cx="7" cy="7" r="4" />
            </svg>
            <a href={`/runs/${id}`}>{comparison.names[at] ?? id}</a> <code>{id}</code>
            {at === 0 && <small> {t.compare.baseline}</small>}
          </li>
        ))}
      </ol>
      {isUnknown && <p>{t.compare.unknownHelp}</p>}
      {comparison.notes.map((note) => (
        <p key={note} class="soft">
          {note}
        </p>
      ))}
      <label class="inline">
        <input
          type="checkbox"
          checked={isShort}
          onChange={(event) => setIsShort(event.currentTarget.checked)}
        />
        {t.compare.onlyChanged}
      </label>
      {rows.length === 0 ? <p>{t.compare.nothingDiffers}</p> : <Rows rows={rows} />}
      <p class="soft">{t.compare.intervalHelp}</p>
    </>
  );
}

/** What the results of one later run amount to, against the first run. Pure, so that it can be tested. */
export function verdictOf(rows: readonly (ComparedRow | null)[], later: number): Verdict {
  const results = rows.filter((row) => row !== null).filter((row) => row.load === null);
  const verdicts = results.map((row) => (row.others[later] ?? row).verdict);
  const has = (verdict: Verdict) => verdicts.includes(verdict);
  if (has('better') && has('worse')) return 'mixed';
  if (has('better')) return 'better';
  if (has('worse')) return 'worse';
  if (has('differs')) return 'differs';
  return verdicts.length > 0 && verdicts.every((verdict) => verdict === 'equal') ? 'equal' : 'unknown';
}

/** A name for each run; runs of one name are told apart by their ids. */
export function namesOf({ ids, names }: Pick<Comparison, 'ids' | 'names'>): string[] {
  return ids.map((id, at) => {
    const name = names[at] ?? id;
    return names.filter((other) => other === name).length > 1 ? `${name} (${id})` : name;
  });
}

/** The verdict on each later run in one sentence, then what else differs. */
function Words({ comparison }: { comparison: Comparison }) {
  const t = useWords();
  const { ids, rows, circumstances } = comparison;
  const names = namesOf(comparison);
  return (
    <>
      {ids.slice(1).map((id, later) => (
        <p class="answer" key={id}>
          {t.compare.says[verdictOf(rows, later)](names[later + 1] ?? id, names[0] ?? '')}
        </p>
      ))}
      {circumstances.length > 0 && (
        <ul>
          {circumstances.map((sentence) => (
            <li key={sentence}>{sentence}</li>
          ))}
        </ul>
      )}
    </>
  );
}

function Rows({ rows }: { rows: ComparedRow[] }) {
  const t = useWords();
  const hasVariants = new Set(rows.map((row) => row.variant)).size > 1;
  return (
    <div class="scroll">
      <table class="comparison stack">
        <thead>
          <tr>
            <th scope="col">{t.compare.metric}</th>
            <th scope="col" class="number">
              {t.compare.value}
            </th>
            <th scope="col">{t.compare.range}</th>
            <th scope="col" class="number">
              {t.compare.change}
            </th>
            <th scope="col">{t.compare.verdict}</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <Row key={`${row.variant} ${row.load} ${row.metric}`} row={row} hasVariants={hasVariants} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Row({ row, hasVariants }: { row: ComparedRow; hasVariants: boolean }) {
  const t = useWords();
  const spans = row.values.map((value) => value && { value: value.value, interval: value.interval });
  const changes = row.others.length > 0 ? row.others : [row];
  const place = [
    hasVariants && row.variant,
    row.load !== null && `${t.live.load} ${number(row.load)}`,
  ].filter(Boolean);
  return (
    <tr>
      <th scope="row">
        {wordsOf(row.metric)}
        {place.length > 0 && <small>{place.join(' · ')}</small>}
      </th>
      <td class="number" data-label={t.compare.value}>
        {row.values.map((value, at) => (
          <div key={at}>
            {quantity(value?.value, row.unit)}
            <small> {value ? t.compare.n(value.n) : ''}</small>
          </div>
        ))}
      </td>
      <td data-label={t.compare.range}>
        <Intervals
          spans={spans}
          label={spans.map((span) => intervalWords(span?.interval ?? null, row.unit)).join('; ')}
        />
      </td>
      <td class="number" data-label={t.compare.change}>
        {changes.map((change, at) => (
          <div key={at}>
            {percentChange(change.change_percent)}
            {change.change_interval && (
              <small>{t.compare.difference(intervalWords(change.change_interval, row.unit))}</small>
            )}
          </div>
        ))}
      </td>
      <td data-label={t.compare.verdict}>
        {changes.map((change, at) => (
          <div key={at}>
            <Badge tone={TONES[change.verdict] ?? 'calm'}>
              {t.compare.verdicts[change.verdict] ?? change.verdict}
            </Badge>
          </div>
        ))}
        {row.reason && <small>{row.reason}</small>}
      </td>
    </tr>
  );
}

function intervalWords(interval: Interval | null, unit: string): string {
  if (!interval) return '–';
  return `${quantity(interval[0], unit)} … ${quantity(interval[1], unit)}`;
}
