// Everything that is to be corrected in a plan, with the control that shows it.

import { useMemo } from 'preact/hooks';

import type { Dictionary } from '../../i18n/index.ts';
import { otherErrors, type Problem, problemsOf, type Wrong } from '../../lib/check.ts';
import { valueAt } from '../../lib/plan.ts';
import { type Field, fieldsOf, list, object, textOf } from '../../lib/schema.ts';
import type { JsonObject, PlanError, Workload } from '../../server/types.ts';
import type { Draft } from './draft.ts';

export interface Correction {
  /** The key of the control; `null`: no control edits it. */
  field: string | null;
  label: string;
  message: string;
  line: number | null;
}

export function wrongWords(wrong: Wrong, t: Dictionary): string {
  const words = t.newRun.wants;
  switch (wrong.kind) {
    case 'whole':
      return words.whole(words.range(wrong.min, wrong.max));
    case 'number':
      return words.number(words.range(wrong.min, wrong.max));
    case 'metric':
      return words.metric(wrong.name, wrong.near.join(', '));
    default:
      return words[wrong.kind];
  }
}

const HEAD_KEYS = ['name', 'workload', 'repeats', 'lab', 'require'] as const;

const headLabel = (key: string, t: Dictionary): string | null => {
  const labels: Record<(typeof HEAD_KEYS)[number], string> = {
    name: t.newRun.name,
    workload: t.newRun.workload,
    repeats: t.newRun.repeats,
    lab: t.newRun.lab,
    require: t.newRun.objectives,
  };
  return labels[key as keyof typeof labels] ?? null;
};

/** Keys that have a control, without the numbers of items: `exchange.class.clients`. */
export function knownKeys(workload: Workload | null): ReadonlySet<string> {
  const keysOf = (fields: readonly Field[], at: string): string[] =>
    fields.flatMap((field) => {
      const key = `${at}.${field.key}`;
      return field.type.kind === 'tables' ? [key, ...keysOf(field.type.fields, key)] : [key];
    });
  const settings = workload ? keysOf(fieldsOf(workload.schema), workload.name) : [];
  const roles = (workload?.roles ?? []).map((role) => `place.${role.name}`);
  return new Set([...HEAD_KEYS, ...roles, ...settings]);
}

/** The server names the key of a setting, also if only one variant has it: the control is that of the variant. */
export function controlOf(field: string, plan: JsonObject): { field: string; variant: string | null } {
  const path = field.split('.');
  const having = list(plan.variant).flatMap((variant, at) =>
    valueAt(variant, path) === undefined ? [] : [{ at, name: textOf(object(variant).name) }],
  );
  const [only] = having;
  if (!only || having.length > 1 || valueAt(plan, path) !== undefined) return { field, variant: null };
  return { field: `variant[${only.at}].${field}`, variant: only.name };
}

/** What the form has found, then what the server says beside it. */
export function correctionsOf(
  problems: readonly Problem[],
  errors: readonly PlanError[],
  known: ReadonlySet<string>,
  t: Dictionary,
  plan: JsonObject = {},
): Correction[] {
  const { wants } = t.newRun;
  const number = { whole: wants.whole(''), any: wants.number('') };
  const own = problems.map(({ field, label, wrong }) => ({
    field,
    label: label || (headLabel(field.replace(/\[.*/, ''), t) ?? field),
    message: wrongWords(wrong, t),
    line: null,
  }));
  const others = otherErrors(errors, problems, number).map(({ field, message, line }) => {
    if (field === null || !known.has(field.replace(/\[\d+\]/g, ''))) {
      return { field: null, label: '', message, line };
    }
    // The label says which key it is.
    const said = message.startsWith(`${field}: `) ? message.slice(field.length + 2) : message;
    const control = controlOf(field, plan);
    const name = headLabel(field, t) ?? field.replace(/^[^.]*\./, '');
    const label = control.variant === null ? name : `${control.variant}: ${name}`;
    return { field: control.field, label, message: said, line: null };
  });
  return [...own, ...others];
}

export function useCorrections(draft: Draft, workload: Workload | null, t: Dictionary): Correction[] {
  const known = useMemo(() => knownKeys(workload), [workload]);
  const { check, plan, isChecking, isFormStale } = draft;
  return useMemo(() => {
    // The server knows better what is valid, once it has answered.
    if (check?.valid && !isChecking) return [];
    const problems = workload && !isFormStale ? problemsOf(plan, workload) : [];
    return correctionsOf(problems, check?.valid === false ? check.errors : [], known, t, plan);
  }, [check, plan, isChecking, isFormStale, workload, known, t]);
}

/** Opens what is folded away around the control of `field`, shows it and gives it the focus. */
export function showControl(field: string): void {
  const place = document.querySelector<HTMLElement>(`[data-field="${CSS.escape(field)}"]`);
  if (!place) return;
  for (let fold = place.closest('details'); fold; fold = fold.parentElement?.closest('details') ?? null) {
    fold.open = true;
  }
  const control = place.matches('input')
    ? place
    : place.querySelector<HTMLElement>('input, select, textarea');
  place.scrollIntoView({ block: 'center' });
  (control ?? place).focus({ preventScroll: true });
}
