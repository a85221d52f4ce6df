// Where a plan begins: a ready plan, a file, or nothing.

import { useState } from 'preact/hooks';

import { useWords } from '../../i18n/index.ts';
import { Control, SelectField } from '../../parts/field.tsx';
import { Problem } from '../../parts/states.tsx';
import { useResource } from '../../server/resource.ts';
import type { ReadyPlan } from '../../server/types.ts';

const BYTES_MAX = 1 << 20;

/** Lines of a comment, broken only where a paragraph ends. */
export function paragraphs(text: string): string {
  return text.replace(/([^\n])\n(?=[^\n])/g, '$1 ');
}

export function StartFrom(props: { setToml: (toml: string) => void; setEmpty: () => void }) {
  const t = useWords();
  const plans = useResource<ReadyPlan[]>('/plans');
  const [chosen, setChosen] = useState('');
  const [problem, setProblem] = useState('');
  const plan = plans.data?.find((one) => one.name === chosen);
  const choose = (name: string) => {
    setChosen(name);
    const ready = plans.data?.find((one) => one.name === name);
    if (ready) props.setToml(ready.toml);
    else props.setEmpty();
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
    setChosen('');
    props.setToml(text);
  };
  const none = { value: '', text: t.newRun.nothing };
  const options = (plans.data ?? []).map((one) => ({ value: one.name, text: one.title || one.name }));
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
