// A new run: a form made from the workload's settings, and the same plan as TOML.

import { useEffect, useMemo, useState } from 'preact/hooks';

import { useWords } from '../../i18n/index.ts';
import { emptyPlan, errorsByField, withWorkload } from '../../lib/plan.ts';
import { navigate } from '../../lib/router.ts';
import { fieldsOf, object, textOf } from '../../lib/schema.ts';
import { TextField } from '../../parts/field.tsx';
import { Loaded, Page, Problem } from '../../parts/states.tsx';
import { Tabs } from '../../parts/tabs.tsx';
import { get, post } from '../../server/api.ts';
import { useAction, useResource } from '../../server/resource.ts';
import type { Job, JsonObject, PlanError, Server, Workload } from '../../server/types.ts';
import { tagsOf } from '../run.tsx';
import { CheckPanel } from './check-panel.tsx';
import { type Draft, useDraft } from './draft.ts';
import { Head, Place, Requirements } from './head.tsx';
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
  const server = useResource<Server>('/console');
  const [tags, setTags] = useState('');
  const workload = workloads.find((one) => one.name === draft.plan.workload) ?? null;
  const load = useAction(async (run: string) => {
    draft.setToml((await get<{ toml: string }>(`/runs/${encodeURIComponent(run)}/plan`)).toml);
  });
  useEffect(() => {
    const run = new URLSearchParams(location.search).get('run');
    if (run) load.run(run);
  }, []);
  const start = useAction(async () => {
    const job = await post<Job>('/jobs', { toml: draft.toml, name: null, tags: tagsOf(tags) });
    navigate(`/live/${job.id}`);
  });
  const known = useKnownKeys(workload);
  const errors = errorsByField(draft.check?.valid === false ? draft.check.errors : [], known);
  return (
    <div class="editor">
      <div>
        <Problem error={load.error} />
        <StartFrom setToml={draft.setToml} setEmpty={() => draft.setPlan(emptyPlan(FIRST_WORKLOAD))} />
        <Tabs
          label={t.newRun.title}
          tabs={[
            {
              name: 'form',
              title: t.newRun.form,
              show: () => <Form draft={draft} workloads={workloads} workload={workload} errors={errors} />,
            },
            { name: 'toml', title: t.newRun.toml, show: () => <TomlEditor draft={draft} /> },
          ]}
        />
        <TextField label={t.newRun.tags} help={t.newRun.tagsHelp} value={tags} onValue={setTags} />
      </div>
      <CheckPanel
        draft={draft}
        otherErrors={errors.get(null) ?? []}
        isRoot={server.data?.is_root ?? true}
        start={start}
      />
    </div>
  );
}

const HEAD_KEYS = ['name', 'workload', 'repeats', 'lab', 'require'];

/** Keys that have a control in the form, as errors name them. */
function useKnownKeys(workload: Workload | null): ReadonlySet<string> {
  return useMemo(() => {
    const fields = workload ? fieldsOf(workload.schema) : [];
    const roles = (workload?.roles ?? []).map((role) => `place.${role.name}`);
    return new Set([...HEAD_KEYS, ...roles, ...fields.map((field) => `${workload?.name}.${field.key}`)]);
  }, [workload]);
}

interface FormProps {
  draft: Draft;
  workloads: Workload[];
  workload: Workload | null;
  errors: Map<string | null, PlanError[]>;
}

function Form({ draft, workloads, workload, errors }: FormProps) {
  const t = useWords();
  const { plan, setPlan } = draft;
  const fields = useMemo(() => (workload ? fieldsOf(workload.schema) : []), [workload]);
  const errorsOf = (key: string) => (errors.get(key) ?? []).map((error) => error.message);
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
        setWorkload={(chosen) => setPlan(withWorkload(plan, chosen))}
        errorsOf={errorsOf}
      />
      <Settings
        key={name}
        fields={fields}
        edit={{ table: object(plan[name]), setTable, errorsOf: (key) => errorsOf(`${name}.${key}`) }}
      />
      {workload && <Place plan={plan} setPlan={setPlan} roles={workload.roles} errorsOf={errorsOf} />}
      {workload && <Requirements plan={plan} setPlan={setPlan} workload={workload} errorsOf={errorsOf} />}
      <Variants plan={plan} setPlan={setPlan} fields={fields} />
    </>
  );
}
