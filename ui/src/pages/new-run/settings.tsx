// All settings of a workload, in groups; a search finds one by its words.

import { useWords } from '../../i18n/index.ts';
import { valueAt } from '../../lib/plan.ts';
import type { Field } from '../../lib/schema.ts';
import { TextField } from '../../parts/field.tsx';
import { Fold } from '../../parts/fold.tsx';
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

interface Props {
  fields: Field[];
  edit: Edit;
  /** The words of the search: the page clears them when it shows the setting of an error. */
  words: string;
  setWords: (words: string) => void;
}

export function Settings({ fields, edit, words, setWords }: Props) {
  const t = useWords();
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
  const usual = group.fields.filter((field) => !field.isRare);
  const rare = group.fields.filter((field) => field.isRare);
  const isSet = (field: Field) => valueAt(edit.table, field.path) !== undefined;
  const mustShow = (field: Field) => isSet(field) || edit.errorsOf(`${edit.at}.${field.key}`).length > 0;
  const controls = (
    <>
      <Controls fields={usual} edit={edit} />
      {rare.length > 0 && (
        <Fold title={t.newRun.rare(rare.length)} mustShow={rare.some(mustShow)}>
          <Controls fields={rare} edit={edit} />
        </Fold>
      )}
    </>
  );
  if (group.name === null) return controls;
  const set = group.fields.filter(isSet).length;
  const title = (
    <>
      {group.name} {set > 0 && <span class="soft">{t.newRun.set(set)}</span>}
    </>
  );
  return (
    <Fold class="group" title={title} mustShow={group.fields.some(mustShow)}>
      {controls}
    </Fold>
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
