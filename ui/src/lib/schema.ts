// Fields of a form, from the JSON schema that a workload declares its settings with.

import type { Json, JsonObject } from '../server/types.ts';

export interface Choice {
  name: string;
  help: string;
}

export type FieldKind =
  | { kind: 'switch' }
  | { kind: 'number'; isWhole: boolean }
  | { kind: 'text'; format: string | null }
  | { kind: 'choice'; choices: Choice[] }
  | { kind: 'texts' }
  | { kind: 'tables'; fields: Field[] };

export interface Field {
  /** Path in the workload's table of a plan. */
  path: string[];
  key: string;
  help: string;
  type: FieldKind;
  default: Json;
  /** What is done without a value. */
  unset: string | null;
  range: { min: string | null; max: string | null };
  group: string | null;
  /** Few people need it. */
  isRare: boolean;
  requires: string | null;
  conflicts: string[];
}

interface Flag {
  group: string | null;
  rare: boolean;
  requires: string | null;
  conflicts: string[];
}

/** Every setting, in the order of the schema. */
export function fieldsOf(schema: JsonObject): Field[] {
  const found: Field[] = [];
  collect(schema, [], { group: null, rare: false, requires: null, conflicts: [] }, found);
  return found;
}

function collect(schema: JsonObject, path: string[], parent: Flag, found: Field[]): void {
  for (const [name, value] of Object.entries(object(schema.properties))) {
    const own = object(value);
    const at = [...path, name];
    const flag = flagOf(own, parent);
    if (own.properties) collect(own, at, flag, found);
    else found.push(fieldOf(own, at, flag));
  }
}

function flagOf(schema: JsonObject, parent: Flag): Flag {
  const flag = object(schema['x-flag']);
  return {
    group: text(flag.group) ?? parent.group,
    rare: flag.rare === true || parent.rare,
    requires: text(flag.requires),
    conflicts: [...parent.conflicts, ...list(flag.conflicts).filter((one) => typeof one === 'string')],
  };
}

function fieldOf(schema: JsonObject, path: string[], flag: Flag): Field {
  const bound = (json: string, extension: string) => text(schema[json] ?? schema[extension]);
  return {
    path,
    key: path.join('.'),
    help: (text(schema.description) ?? '').split(/\s+/).join(' '),
    type: kindOf(schema),
    default: schema.default ?? null,
    unset: text(schema['x-unset']),
    range: { min: bound('minimum', 'x-min'), max: bound('maximum', 'x-max') },
    group: flag.group,
    isRare: flag.rare,
    requires: flag.requires,
    conflicts: flag.conflicts,
  };
}

function kindOf(schema: JsonObject): FieldKind {
  const choices = choicesOf(schema);
  if (choices.length > 0) return { kind: 'choice', choices };
  const types = typeof schema.type === 'string' ? [schema.type] : list(schema.type);
  if (types.includes('boolean')) return { kind: 'switch' };
  if (types.includes('array')) {
    const items = object(schema.items);
    return items.properties ? { kind: 'tables', fields: fieldsOf(items) } : { kind: 'texts' };
  }
  const isWhole = types.includes('integer');
  // A number that may also be a text is read by the server.
  if ((isWhole || types.includes('number')) && !types.includes('string')) return { kind: 'number', isWhole };
  return { kind: 'text', format: text(schema.format) };
}

/** The values of an enum: in `oneOf` with a description each, or in `enum`; of an optional one within `anyOf`. */
function choicesOf(schema: JsonObject): Choice[] {
  const plain = list(schema.enum).filter((one) => typeof one === 'string');
  const own = plain.map((name) => ({ name, help: '' }));
  const nested = [...list(schema.oneOf), ...list(schema.anyOf)].flatMap((one) => {
    const alternative = object(one);
    const name = text(alternative.const);
    if (name === null) return choicesOf(alternative);
    return [{ name, help: (text(alternative.description) ?? '').split(/\s+/).join(' ') }];
  });
  return [...own, ...nested];
}

export function object(value: Json | undefined): JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : {};
}

export function list(value: Json | undefined): Json[] {
  return Array.isArray(value) ? value : [];
}

function text(value: Json | undefined): string | null {
  if (typeof value === 'number') return String(value);
  return typeof value === 'string' ? value : null;
}

/** What a field shows while it has no value. */
export function placeholderOf(field: Field): string {
  if (field.unset !== null) return field.unset;
  if (typeof field.default === 'string' || typeof field.default === 'number') return String(field.default);
  return '';
}

/** The value of a text that a person typed; `undefined`: none. */
export function typedValue(field: Field, typed: string): Json | undefined {
  const trimmed = typed.trim();
  if (trimmed === '') return undefined;
  if (field.type.kind !== 'number') return typed;
  // The server explains what is wrong with anything else, as it does in a file.
  const isNumber = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(trimmed);
  return isNumber ? Number(trimmed) : trimmed;
}

/** The text that shows a value in a field. */
export function textOf(value: Json | undefined): string {
  if (value === null || value === undefined) return '';
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}
