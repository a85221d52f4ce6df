// The stored runs: search, tags, and the choice of those to compare.

import { useEffect, useState } from 'preact/hooks';

import { useWords } from '../i18n/index.ts';
import { moment } from '../lib/format.ts';
import { navigate } from '../lib/router.ts';
import { AnswerOf, LimitOf } from '../parts/answer.tsx';
import { SelectField, TextField } from '../parts/field.tsx';
import { JobProgress, JobState } from '../parts/progress.tsx';
import { Badge, Empty, Loaded, Page, Problem } from '../parts/states.tsx';
import { get, remove } from '../server/api.ts';
import { isNotStored, isUnderWay, reloadJobs, useEndedJobs, useJobs } from '../server/jobs.ts';
import { toApiError, useAction, useDebounced, useResource } from '../server/resource.ts';
import type { RunList, RunRow, Workload } from '../server/types.ts';
import { ChangeAndRun } from './live/outcome.tsx';

const PAGE = 50;
const DEBOUNCE_MS = 250;
const NOT_STORED_MAX = 10;

interface Filter {
  q: string;
  tag: string;
  workload: string;
}

const NO_FILTER: Filter = { q: '', tag: '', workload: '' };

function pathOf(filter: Filter, before: string | null): string {
  const query = new URLSearchParams({ limit: String(PAGE) });
  for (const [name, value] of Object.entries(filter)) if (value) query.set(name, value);
  if (before) query.set('before', before);
  return `/runs?${query}`;
}

export function Runs() {
  const t = useWords();
  const [filter, setFilter] = useState(NO_FILTER);
  const settled = useDebounced(filter, DEBOUNCE_MS);
  const isFiltered = Object.values(settled).some(Boolean);
  const runs = useResource<RunList>(pathOf(settled, null));
  useEndedJobs(runs.reload);
  const clear = () => setFilter(NO_FILTER);
  return (
    <Page title={t.runs.title}>
      <Queue />
      <NotStored />
      <FilterForm filter={filter} setFilter={setFilter} />
      <Loaded resource={runs}>
        {(data) => {
          if (data.runs.length > 0) return <RunTable first={data} filter={settled} reload={runs.reload} />;
          return isFiltered ? (
            <Empty title={t.runs.noMatch} help={t.runs.noMatchHelp}>
              <button type="button" onClick={clear}>
                {t.runs.clear}
              </button>
            </Empty>
          ) : (
            <Empty title={t.runs.none} help={t.runs.noneHelp}>
              <a class="button primary" href="/">
                {t.home.title}
              </a>
            </Empty>
          );
        }}
      </Loaded>
    </Page>
  );
}

function Queue() {
  const t = useWords();
  const jobs = (useJobs() ?? []).filter(isUnderWay);
  if (jobs.length === 0) return null;
  return (
    <section>
      <h2>{t.runs.queue}</h2>
      <ul class="jobs">
        {jobs.map((job) => (
          <li key={job.id}>
            <a href={`/live/${job.id}`}>{job.name}</a> <JobState job={job} />
            <JobProgress job={job} />
          </li>
        ))}
      </ul>
    </section>
  );
}

/** Jobs that failed before a run was stored: the list of runs does not have them. */
function NotStored() {
  const t = useWords();
  const failed = (useJobs() ?? []).filter(isNotStored).slice(0, NOT_STORED_MAX);
  const erase = useAction(async (id: string) => {
    await remove(`/jobs/${encodeURIComponent(id)}`);
    reloadJobs();
  });
  if (failed.length === 0) return null;
  return (
    <section>
      <h2>{t.runs.notStored}</h2>
      <Problem error={erase.error} />
      <ul class="jobs">
        {failed.map((job) => (
          <li key={job.id}>
            <a href={`/live/${job.id}`}>{job.name}</a> <span class="soft">{moment(job.created)}</span>
            <p class="failure">{job.message}</p>
            <p class="buttons">
              <ChangeAndRun job={job} isFirst={false} />
              <button type="button" disabled={erase.isRunning} onClick={() => erase.run(job.id)}>
                {t.runs.removeJob}
              </button>
            </p>
          </li>
        ))}
      </ul>
    </section>
  );
}

function FilterForm(props: { filter: Filter; setFilter: (filter: Filter) => void }) {
  const t = useWords();
  const { filter, setFilter } = props;
  const workloads = useResource<Workload[]>('/workloads');
  const tags = useResource<string[]>('/tags');
  const all = { value: '', text: t.runs.all };
  const asOptions = (names: string[]) => [all, ...names.map((name) => ({ value: name, text: name }))];
  return (
    <search class="filter">
      <TextField
        label={t.runs.search}
        placeholder={t.runs.searchHelp}
        value={filter.q}
        onValue={(q) => setFilter({ ...filter, q })}
        input={{ type: 'search' }}
      />
      <SelectField
        label={t.runs.workload}
        value={filter.workload}
        options={asOptions((workloads.data ?? []).map((workload) => workload.name))}
        onValue={(workload) => setFilter({ ...filter, workload })}
      />
      {(tags.data ?? []).length > 0 && (
        <SelectField
          label={t.runs.tag}
          value={filter.tag}
          options={asOptions(tags.data ?? [])}
          onValue={(tag) => setFilter({ ...filter, tag })}
        />
      )}
    </search>
  );
}

function RunTable(props: { first: RunList; filter: Filter; reload: () => void }) {
  const t = useWords();
  const [older, setOlder] = useState<RunRow[]>([]);
  const [next, setNext] = useState(props.first.next);
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  useEffect(() => {
    setOlder([]);
    setNext(props.first.next);
  }, [props.first]);
  const more = useAction(async () => {
    const answer = await get<RunList>(pathOf(props.filter, next));
    setOlder([...older, ...answer.runs]);
    setNext(answer.next);
  });
  const toggle = (id: string) => {
    const changed = new Set(selected);
    if (!changed.delete(id)) changed.add(id);
    setSelected(changed);
  };
  const rows = [...props.first.runs, ...older];
  // Runs that are not shown any more are not compared, and not deleted.
  const visible = new Set(rows.map((run) => run.id).filter((id) => selected.has(id)));
  const columns = t.runs.columns;
  return (
    <>
      <p class="soft">{t.runs.tickHelp}</p>
      <table class="runs">
        <thead>
          <tr>
            <th />
            <th scope="col">{columns.name}</th>
            <th scope="col">{columns.answer}</th>
            <th scope="col">{columns.tags}</th>
            <th scope="col">{columns.began}</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((run) => (
            <Row key={run.id} run={run} isSelected={visible.has(run.id)} toggle={toggle} />
          ))}
        </tbody>
      </table>
      <Problem error={more.error} />
      {next && (
        <button type="button" disabled={more.isRunning} onClick={() => more.run()}>
          {t.runs.more}
        </button>
      )}
      {visible.size > 0 && (
        <Selection
          selected={visible}
          clear={() => setSelected(new Set())}
          onRemoved={() => {
            setSelected(new Set());
            props.reload();
          }}
        />
      )}
    </>
  );
}

function Row(props: { run: RunRow; isSelected: boolean; toggle: (id: string) => void }) {
  const t = useWords();
  const { run } = props;
  return (
    <tr class={props.isSelected ? 'selected' : undefined}>
      <td class="check">
        <input
          type="checkbox"
          aria-label={t.runs.select(`${run.name} ${run.id}`)}
          checked={props.isSelected}
          onChange={() => props.toggle(run.id)}
        />
      </td>
      <td class="run-name">
        <a href={`/runs/${run.id}`}>{run.name}</a>
        <small>
          {run.workload} · {t.run.trials(run.trials)}
        </small>
      </td>
      <td class="run-answer">
        {run.state === 'interrupted' && <Badge tone="odd">{t.run.interrupted}</Badge>}{' '}
        {run.state === 'failed' && <Badge tone="bad">{t.job.states.failed}</Badge>}{' '}
        {run.answer !== 'failed' && <AnswerOf run={run} />}
        <LimitOf run={run} />
        {run.note && <small>{run.note}</small>}
      </td>
      <td class="run-tags">
        {run.tags.map((tag) => (
          <span class="tag" key={tag}>
            {tag}
          </span>
        ))}
      </td>
      <td class="run-began">{moment(run.began)}</td>
    </tr>
  );
}

/** Ids begin with the date and time in UTC, so that the older run comes first and is the baseline. */
export const byAge = (ids: Iterable<string>): string[] => [...ids].sort();

/** Another person may have removed it. */
async function removeRun(id: string): Promise<void> {
  await remove(`/runs/${encodeURIComponent(id)}`).catch((failure: unknown) => {
    if (toApiError(failure).status !== 404) throw failure;
  });
}

interface SelectionProps {
  selected: ReadonlySet<string>;
  clear: () => void;
  onRemoved: () => void;
}

function Selection(props: SelectionProps) {
  const t = useWords();
  const count = props.selected.size;
  const erase = useAction(async () => {
    try {
      for (const id of props.selected) await removeRun(id);
    } finally {
      props.onRemoved();
    }
  });
  return (
    <div class="selection" role="status">
      <span>{count < 2 ? t.runs.selectMore : t.runs.selected(count)}</span>
      <button
        type="button"
        class="primary"
        disabled={count < 2}
        onClick={() => navigate(`/compare?ids=${byAge(props.selected).map(encodeURIComponent).join(',')}`)}
      >
        {count < 2 ? t.runs.compareNone : t.runs.compare(count)}
      </button>
      <button
        type="button"
        class="danger"
        disabled={erase.isRunning}
        onClick={() => confirm(t.runs.removeSure(count)) && erase.run()}
      >
        {t.runs.remove(count)}
      </button>
      <button type="button" onClick={props.clear}>
        {t.runs.clearSelection}
      </button>
      <Problem error={erase.error} />
    </div>
  );
}
