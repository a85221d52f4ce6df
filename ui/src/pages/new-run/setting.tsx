// The control of one setting, chosen by what its schema declares.

import type { ComponentChildren } from 'preact';

import { type Dictionary, useWords } from '../../i18n/index.ts';
import { type Path, valueAt, withValue } from '../../lib/plan.ts';
import { type Field, type FieldKind, placeholderOf, textOf, typedValue } from '../../lib/schema.ts';
import { Control } from '../../parts/field.tsx';
import type { Json, JsonObject } from '../../server/types.ts';

export interface Edit {
  /** The table that the settings are keys of. */
  table: JsonObject;
  setTable: (table: JsonObject) => void;
  /** The key of the table in the plan, as errors name it. */
  at: string;
  /** The errors of a key of the plan. */
  errorsOf: (key: string) => readonly string[];
}

/** A control for `field`, whose value is at its path within the table. */
export function SettingControl(props: { field: Field; edit: Edit; isShort?: boolean }) {
  const t = useWords();
  const { field, edit } = props;
  const value = valueAt(edit.table, field.path);
  const key = `${edit.at}.${field.key}`;
  const set = (changed: Json | undefined) =>
    edit.setTable(withValue(edit.table, field.path as Path, changed));
  if (field.type.kind === 'tables') {
    return (
      <Tables
        field={field}
        fields={field.type.fields}
        value={value}
        set={set}
        at={key}
        errorsOf={edit.errorsOf}
      />
    );
  }
  const isSet = value !== undefined;
  return (
    <Control
      class={`setting ${isSet ? 'is-set' : ''}`}
      label={<SettingName name={field.key} />}
      help={props.isShort ? undefined : withCode(helpOf(field, t))}
      errors={edit.errorsOf(key)}
      field={key}
    >
      {(ids) => <Input ids={ids} field={field} value={value} set={set} />}
    </Control>
  );
}

function SettingName({ name }: { name: string }) {
  return <code>{name}</code>;
}

/** Words in backticks are code. */
function withCode(text: string): ComponentChildren {
  return text.split('`').map((part, at) => (at % 2 === 1 ? <code key={at}>{part}</code> : part));
}

function helpOf(field: Field, t: Dictionary): string {
  const { min, max } = field.range;
  const range =
    min !== null && max !== null
      ? t.newRun.rangeBetween(min, max)
      : min !== null && min !== '0'
        ? t.newRun.rangeMin(min)
        : max !== null
          ? t.newRun.rangeMax(max)
          : null;
  return [
    field.help,
    range && `(${t.newRun.range(range)})`,
    field.requires && `(${t.newRun.requires(field.requires)})`,
  ]
    .filter(Boolean)
    .join(' ');
}

interface InputProps {
  ids: object;
  field: Field;
  value: Json | undefined;
  set: (value: Json | undefined) => void;
}

function Input({ ids, field, value, set }: InputProps) {
  const t = useWords();
  const kind: FieldKind = field.type;
  switch (kind.kind) {
    case 'switch': {
      const byDefault = field.default === true;
      const isOn = typeof value === 'boolean' ? value : byDefault;
      return (
        <input
          {...ids}
          type="checkbox"
          checked={isOn}
          onChange={(event) => {
            const chosen = event.currentTarget.checked;
            set(chosen === byDefault ? undefined : chosen);
          }}
        />
      );
    }
    case 'choice': {
      const chosen = textOf(value);
      const byDefault = field.unset ?? (textOf(field.default) || t.newRun.notSet);
      const choices = kind.choices.filter(
        (choice) => choice.name !== field.default || choice.name === chosen,
      );
      const defaultHelp = kind.choices.find((choice) => choice.name === field.default)?.help;
      return (
        <select {...ids} value={chosen} onChange={(event) => set(event.currentTarget.value || undefined)}>
          <option value="" selected={chosen === ''}>
            {byDefault}
            {defaultHelp && ` — ${defaultHelp}`} ({t.newRun.isDefault})
          </option>
          {choices.map((choice) => (
            <option
              key={choice.name}
              value={choice.name}
              selected={choice.name === chosen}
              title={choice.help}
            >
              {choice.name}
              {choice.help && ` — ${choice.help}`}
            </option>
          ))}
        </select>
      );
    }
    case 'texts': {
      const lines = Array.isArray(value) ? value.map(textOf).join('\n') : '';
      return (
        <textarea
          {...ids}
          class="code"
          rows={2}
          placeholder={t.newRun.perLine}
          value={lines}
          onInput={(event) => {
            const typed = event.currentTarget.value;
            set(typed === '' ? undefined : typed.split('\n'));
          }}
        />
      );
    }
    default:
      return (
        <input
          {...ids}
          type="text"
          inputMode={kind.kind === 'number' ? 'decimal' : 'text'}
          autocomplete="off"
          spellcheck={false}
          placeholder={placeholderOf(field)}
          value={textOf(value)}
          onInput={(event) => set(typedValue(field, event.currentTarget.value))}
        />
      );
  }
}

interface TablesProps {
  field: Field;
  fields: Field[];
  value: Json | undefined;
  set: (value: Json | undefined) => void;
  at: string;
  errorsOf: (key: string) => readonly string[];
}

/** A list of tables, such as the classes of `exchange`. */
function Tables({ field, fields, value, set, at: key, errorsOf }: TablesProps) {
  const t = useWords();
  const items = Array.isArray(value) ? value : [];
  const errors = errorsOf(key);
  const replace = (at: number, item: JsonObject | null) => {
    const changed = items.flatMap((old, index) => (index !== at ? [old] : item ? [item] : []));
    set(changed.length > 0 ? changed : undefined);
  };
  return (
    <fieldset class="tables" data-field={key}>
      <legend>
        <SettingName name={field.key} />
      </legend>
      <p class="field-help">{withCode(field.help)}</p>
      {errors.length > 0 && <p class="field-error">{errors.join(' ')}</p>}
      {items.map((item, at) => (
        <fieldset key={at} class="card">
          <legend>{t.newRun.item(at + 1)}</legend>
          <div class="settings">
            {fields.map((inner) => (
              <SettingControl
                key={inner.key}
                field={inner}
                edit={{
                  table: item as JsonObject,
                  setTable: (table) => replace(at, table),
                  at: `${key}[${at}]`,
                  errorsOf,
                }}
              />
            ))}
          </div>
          <button type="button" class="quiet" onClick={() => replace(at, null)}>
            {t.common.remove}
          </button>
        </fieldset>
      ))}
      <button type="button" onClick={() => set([...items, {}])}>
        {t.newRun.addItem}
      </button>
    </fieldset>
  );
}
