// A new run: a form made from the workload's settings, and the same plan as TOML.

import { useEffect, useMemo, useState } from 'preact/hooks';

import { useWords } from '../../i18n/index.ts';
import { navigate } from '../../lib/router.ts';
import { fieldsOf, object, textOf } from '../../lib/schema.ts';
import { TextField } from '../../parts/field.tsx';
import { Loaded, Page, Problem } from '../../parts/states.tsx';
import { Tabs } from '../../parts/tabs.tsx';
import { get, post } from '../../server/api.ts';
import { useAction, useResource } from '../../server/resource.ts';
import type { Job, JsonObject, Server, Workload } from '../../server/types.ts';
import { tagsOf } from '../run.tsx';
import { CheckPanel } from './check-panel.tsx';
import { type Draft, useDraft } from './draft.ts';
import { type Correction, showControl, useCorrections } from './errors.ts';
import { Head, Place, Requirements } from './head.tsx';
import { type Origins, useOrigins } from './origin.ts';
import { Settings } from './settings.tsx';
import { StartFrom } from './start-from.tsx';
import { TomlEditor } from './toml.tsx';
import { Variants } from './variants.tsx';

const FIRST_WORKLOAD = 'transfer';

export function NewRun() {
  const t = useWords();
  const workloads = useResource<Workload[]>('/workloads');
  return (
    <Page title={t.newRun.title}>
      <Loaded resource={workloads}>{(data) => <Editor workloads={data} />}</Loaded>
    </Page>
  );
}

function Editor({ workloads }: { workloads: Workload[] }) {
  const t = useWords();
  const draft = useDraft(FIRST_WORKLOAD);
  const origins = useOrigins(draft);
  const server = useResource<Server>('/console');
  const [tags, setTags] = useState('');
  const [tab, setTab] = useState('form');
  const [words, setWords] = useState('');
  // A new object for each request, so that the same control can be shown again.
  const [shown, setShown] = useState<{ field: string } | null>(null);
  const workload = workloads.find((one) => one.name === draft.plan.workload) ?? null;
  const corrections = useCorrections(draft, workload, t);
  const load = useAction(async (of: 'runs' | 'jobs', id: string) => {
    const { toml } = await get<{ toml: string }>(`/${of}/${encodeURIComponent(id)}/plan`);
    origins.begin(toml, { kind: 'other' });
  });
  useEffect(() => {
    const query = new URLSearchParams(location.search);
    const [run, job] = [query.get('run'), query.get('job')];
    if (run) load.run('runs', run);
    else if (job) load.run('jobs', job);
  }, []);
  useEffect(() => {
    if (shown) showControl(shown.field);
  }, [shown]);
  const show = (field: string) => {
    setTab('form');
    setWords('');
    setShown({ field });
  };
  const start = useAction(async () => {
    const job = await post<Job>('/jobs', { toml: draft.toml, name: null, tags: tagsOf(tags) });
    navigate(`/live/${job.id}`);
  });
  const form = () => (
    <Form
      draft={draft}
      origins={origins}
      workloads={workloads}
      workload={workload}
      corrections={corrections}
      search={{ words, setWords }}
    />
  );
  return (
    <div class="editor">
      <div>
        <Problem error={load.error} />
        <StartFrom origins={origins} workloads={workloads} workload={workload?.name ?? FIRST_WORKLOAD} />
        <Tabs
          label={t.newRun.title}
          chosen={tab}
          onChange={setTab}
          tabs={[
            { name: 'form', title: t.newRun.form, show: form },
            { name: 'toml', title: t.newRun.toml, show: () => <TomlEditor draft={draft} /> },
          ]}
        />
        <TextField label={t.newRun.tags} help={t.newRun.tagsHelp} value={tags} onValue={setTags} />
      </div>
      <CheckPanel
        draft={draft}
        corrections={corrections}
        show={show}
        isRoot={server.data?.is_root ?? true}
        start={start}
      />
    </div>
  );
}

interface FormProps {
  draft: Draft;
  origins: Origins;
  workloads: Workload[];
  workload: Workload | null;
  corrections: Correction[];
  search: { words: string; setWords: (words: string) => void };
}

function Form({ draft, origins, workloads, workload, corrections, search }: FormProps) {
  const t = useWords();
  const { plan, setPlan } = draft;
  const fields = useMemo(() => (workload ? fieldsOf(workload.schema) : []), [workload]);
  const errorsOf = (key: string) => corrections.filter((one) => one.field === key).map((one) => one.message);
  const name = workload?.name ?? textOf(plan.workload);
  const setTable = (table: JsonObject) => {
    const changed = { ...plan, [name]: table };
    if (Object.keys(table).length === 0) delete changed[name];
    setPlan(changed);
  };
  return (
    <>
      {draft.isFormStale && <p class="problem">{t.newRun.tomlStale}</p>}
      <Head
        plan={plan}
        setPlan={setPlan}
        workloads={workloads}
        setWorkload={(chosen) => {
          search.setWords('');
          origins.setWorkload(chosen);
        }}
        errorsOf={errorsOf}
      />
      {origins.keptFor !== null && (
        <p class="soft" role="status">
          {t.newRun.kept(origins.keptFor)}
        </p>
      )}
      <Settings
        key={name}
        fields={fields}
        edit={{ table: object(plan[name]), setTable, at: name, errorsOf }}
        {...search}
      />
      {workload && <Place plan={plan} setPlan={setPlan} roles={workload.roles} errorsOf={errorsOf} />}
      {workload && <Requirements plan={plan} setPlan={setPlan} workload={workload} errorsOf={errorsOf} />}
      <Variants plan={plan} setPlan={setPlan} fields={fields} errorsOf={errorsOf} />
    </>
  );
}
