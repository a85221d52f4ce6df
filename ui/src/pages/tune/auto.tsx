// Trials that decide whether a setting helps a workload.

import { useEffect, useId, useRef, useState } from 'preact/hooks';

import { type Dictionary, useWords } from '../../i18n/index.ts';
import { nearest } from '../../lib/near.ts';
import { navigate } from '../../lib/router.ts';
import { AreaField, SelectField, TextField } from '../../parts/field.tsx';
import { Loaded, Problem } from '../../parts/states.tsx';
import { ApiError, get, post } from '../../server/api.ts';
import { useAction, useResource } from '../../server/resource.ts';
import type { Job, JobPlan, ReadyPlan, Setting, Workload } from '../../server/types.ts';
import { paragraphs, planOptions } from '../new-run/start-from.tsx';
import { type CandidateProblem, candidateProblems, settingOf, shortName } from './values.ts';

/** Workloads whose trials a setting of the network can change. */
const JUDGES = ['transfer', 'exchange', 'daq', 'stream', 'files'];

export function AutoForm({ isRoot, settings }: { isRoot: boolean; settings: Setting[] }) {
  const t = useWords();
  const plans = useResource<ReadyPlan[]>('/plans');
  return (
    <section>
      <h2>{t.tune.auto}</h2>
      <p class="soft">{t.tune.autoHelp}</p>
      <Loaded resource={plans}>{(data) => <Form plans={data} isRoot={isRoot} settings={settings} />}</Loaded>
    </section>
  );
}

/** How many variants a plan has, by its text: without any, the plan itself is the only one. */
export function variantsOf(toml: string): number {
  return toml.split('\n').filter((line) => /^\s*\[\[\s*variant\s*\]\]/.test(line)).length || 1;
}

/** The choice of a plan that is no ready one: no file has this name. */
const OTHER = '/';

interface TunedPlan {
  title: string;
  workload: string;
  toml: string;
  about?: string;
}

interface FormProps {
  plans: ReadyPlan[];
  isRoot: boolean;
  settings: Setting[];
}

function Form({ plans, isRoot, settings }: FormProps) {
  const t = useWords();
  const metricsId = useId();
  const workloads = useResource<Workload[]>('/workloads');
  const [name, setName] = useState('');
  const [candidates, setCandidates] = useState('');
  const [metric, setMetric] = useState('');
  const [blocks, setBlocks] = useState<number | null>(null);
  /** The plan of an earlier job, if it is no ready one. */
  const [other, setOther] = useState<TunedPlan | null>(null);
  const form = useRef<HTMLFormElement>(null);
  const plan: TunedPlan | null | undefined = name === OTHER ? other : plans.find((one) => one.name === name);
  const load = useAction(async (id: string) => {
    const path = `/jobs/${encodeURIComponent(id)}`;
    const [job, asked] = await Promise.all([get<Job>(path), get<JobPlan>(`${path}/plan`)]);
    const ready = plans.find((one) => one.toml === asked.toml);
    setOther(ready ? null : { title: job.name, workload: job.workload, toml: asked.toml });
    setName(ready?.name ?? OTHER);
    setCandidates((asked.tune?.settings ?? []).join('\n'));
    setMetric(asked.tune?.metric ?? '');
    setBlocks(asked.tune?.blocks ?? null);
    form.current?.scrollIntoView();
  });
  useEffect(() => {
    const job = new URLSearchParams(location.search).get('job');
    if (job) load.run(job);
  }, []);
  const start = useAction(async () => {
    if (!plan) throw new ApiError(422, t.newRun.choose);
    const settings = candidates
      .split('\n')
      .map((line) => line.trim())
      .filter(Boolean);
    const tune = { toml: plan.toml, settings, metric: metric.trim() || null, blocks };
    const job = await post<Job>('/jobs', { tune, name: null, tags: [] });
    navigate(`/live/${job.id}`);
  });
  const judges = plans.filter((one) => JUDGES.includes(one.workload) && variantsOf(one.toml) === 1);
  const own = other ? [{ value: OTHER, text: other.title }] : [];
  const options = planOptions(judges, workloads.data ?? [], t.newRun);
  const metrics = workloads.data?.find((one) => one.name === plan?.workload)?.metrics ?? [];
  const unknown = metric.trim() !== '' && !metrics.some((one) => one.name === metric.trim());
  const near = nearest(
    metric.trim(),
    metrics.map((one) => one.name),
    3,
  );
  const goalErrors =
    unknown && metrics.length > 0 ? [t.newRun.wants.metric(metric.trim(), near.join(', '))] : [];
  const settingErrors = candidateProblems(candidates, settings).map((one) =>
    candidateWords(one, settings, t),
  );
  const isWrong = settingErrors.length + goalErrors.length > 0;
  return (
    <form
      class="auto"
      ref={form}
      onSubmit={(event) => {
        event.preventDefault();
        start.run();
      }}
    >
      <Problem error={load.error} />
      <SelectField
        label={t.tune.autoPlan}
        value={name}
        options={[{ value: '', text: t.newRun.choose }, ...own, ...options]}
        onValue={setName}
        help={t.tune.autoPlanHelp}
      />
      {plan?.about && <p class="about">{paragraphs(plan.about)}</p>}
      <AreaField
        label={t.tune.autoSettings}
        help={t.tune.autoSettingsHelp}
        value={candidates}
        onValue={setCandidates}
        rows={3}
        isCode
        errors={settingErrors}
      />
      <p class="buttons">
        <select
          aria-label={t.tune.addSetting}
          value=""
          onChange={(event) => {
            const chosen = settingOf(settings, event.currentTarget.value);
            event.currentTarget.value = '';
            if (chosen) setCandidates(`${candidates.trimEnd()}\n${lineOf(chosen)}`.trimStart());
          }}
        >
          <option value="">{t.tune.addSetting}</option>
          {settings
            .filter((one) => one.scope !== 'socket' && one.value !== null)
            .map((one) => (
              <option key={one.name} value={one.name} title={one.meaning}>
                {shortName(one.name)}
              </option>
            ))}
        </select>
      </p>
      <datalist id={metricsId}>
        {metrics.map((one) => (
          <option key={one.name} value={one.name}>
            {one.help}
          </option>
        ))}
      </datalist>
      <TextField
        label={t.tune.autoGoal}
        help={t.tune.autoGoalHelp}
        value={metric}
        onValue={setMetric}
        input={{ list: metricsId }}
        errors={goalErrors}
      />
      <Problem error={start.error} />
      <button type="submit" class="primary" disabled={!plan || !isRoot || start.isRunning || isWrong}>
        {t.tune.autoStart}
      </button>
    </form>
  );
}

/** A line to change: the setting with the value that it has now. */
const lineOf = (setting: Setting): string => `${shortName(setting.name)}=${setting.value ?? ''}`;

function candidateWords(one: CandidateProblem, settings: readonly Setting[], t: Dictionary): string {
  if (one.name === null) return t.tune.candidateForm(one.line);
  if (one.setting) return `${one.name}: ${t.newRun.range(one.setting.range)}.`;
  const names = settings.filter((setting) => setting.scope !== 'socket').map(({ name }) => shortName(name));
  return t.tune.unknownSetting(one.name, nearest(shortName(one.name), names, 3).join(', '));
}
