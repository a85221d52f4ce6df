// Where a plan begins: a ready plan, a file, or nothing.

import { useEffect, useRef, useState } from 'preact/hooks';

import { useWords } from '../../i18n/index.ts';
import { Control, type Option, SelectField } from '../../parts/field.tsx';
import { Problem } from '../../parts/states.tsx';
import { useResource } from '../../server/resource.ts';
import type { ReadyPlan, Workload } from '../../server/types.ts';
import type { Origins } from './origin.ts';

const BYTES_MAX = 1 << 20;

/** Lines of a comment, broken only where a paragraph ends. */
export function paragraphs(text: string): string {
  return text.replace(/([^\n])\n(?=[^\n])/g, '$1 ');
}

/** The ready plans below the names of their workloads, in the order of `workloads`. */
export function planOptions(
  plans: readonly ReadyPlan[],
  workloads: readonly Pick<Workload, 'name'>[],
  words: { needsRoot: string; about: (time: string) => string; costUnknown: string },
): Option[] {
  const place = (plan: ReadyPlan) => workloads.findIndex((one) => one.name === plan.workload);
  return [...plans]
    .sort((a, b) => place(a) - place(b))
    .map((one) => {
      const time = one.cost_short === null ? words.costUnknown : words.about(one.cost_short);
      const facts = one.needs_root ? `${time}, ${words.needsRoot}` : time;
      return { value: one.name, text: `${one.title || one.name} (${facts})`, group: one.workload };
    });
}

interface Props {
  origins: Origins;
  workloads: Workload[];
  /** What a plan that begins with nothing measures. */
  workload: string;
}

export function StartFrom({ origins, workloads, workload }: Props) {
  const t = useWords();
  const plans = useResource<ReadyPlan[]>('/plans');
  const file = useRef<HTMLInputElement>(null);
  const { origin } = origins;
  const chosen = origin.kind === 'ready' ? origin.name : '';
  useEffect(() => {
    // The name of a file that the form no longer shows.
    if (origin.kind !== 'other' && file.current) file.current.value = '';
  }, [origin]);
  const [problem, setProblem] = useState('');
  const plan = plans.data?.find((one) => one.name === chosen);
  const choose = (name: string) => {
    const ready = plans.data?.find((one) => one.name === name);
    if (ready) origins.begin(ready.toml, { kind: 'ready', name });
    else origins.beginEmpty(workload);
  };
  const read = async (file: File | undefined) => {
    setProblem('');
    if (!file) return;
    if (file.size > BYTES_MAX) {
      setProblem(t.newRun.tooLarge);
      return;
    }
    const text = await file.text();
    // A text has no zero bytes, and no bytes that are not UTF-8.
    if (/[\0\uFFFD]/.test(text)) {
      setProblem(t.newRun.unreadable);
      return;
    }
    origins.begin(text, { kind: 'other' });
  };
  const none = { value: '', text: t.newRun.nothing };
  const options = planOptions(plans.data ?? [], workloads, t.newRun);
  return (
    <section class="start-from">
      <div class="columns">
        <SelectField
          label={t.newRun.readyPlan}
          value={chosen}
          options={[none, ...options]}
          onValue={choose}
        />
        <Control label={t.newRun.importFile} errors={problem ? [problem] : []}>
          {(ids) => (
            <input
              {...ids}
              ref={file}
              type="file"
              accept=".toml,text/plain"
              onChange={(event) => void read(event.currentTarget.files?.[0])}
            />
          )}
        </Control>
      </div>
      <Problem error={plans.error} retry={plans.reload} />
      {plan?.about && <p class="about">{paragraphs(plan.about)}</p>}
    </section>
  );
}
