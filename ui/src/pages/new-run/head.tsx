// What a plan has beside the settings of its workload: name, repetitions, hosts, lab, objectives.

import { useId } from 'preact/hooks';

import { useWords } from '../../i18n/index.ts';
import { withValue } from '../../lib/plan.ts';
import { object, textOf } from '../../lib/schema.ts';
import { Control, SelectField, TextField } from '../../parts/field.tsx';
import { Fold } from '../../parts/fold.tsx';
import { useResource } from '../../server/resource.ts';
import type { Host, JsonObject, Role, Workload } from '../../server/types.ts';

interface Props {
  plan: JsonObject;
  setPlan: (plan: JsonObject) => void;
  errorsOf: (key: string) => readonly string[];
}

/** A whole number, or the text as it was typed, which the server explains. */
function wholeOrText(typed: string): number | string | undefined {
  if (typed.trim() === '') return undefined;
  return /^\d+$/.test(typed.trim()) ? Number(typed) : typed;
}

export function Head(props: Props & { workloads: Workload[]; setWorkload: (name: string) => void }) {
  const t = useWords();
  const { plan, setPlan, errorsOf, workloads } = props;
  const chosen = textOf(plan.workload);
  return (
    <section>
      <div class="columns">
        <SelectField
          label={t.newRun.workload}
          value={chosen}
          options={workloads.map((one) => ({ value: one.name, text: one.name }))}
          onValue={props.setWorkload}
          help={workloads.find((one) => one.name === chosen)?.summary ?? undefined}
          errors={errorsOf('workload')}
          field="workload"
        />
        <TextField
          label={t.newRun.name}
          value={textOf(plan.name)}
          placeholder={chosen}
          onValue={(name) => setPlan(withValue(plan, ['name'], name === '' ? undefined : name))}
          errors={errorsOf('name')}
          field="name"
        />
        <TextField
          label={t.newRun.repeats}
          value={textOf(plan.repeats)}
          placeholder="1"
          input={{ inputMode: 'numeric' }}
          onValue={(typed) => setPlan(withValue(plan, ['repeats'], wholeOrText(typed)))}
          help={t.newRun.repeatsHelp}
          errors={errorsOf('repeats')}
          field="repeats"
        />
      </div>
    </section>
  );
}

export function Place(props: Props & { roles: Role[] }) {
  const t = useWords();
  const id = useId();
  const { plan, setPlan, errorsOf, roles } = props;
  const hosts = useResource<Host[]>('/hosts');
  const wishes = object(plan.place);
  const isSet = Object.keys(wishes).length > 0 || plan.lab !== undefined;
  return (
    <Fold class="group" title={t.newRun.hosts} mustShow={isSet}>
      <p class="soft">{t.newRun.hostsHelp}</p>
      <datalist id={id}>
        {(hosts.data ?? []).map((host) => (
          <option key={host.name} value={host.name} />
        ))}
      </datalist>
      <div class="settings">
        {roles.map((role) => (
          <TextField
            key={role.name}
            label={<code>{role.name}</code>}
            help={role.meaning}
            placeholder={t.newRun.thisMachine}
            value={textOf(wishes[role.name])}
            input={{ list: id }}
            onValue={(typed) => setPlan(withValue(plan, ['place', role.name], wishOf(typed)))}
            errors={errorsOf(`place.${role.name}`)}
            field={`place.${role.name}`}
          />
        ))}
        <TextField
          label={t.newRun.lab}
          help={t.newRun.labHelp}
          placeholder={t.newRun.noLab}
          value={textOf(plan.lab)}
          onValue={(typed) => setPlan(withValue(plan, ['lab'], typed === '' ? undefined : typed))}
          errors={errorsOf('lab')}
          field="lab"
        />
      </div>
    </Fold>
  );
}

/** Hosts as text; a table such as `{"hosts": "daq-*", "count": 200}` stays one. */
function wishOf(typed: string): string | JsonObject | undefined {
  if (typed.trim() === '') return undefined;
  if (typed.startsWith('{')) {
    try {
      return object(JSON.parse(typed));
    } catch {
      return typed;
    }
  }
  return typed;
}

export function Requirements(props: Props & { workload: Workload }) {
  const t = useWords();
  const id = useId();
  const { plan, setPlan, errorsOf, workload } = props;
  const required = Array.isArray(plan.require) ? plan.require.map(textOf) : [];
  const lower = new Set(workload.metrics.filter((one) => one.better === 'lower').map((one) => one.name));
  const wrong = required.map((_, at) => errorsOf(`require[${at}]`));
  const errors = [...errorsOf('require'), ...wrong.flat()];
  const examples = workload.objectives.map((name) => `${name}${lower.has(name) ? '<=' : '>='}`);
  return (
    <Fold class="group" title={t.newRun.objectives} mustShow={required.length > 0}>
      <datalist id={id}>
        {examples.map((text) => (
          <option key={text} value={text} />
        ))}
      </datalist>
      <Control label={t.newRun.objectives} help={t.newRun.objectivesHelp} errors={errors} field="require">
        {(ids) => (
          <div class="rows">
            {[...required, ''].map((text, at) => (
              <input
                key={at}
                data-field={`require[${at}]`}
                {...(at === 0 ? ids : { 'aria-label': t.newRun.objectives })}
                aria-invalid={(wrong[at] ?? []).length > 0 || undefined}
                type="text"
                list={id}
                spellcheck={false}
                value={text}
                placeholder="capacity>=4"
                onInput={(event) => {
                  const typed = event.currentTarget.value;
                  setPlan(withValue(plan, ['require', at], typed === '' ? undefined : typed));
                }}
              />
            ))}
          </div>
        )}
      </Control>
    </Fold>
  );
}
