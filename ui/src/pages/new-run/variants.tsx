// What a plan compares: variants, each with the settings that differ.

import { useWords } from '../../i18n/index.ts';
import { leavesOf, nextVariantName, withValue } from '../../lib/plan.ts';
import { type Field, object, placeholderOf, textOf } from '../../lib/schema.ts';
import { TextField } from '../../parts/field.tsx';
import type { Json, JsonObject } from '../../server/types.ts';
import { SettingControl } from './setting.tsx';

/** Cards of more variants would make the page slow; the text has all. */
export const CARDS_MAX = 50;

interface Props {
  plan: JsonObject;
  setPlan: (plan: JsonObject) => void;
  fields: Field[];
  errorsOf: (key: string) => readonly string[];
}

export function Variants({ plan, setPlan, fields, errorsOf }: Props) {
  const t = useWords();
  const variants = (Array.isArray(plan.variant) ? plan.variant : []).map(object);
  const set = (changed: JsonObject[]) => {
    setPlan(withValue(plan, ['variant'], changed.length > 0 ? changed : undefined));
  };
  return (
    <section>
      <h2>{t.newRun.variants}</h2>
      <p class="soft">{t.newRun.variantsHelp}</p>
      {variants.slice(0, CARDS_MAX).map((variant, at) => (
        <VariantCard
          key={at}
          variant={variant}
          workload={textOf(plan.workload)}
          fields={fields}
          at={`variant[${at}]`}
          errorsOf={errorsOf}
          set={(changed) => set(variants.map((old, index) => (index === at ? changed : old)))}
          remove={() => set(variants.filter((_, index) => index !== at))}
        />
      ))}
      {variants.length > CARDS_MAX && <p>{t.newRun.moreVariants(variants.length - CARDS_MAX)}</p>}
      <button
        type="button"
        disabled={variants.length >= CARDS_MAX}
        onClick={() => set([...variants, { name: nextVariantName(plan, t.newRun.variantWord) }])}
      >
        {t.newRun.addVariant}
      </button>
    </section>
  );
}

interface CardProps {
  variant: JsonObject;
  workload: string;
  fields: Field[];
  at: string;
  errorsOf: (key: string) => readonly string[];
  set: (variant: JsonObject) => void;
  remove: () => void;
}

function VariantCard({ variant, workload, fields, at, errorsOf, set, remove }: CardProps) {
  const t = useWords();
  const own = object(variant[workload]);
  const settable = fields.filter((field) => field.type.kind !== 'tables');
  const paths = new Set(leavesOf(own).map((leaf) => leaf.path.join('.')));
  const changed = settable.filter((field) => paths.has(field.key));
  const others = leavesOf(variant).filter(({ path }) => {
    const isOwn = path[0] === workload && changed.some((field) => field.key === path.slice(1).join('.'));
    return !isOwn && path.join('.') !== 'name';
  });
  const setOwn = (table: JsonObject) => set({ ...variant, [workload]: table });
  return (
    <fieldset class="card">
      <legend>{textOf(variant.name)}</legend>
      {changed.length + others.length === 0 && <p class="soft">{t.newRun.noChanges}</p>}
      <div class="settings">
        <TextField
          label={t.newRun.variantName}
          value={textOf(variant.name)}
          onValue={(name) => set({ ...variant, name })}
        />
        {changed.map((field) => (
          <div key={field.key} class="with-remove">
            <SettingControl
              isShort
              field={field}
              // An empty text stays until the person types a value, or removes the change.
              edit={{
                table: own,
                setTable: (table) => setOwn(keeping(table, field)),
                at: `${at}.${workload}`,
                errorsOf,
              }}
            />
            <button type="button" class="quiet" onClick={() => setOwn(withValue(own, field.path, undefined))}>
              {t.common.remove}
            </button>
          </div>
        ))}
      </div>
      {others.map(({ path, value }) => (
        <p key={path.join('.')} class="with-remove">
          <code>
            {path.join('.')} = {textOf(value)}
          </code>
          <button type="button" class="quiet" onClick={() => set(withValue(variant, path, undefined))}>
            {t.common.remove}
          </button>
        </p>
      ))}
      <div class="buttons">
        <select
          aria-label={t.newRun.addChange}
          value=""
          onChange={(event) => {
            const field = settable.find((one) => one.key === event.currentTarget.value);
            event.currentTarget.value = '';
            if (field) setOwn(withValue(own, field.path, firstValue(field)));
          }}
        >
          <option value="">{t.newRun.addChange}</option>
          {settable
            .filter((field) => !paths.has(field.key))
            .map((field) => (
              <option key={field.key} value={field.key}>
                {field.key}
              </option>
            ))}
        </select>
        <button type="button" class="quiet" onClick={remove}>
          {t.newRun.removeVariant}
        </button>
      </div>
    </fieldset>
  );
}

function keeping(table: JsonObject, field: Field): JsonObject {
  const isGone = !leavesOf(table).some((leaf) => leaf.path.join('.') === field.key);
  if (!isGone) return table;
  const value: Json = field.type.kind === 'switch' ? field.default === true : '';
  return withValue(table, field.path, value);
}

/** What a setting that is to differ begins with. */
export function firstValue(field: Field): Json {
  switch (field.type.kind) {
    case 'switch':
      return field.default !== true;
    case 'choice':
      return field.type.choices.find((choice) => choice.name !== field.default)?.name ?? '';
    case 'texts':
      return [];
    default:
      return field.unset === null ? (field.default ?? placeholderOf(field)) : '';
  }
}
