// Labelled controls.

import type { ComponentChildren, JSX } from 'preact';
import { useId } from 'preact/hooks';

interface Labelled {
  label: ComponentChildren;
  help?: ComponentChildren;
  /** A heading above says the same. */
  isLabelHidden?: boolean;
  /** Shown beside the control, and read out when it gets the focus. */
  errors?: readonly string[];
  /** The key of a plan that the control edits: an error's link finds the control by it. */
  field?: string;
}

interface Ids {
  id: string;
  'aria-describedby': string | undefined;
  'aria-invalid': boolean | undefined;
}

/** A label, a control with these ids, its help and its errors. */
export function Control(props: Labelled & { class?: string; children: (ids: Ids) => ComponentChildren }) {
  const id = useId();
  const errors = props.errors ?? [];
  const described = [props.help && `${id}-help`, errors.length > 0 && `${id}-errors`]
    .filter(Boolean)
    .join(' ');
  const ids = {
    id,
    'aria-describedby': described || undefined,
    'aria-invalid': errors.length > 0 || undefined,
  };
  return (
    <div class={`field ${props.class ?? ''}`} data-field={props.field}>
      <label for={id} class={props.isLabelHidden ? 'hidden' : undefined}>
        {props.label}
      </label>
      {props.children(ids)}
      {props.help && (
        <p class="field-help" id={`${id}-help`}>
          {props.help}
        </p>
      )}
      {errors.length > 0 && (
        <p class="field-error" id={`${id}-errors`}>
          {errors.join(' ')}
        </p>
      )}
    </div>
  );
}

type InputProps = Labelled & {
  value: string;
  onValue: (value: string) => void;
  placeholder?: string;
  class?: string;
  input?: JSX.IntrinsicElements['input'];
};

export function TextField({ value, onValue, placeholder, class: name, input, ...labelled }: InputProps) {
  return (
    <Control {...labelled} {...(name ? { class: name } : {})}>
      {(ids) => (
        <input
          type="text"
          autocomplete="off"
          spellcheck={false}
          {...input}
          {...ids}
          value={value}
          placeholder={placeholder ?? ''}
          onInput={(event) => onValue(event.currentTarget.value)}
        />
      )}
    </Control>
  );
}

type AreaProps = Labelled & {
  value: string;
  onValue: (value: string) => void;
  rows?: number;
  isCode?: boolean;
};

export function AreaField({ value, onValue, rows, isCode, ...labelled }: AreaProps) {
  return (
    <Control {...labelled} class="field-wide">
      {(ids) => (
        <textarea
          class={isCode ? 'code' : undefined}
          rows={rows ?? 4}
          spellcheck={false}
          autocapitalize="off"
          {...ids}
          value={value}
          onInput={(event) => onValue(event.currentTarget.value)}
        />
      )}
    </Control>
  );
}

export interface Option {
  value: string;
  text: string;
  /** Options of one group are listed below its name. */
  group?: string;
}

type SelectProps = Labelled & { value: string; options: readonly Option[]; onValue: (value: string) => void };

export function SelectField({ value, options, onValue, ...labelled }: SelectProps) {
  return (
    <Control {...labelled}>
      {(ids) => (
        <select {...ids} value={value} onChange={(event) => onValue(event.currentTarget.value)}>
          {inGroups(options).map(({ group, members }) => {
            const shown = members.map((option) => (
              <option key={option.value} value={option.value} selected={option.value === value}>
                {option.text}
              </option>
            ));
            return group === undefined ? (
              shown
            ) : (
              <optgroup key={group} label={group}>
                {shown}
              </optgroup>
            );
          })}
        </select>
      )}
    </Control>
  );
}

/** Neighbours of one group together, in the order of the options. */
export function inGroups(options: readonly Option[]): { group: string | undefined; members: Option[] }[] {
  const groups: { group: string | undefined; members: Option[] }[] = [];
  for (const option of options) {
    const last = groups.at(-1);
    if (last && last.group === option.group) last.members.push(option);
    else groups.push({ group: option.group, members: [option] });
  }
  return groups;
}
