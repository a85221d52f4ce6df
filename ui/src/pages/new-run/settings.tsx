// All settings of a workload, in groups; a search finds one by its words.

import { useState } from 'preact/hooks';

import { useWords } from '../../i18n/index.ts';
import { valueAt } from '../../lib/plan.ts';
import type { Field } from '../../lib/schema.ts';
import { TextField } from '../../parts/field.tsx';
import { type Edit, SettingControl } from './setting.tsx';

interface Group {
  name: string | null;
  fields: Field[];
}

export function groupsOf(fields: readonly Field[]): Group[] {
  const groups = new Map<string | null, Field[]>([[null, []]]);
  for (const field of fields) {
    const group = groups.get(field.group) ?? [];
    group.push(field);
    groups.set(field.group, group);
  }
  return [...groups].map(([name, all]) => ({ name, fields: all })).filter((group) => group.fields.length > 0);
}

export function matching(fields: readonly Field[], words: string): Field[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  return fields.filter((field) => {
    const text = `${field.key} ${field.help} ${field.group ?? ''}`.toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
}

export function Settings(props: { fields: Field[]; edit: Edit }) {
  const t = useWords();
  const [words, setWords] = useState('');
  const { fields, edit } = props;
  const found = matching(fields, words);
  return (
    <section>
      <h2>{t.newRun.basics}</h2>
      <TextField label={t.newRun.filter} value={words} onValue={setWords} input={{ type: 'search' }} />
      {words.trim() !== '' ? (
        found.length > 0 ? (
          <Controls fields={found} edit={edit} />
        ) : (
          <p class="soft">{t.newRun.filterNone}</p>
        )
      ) : (
        groupsOf(fields).map((group) => <GroupOfSettings key={group.name} group={group} edit={edit} />)
      )}
    </section>
  );
}

function GroupOfSettings({ group, edit }: { group: Group; edit: Edit }) {
  const t = useWords();
  const isShown = (field: Field) => !field.isRare || valueAt(edit.table, field.path) !== undefined;
  const usual = group.fields.filter(isShown);
  const rare = group.fields.filter((field) => !isShown(field));
  const more = rare.length > 0 && (
    <details>
      <summary>{t.newRun.rare(rare.length)}</summary>
      <Controls fields={rare} edit={edit} />
    </details>
  );
  if (group.name === null) {
    return (
      <>
        <Controls fields={usual} edit={edit} />
        {more}
      </>
    );
  }
  const set = group.fields.filter((field) => valueAt(edit.table, field.path) !== undefined).length;
  const hasError = group.fields.some((field) => edit.errorsOf(field.key).length > 0);
  return (
    <details class="group" open={hasError || undefined}>
      <summary>
        {group.name} {set > 0 && <span class="soft">{t.newRun.set(set)}</span>}
      </summary>
      <Controls fields={usual} edit={edit} />
      {more}
    </details>
  );
}

function Controls({ fields, edit }: { fields: Field[]; edit: Edit }) {
  return (
    <div class="settings">
      {fields.map((field) => (
        <SettingControl key={field.key} field={field} edit={edit} />
      ))}
    </div>
  );
}
