// Trials that decide whether a setting helps a workload.

import { useState } from 'preact/hooks';

import { useWords } from '../../i18n/index.ts';
import { navigate } from '../../lib/router.ts';
import { AreaField, SelectField, TextField } from '../../parts/field.tsx';
import { Loaded, Problem } from '../../parts/states.tsx';
import { ApiError, post } from '../../server/api.ts';
import { useAction, useResource } from '../../server/resource.ts';
import type { Job, ReadyPlan } from '../../server/types.ts';
import { paragraphs } from '../new-run/start-from.tsx';

/** Workloads whose trials a setting of the network can change. */
const JUDGES = ['transfer', 'exchange', 'daq', 'stream', 'files'];

export function AutoForm({ isRoot }: { isRoot: boolean }) {
  const t = useWords();
  const plans = useResource<ReadyPlan[]>('/plans');
  return (
    <section>
      <h2>{t.tune.auto}</h2>
      <p class="soft">{t.tune.autoHelp}</p>
      <Loaded resource={plans}>{(data) => <Form plans={data} isRoot={isRoot} />}</Loaded>
    </section>
  );
}

function Form({ plans, isRoot }: { plans: ReadyPlan[]; isRoot: boolean }) {
  const t = useWords();
  const [name, setName] = useState('');
  const [candidates, setCandidates] = useState('');
  const [metric, setMetric] = useState('');
  const plan = plans.find((one) => one.name === name);
  const start = useAction(async () => {
    if (!plan) throw new ApiError(422, t.newRun.choose);
    const settings = candidates
      .split('\n')
      .map((line) => line.trim())
      .filter(Boolean);
    const tune = { toml: plan.toml, settings, metric: metric.trim() || null, blocks: null };
    const job = await post<Job>('/jobs', { tune, name: null, tags: [] });
    navigate(`/live/${job.id}`);
  });
  const options = plans
    .filter((one) => JUDGES.includes(one.workload))
    .map((one) => ({ value: one.name, text: one.title || one.name }));
  return (
    <form
      class="auto"
      onSubmit={(event) => {
        event.preventDefault();
        start.run();
      }}
    >
      <SelectField
        label={t.tune.autoPlan}
        value={name}
        options={[{ value: '', text: t.newRun.choose }, ...options]}
        onValue={setName}
      />
      {plan?.about && <p class="about">{paragraphs(plan.about)}</p>}
      <AreaField
        label={t.tune.autoSettings}
        help={t.tune.autoSettingsHelp}
        value={candidates}
        onValue={setCandidates}
        rows={3}
        isCode
      />
      <TextField label={t.tune.autoGoal} help={t.tune.autoGoalHelp} value={metric} onValue={setMetric} />
      <Problem error={start.error} />
      <button type="submit" class="primary" disabled={!plan || !isRoot || start.isRunning}>
        {t.tune.autoStart}
      </button>
    </form>
  );
}
