// What the form itself finds wrong with a plan, before the server is asked. The server has the last word.

import type { Json, JsonObject, PlanError, Workload } from '../server/types.ts';
import { nearest } from './near.ts';
import { type Field, fieldsOf, list, object } from './schema.ts';

/** Why a value cannot be right; the words are in the dictionary. */
export type Wrong =
  | { kind: 'whole' | 'number'; min: string | null; max: string | null }
  | { kind: 'time' | 'size' | 'rate' }
  | { kind: 'metric'; name: string; near: string[] }
  | { kind: 'relation' };

export interface Problem {
  /** As the server names it: `transfer.flows`, `exchange.class[0].clients`, `require[1]`. */
  field: string;
  /** The name that the form shows beside the control. */
  label: string;
  wrong: Wrong;
}

const REPEATS_MAX = '1000';
const NEAREST = 3;
const RELATION = /^([^<>=]*)(<=|>=|==|<|>|=)(.*)$/;
const UNITS: Record<string, { kind: 'time' | 'size' | 'rate'; unit: RegExp }> = {
  span: { kind: 'time', unit: /^(ns|us|µs|ms|s|min|m|h)$/i },
  'byte-size': { kind: 'size', unit: /^([kMGT]|[KMGT]i)?B$/ },
  'bit-rate': { kind: 'rate', unit: /^([kmgt]?(bit\/s|bps)|([kMG]|[KMG]i)?B\/s)$/i },
};

/** Everything in `plan` that the form can judge and that is wrong, in the order of the form. */
export function problemsOf(plan: JsonObject, workload: Workload): Problem[] {
  const fields = fieldsOf(workload.schema);
  const own = workload.name;
  const variants = list(plan.variant).flatMap((variant, at) =>
    inTable(object(object(variant)[own]), fields, `variant[${at}].${own}`).map((problem) => ({
      ...problem,
      label: `${String(object(variant).name ?? at + 1)}: ${problem.label}`,
    })),
  );
  const wrong = repeatsWrong(plan.repeats);
  return [
    ...(wrong ? [{ field: 'repeats', label: '', wrong }] : []),
    ...inTable(object(plan[own]), fields, own),
    ...list(plan.require).flatMap((text, at) => inRequirement(text, at, workload)),
    ...variants,
  ];
}

function repeatsWrong(value: Json | undefined): Wrong | null {
  return value === undefined ? null : numberWrong(value, true, { min: '1', max: REPEATS_MAX });
}

function inTable(table: JsonObject, fields: readonly Field[], at: string): Problem[] {
  return fields.flatMap((field) => {
    const value = field.path.reduce<Json | undefined>((part, key) => object(part)[key], table);
    if (value === undefined || value === null) return [];
    const key = `${at}.${field.key}`;
    if (field.type.kind === 'tables') {
      const inner = field.type.fields;
      return list(value).flatMap((item, number) =>
        inTable(object(item), inner, `${key}[${number}]`).map((problem) => ({
          ...problem,
          label: `${field.key} ${number + 1}: ${problem.label}`,
        })),
      );
    }
    const wrong = wrongWith(field, value);
    return wrong ? [{ field: key, label: field.key, wrong }] : [];
  });
}

/** What is wrong with the value of one setting; `null`: nothing that the form can tell. */
export function wrongWith(field: Field, value: Json): Wrong | null {
  if (field.type.kind === 'number') return numberWrong(value, field.type.isWhole, field.range);
  if (field.type.kind !== 'text' || typeof value !== 'string') return null;
  const known = UNITS[field.type.format ?? ''];
  if (!known) return null;
  const [, digits = '', unit = ''] = /^([\d.+_-]*)\s*(.*)$/.exec(value.trim()) ?? [];
  const number = Number(digits.replaceAll('_', ''));
  const isRight = digits !== '' && number >= 0 && (known.unit.test(unit) || (unit === '' && number === 0));
  return isRight ? null : { kind: known.kind };
}

function numberWrong(value: Json, isWhole: boolean, range: Field['range']): Wrong | null {
  const isRight =
    typeof value === 'number' &&
    (!isWhole || Number.isInteger(value)) &&
    !(range.min !== null && value < Number(range.min)) &&
    !(range.max !== null && value > Number(range.max));
  return isRight ? null : { kind: isWhole ? 'whole' : 'number', ...range };
}

function inRequirement(text: Json, at: number, workload: Workload): Problem[] {
  if (typeof text !== 'string') return [];
  const found = RELATION.exec(text);
  const name = found?.[1]?.trim() ?? '';
  const bound = found?.[3]?.trim() ?? '';
  const field = `require[${at}]`;
  if (name === '' || bound === '' || /^[<>=]/.test(bound)) {
    return [{ field, label: '', wrong: { kind: 'relation' } }];
  }
  const known = workload.objectives;
  if (known.length === 0 || [...known, ...workload.metrics.map((one) => one.name)].includes(name)) return [];
  return [{ field, label: '', wrong: { kind: 'metric', name, near: nearest(name, known, NEAREST) } }];
}

/** The errors of the server that `problems` do not say already, in words that need no knowledge of Rust. */
export function otherErrors(
  errors: readonly PlanError[],
  problems: readonly Problem[],
  number: { whole: string; any: string },
): PlanError[] {
  const isSaid = ({ field, message }: PlanError) =>
    problems.some(
      (problem) =>
        problem.field === field ||
        (field !== null && problem.field.endsWith(`].${field}`)) ||
        (problem.field.startsWith('require[') && /\bthe requirement '/.test(message)),
    );
  return errors
    .filter((error) => !isSaid(error))
    .map((error) => ({ ...error, message: plain(error.message, number) }));
}

/** `invalid type: string "abc", expected u32` says nothing to whom does not write Rust. */
function plain(message: string, number: { whole: string; any: string }): string {
  return message.replace(
    /invalid (?:type|value): .*, expected (?:an? )?([ui]\d+|usize|f32|f64)\b.*/s,
    (_, type) => (type.startsWith('f') ? number.any : number.whole),
  );
}
