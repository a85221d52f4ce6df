// Two or more stored runs beside each other.

import { useEffect, useState } from 'preact/hooks';

import { useWords } from '../i18n/index.ts';
import { moment, number, percentChange, quantity, unitOf, wordsOf } from '../lib/format.ts';
import { Intervals } from '../parts/intervals.tsx';
import { Badge, Empty, Loaded, Page } from '../parts/states.tsx';
import { get } from '../server/api.ts';
import { useResource } from '../server/resource.ts';
import type { ComparedRow, Comparison, Interval, RunList, RunRow, Verdict } from '../server/types.ts';
import { byAge } from './runs.tsx';

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
  const ids = byAge(props.runs).map(encodeURIComponent).join(',');
  const comparison = useResource<Comparison>(props.runs.length >= 2 ? `/compare?ids=${ids}` : null);
  const runs = useRunRows(props.runs);
  return (
    <Page title={t.compare.title}>
      <p class="crumb">
        <a href="/runs">{t.compare.back}</a>
      </p>
      {props.runs.length < 2 ? (
        <Empty title={t.compare.none} />
      ) : (
        <Loaded resource={comparison}>{(data) => <Compared comparison={data} runs={runs} />}</Loaded>
      )}
    </Page>
  );
}

/** The rows of the runs in the list of all runs, by their ids, as far as they are known yet. */
function useRunRows(ids: readonly string[]): ReadonlyMap<string, RunRow> {
  const [known, setKnown] = useState<ReadonlyMap<string, RunRow>>(new Map());
  useEffect(() => {
    const abort = new AbortController();
    const rowOf = async (id: string) => {
      const { runs } = await get<RunList>(`/runs?q=${encodeURIComponent(id)}&limit=5`, abort.signal);
      return runs.find((one) => one.id === id);
    };
    Promise.all(ids.map(rowOf))
      .then((rows) => setKnown(new Map(rows.flatMap((row) => (row ? [[row.id, row] as const] : [])))))
      .catch(() => {
        // The comparison itself says what is wrong.
      });
    return () => abort.abort();
  }, [ids.join()]);
  return known;
}

/** Whether any of the runs has a value. */
export const isMeasured = (row: Pick<ComparedRow, 'values'>): boolean =>
  row.values.some((value) => value !== null && value.value !== null);

/** Values of the host have no unit of their own: their names end with it. */
export const unitIn = (row: Pick<ComparedRow, 'unit' | 'metric'>): string => row.unit || unitOf(row.metric);

interface ComparedProps {
  comparison: Comparison;
  runs: ReadonlyMap<string, RunRow>;
}

function Compared({ comparison, runs }: ComparedProps) {
  const t = useWords();
  const [isShort, setIsShort] = useState(false);
  const isDifferent = (row: ComparedRow) => row.verdict !== 'equal' && row.verdict !== 'unknown';
  const all = comparison.rows.filter((row) => row !== null);
  const measured = all.filter(isMeasured);
  const leftOut = all.length - measured.length;
  const rows = measured.filter((row) => row.load === null || !isShort || isDifferent(row));
  const hasFailed = (id: string) => runs.get(id)?.state === 'failed';
  const isFailed = comparison.ids.some(hasFailed);
  const names = namesOf(comparison);
  return (
    <>
      <Words comparison={comparison} />
      <ol class="compared">
        {comparison.ids.map((id, at) => (
          <li key={id}>
            <Mark at={at} />
            <a href={`/runs/${id}`}>{comparison.names[at] ?? id}</a> <code>{id}</code>
            {at === 0 && <small> {t.compare.baseline}</small>}
            {runs.has(id) && <small>{moment(runs.get(id)?.began)}</small>}
            {hasFailed(id) && <Badge tone="bad">{t.job.states.failed}</Badge>}
          </li>
        ))}
      </ol>
      <p>{t.compare.against(names[0] ?? '', names.length)}</p>
      {comparison.ids.map((id, at) =>
        hasFailed(id) ? (
          <p key={id} class="failure">
            {t.compare.hasFailed(names[at] ?? id)}
          </p>
        ) : null,
      )}
      {comparison.has_too_few && !isFailed && <p>{t.compare.tooFewHelp}</p>}
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
      {rows.length === 0 ? (
        <p>{measured.length === 0 ? t.compare.nothingMeasured : t.compare.nothingDiffers}</p>
      ) : (
        <Rows rows={rows} />
      )}
      {leftOut > 0 && <p class="soft">{t.compare.leftOut(leftOut)}</p>}
      <p class="soft">{t.compare.intervalHelp}</p>
    </>
  );
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
  const { ids, verdicts, circumstances } = comparison;
  const names = namesOf(comparison);
  return (
    <>
      {ids.slice(1).map((id, later) => (
        <p class="answer" key={id}>
          {t.compare.says[verdicts[later] ?? 'unknown'](names[later + 1] ?? id, names[0] ?? '')}
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
  const unit = unitIn(row);
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
            <Mark at={at} /> {quantity(value?.value, unit)}
            <small> {value ? t.compare.n(value.n) : ''}</small>
          </div>
        ))}
      </td>
      <td data-label={t.compare.range}>
        <Intervals
          spans={spans}
          label={spans.map((span) => intervalWords(span?.interval ?? null, unit)).join('; ')}
        />
      </td>
      <td class="number" data-label={t.compare.change}>
        {changes.map((change, at) => (
          <div key={at}>
            {percentChange(change.change_percent)}
            {change.change_interval && (
              <small>{t.compare.difference(intervalWords(change.change_interval, unit))}</small>
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

/** The colour of a run, as in the drawings of its row. */
function Mark({ at }: { at: number }) {
  return (
    <span class={`interval-${(at % 6) + 1}`}>
      <svg width="14" height="14" viewBox="0 0 14 14" aria-hidden="true">
        <circle cx="7" cy="7" r="4" />
      </svg>
    </span>
  );
}

function intervalWords(interval: Interval | null, unit: string): string {
  if (!interval) return '–';
  return `${quantity(interval[0], unit)} … ${quantity(interval[1], unit)}`;
}
