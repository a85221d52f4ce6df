// A stored run: its report, its plan, its tags and note.

import { useState } from 'preact/hooks';

import { useWords } from '../i18n/index.ts';
import { moment } from '../lib/format.ts';
import { navigate } from '../lib/router.ts';
import { LimitOf } from '../parts/answer.tsx';
import { AreaField, TextField } from '../parts/field.tsx';
import { Empty, Loaded, Loading, Problem } from '../parts/states.tsx';
import { Tabs } from '../parts/tabs.tsx';
import { address, patch, remove } from '../server/api.ts';
import { useAction, useResource } from '../server/resource.ts';
import type { RunList, RunRow } from '../server/types.ts';
import { Continue, RunAgain } from './live/outcome.tsx';

export function RunPage(props: { run: string }) {
  const t = useWords();
  const path = `/runs/${encodeURIComponent(props.run)}`;
  // The list has the row of a run; the run's own document has all samples and may be large.
  const rows = useResource<RunList>(`/runs?q=${encodeURIComponent(props.run)}&limit=5`);
  return (
    <Loaded resource={rows}>
      {(data) => {
        const row = data.runs.find((one) => one.id === props.run);
        if (!row) {
          return (
            <Empty title={t.run.notFound}>
              <a href="/runs">{t.run.back}</a>
            </Empty>
          );
        }
        const onSave = (saved: Annotation) => {
          rows.setData({ ...data, runs: data.runs.map((one) => (one === row ? { ...one, ...saved } : one)) });
        };
        return <Stored row={row} path={path} onSave={onSave} />;
      }}
    </Loaded>
  );
}

/** Tags and note of a run. */
type Annotation = Pick<RunRow, 'tags' | 'note'>;

interface StoredProps {
  row: RunRow;
  path: string;
  /** Takes over what the server has stored. */
  onSave: (saved: Annotation) => void;
}

function Stored({ row, path, onSave }: StoredProps) {
  const t = useWords();
  return (
    <>
      <p class="crumb">
        <a href="/runs">{t.run.back}</a>
      </p>
      <h1>{row.name}</h1>
      <p class={`lead ${row.state === 'failed' ? 'failure' : ''}`}>
        {row.answer}
        <LimitOf run={row} />
      </p>
      <p class="soft">
        {row.workload} · {t.run.trials(row.trials)} · {moment(row.began)} · <code>{row.id}</code>
      </p>
      <p class="buttons">
        {canContinue(row) && <Continue run={row.id} />}
        <RunAgain run={row.id} />
        <a class="button" href={`/new?run=${encodeURIComponent(row.id)}`}>
          {t.run.edit}
        </a>
        <a class="button" href={address(`${path}/report`)} target="_blank" rel="noreferrer">
          {t.run.newTab}
        </a>
        <a class="button" href={address(`${path}/export`)} download>
          {t.run.export}
        </a>
      </p>
      <Tabs
        label={row.name}
        tabs={[
          { name: 'report', title: t.run.report, show: () => <Report row={row} path={path} /> },
          { name: 'plan', title: t.run.plan, show: () => <PlanText path={path} /> },
          { name: 'notes', title: t.run.notes, show: () => <Notes row={row} path={path} onSave={onSave} /> },
        ]}
      />
    </>
  );
}

/** Whether trials are stored, and others of the plan were not measured. */
export const canContinue = (row: RunRow): boolean =>
  row.trials > 0 && (row.state === 'interrupted' || row.state === 'failed');

/** The report runs its own script, without access to the console. */
function Report({ row, path }: { row: RunRow; path: string }) {
  const t = useWords();
  const [isLoaded, setIsLoaded] = useState(false);
  return (
    <>
      {!isLoaded && <Loading />}
      <iframe
        class="report"
        title={`${t.run.report}: ${row.name}`}
        src={address(`${path}/report`)}
        sandbox="allow-scripts"
        onLoad={() => setIsLoaded(true)}
      />
    </>
  );
}

function PlanText({ path }: { path: string }) {
  const plan = useResource<{ toml: string }>(`${path}/plan`);
  return <Loaded resource={plan}>{(data) => <pre class="code">{data.toml}</pre>}</Loaded>;
}

/** Tags as a person types them: separated by commas. */
export function tagsOf(text: string): string[] {
  return [...new Set(text.split(',').map((tag) => tag.trim()))].filter(Boolean);
}

/** What a person has changed: another person may have changed the rest meanwhile. Pure, so that it can be tested. */
export function changesOf(loaded: Annotation, edited: Annotation): Partial<Annotation> {
  return {
    ...(edited.tags.join() !== loaded.tags.join() && { tags: edited.tags }),
    ...(edited.note !== loaded.note && { note: edited.note }),
  };
}

function Notes({ row, path, onSave }: StoredProps) {
  const t = useWords();
  const [tags, setTags] = useState(row.tags.join(', '));
  const [note, setNote] = useState(row.note);
  const [isSaved, setIsSaved] = useState(false);
  const save = useAction(async () => {
    const saved = await patch<Annotation>(path, changesOf(row, { tags: tagsOf(tags), note }));
    onSave(saved);
    // Not what was typed since.
    setTags((now) => (now === tags ? saved.tags.join(', ') : now));
    setNote((now) => (now === note ? saved.note : now));
    setIsSaved(true);
  });
  const erase = useAction(async () => {
    await remove(path);
    navigate('/runs');
  });
  const changed = <T,>(set: (value: T) => void) => {
    return (value: T) => {
      setIsSaved(false);
      set(value);
    };
  };
  return (
    <form
      class="notes"
      onSubmit={(event) => {
        event.preventDefault();
        save.run();
      }}
    >
      <TextField label={t.newRun.tags} help={t.newRun.tagsHelp} value={tags} onValue={changed(setTags)} />
      <AreaField label={t.run.note} value={note} onValue={changed(setNote)} />
      <Problem error={save.error} />
      <p class="buttons">
        <button type="submit" class="primary" disabled={save.isRunning}>
          {t.common.save}
        </button>
        <span role="status">{isSaved && t.run.saved}</span>
      </p>
      <hr />
      <Problem error={erase.error} />
      <button
        type="button"
        class="danger"
        disabled={erase.isRunning}
        onClick={() => confirm(t.run.removeSure) && erase.run()}
      >
        {t.run.remove}
      </button>
    </form>
  );
}
