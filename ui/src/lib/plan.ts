// Plans as the form edits them: the keys of a plan's file as JSON. All functions return a changed copy.

import type { Json, JsonObject } from '../server/types.ts';
import { object } from './schema.ts';

export type Path = readonly (string | number)[];

export function emptyPlan(workload: string): JsonObject {
  return { schema: 1, name: workload, workload };
}

/** The value at `path`, or `undefined`. */
export function valueAt(value: Json | undefined, path: Path): Json | undefined {
  let at: Json | undefined = value;
  for (const key of path) {
    if (Array.isArray(at) && typeof key === 'number') at = at[key];
    else at = object(at)[key];
  }
  return at;
}

/** `value` with `changed` at `path`; `undefined` removes the key, and tables that are empty then. */
export function withValue(value: JsonObject, path: Path, changed: Json | undefined): JsonObject {
  return object(replaced(value, path, changed));
}

function replaced(value: Json | undefined, path: Path, changed: Json | undefined): Json | undefined {
  const [key, ...rest] = path;
  if (key === undefined) return changed;
  if (typeof key === 'number') {
    const items = Array.isArray(value) ? [...value] : [];
    const item = replaced(items[key], rest, changed);
    if (item === undefined) items.splice(key, 1);
    else items[key] = item;
    return items.length > 0 ? items : undefined;
  }
  const table = { ...object(value) };
  const below = replaced(table[key], rest, changed);
  if (below === undefined || (rest.length > 0 && isEmptyTable(below))) delete table[key];
  else table[key] = below;
  return table;
}

function isEmptyTable(value: Json): boolean {
  return (
    typeof value === 'object' && value !== null && !Array.isArray(value) && Object.keys(value).length === 0
  );
}

/** Keys whose values mean something for one workload only: objectives name its metrics, `qos` its programs. */
const OF_WORKLOAD: readonly string[] = ['variant', 'place', 'require', 'qos', 'tune'];

/**
 * The plan for another workload: what does not depend on the workload stays. `isOwn`: the person began with
 * nothing; of a plan that was made by others only the repetitions stay, as its name and lab would be wrong.
 */
export function withWorkload(plan: JsonObject, workload: string, isOwn = true): JsonObject {
  if (!isOwn) {
    const { repeats } = plan;
    return { ...emptyPlan(workload), ...(repeats === undefined ? {} : { repeats }) };
  }
  const old = plan.workload;
  const kept = Object.entries(plan).filter(([key]) => key !== old && !OF_WORKLOAD.includes(key));
  const name = plan.name === old ? workload : plan.name;
  return { ...Object.fromEntries(kept), name, workload };
}

/** A name for the next variant that no other has. */
export function nextVariantName(plan: JsonObject, word: string): string {
  const variants = Array.isArray(plan.variant) ? plan.variant : [];
  const names = new Set(variants.map((variant) => object(variant).name));
  let number = variants.length + 1;
  while (names.has(`${word} ${number}`)) number += 1;
  return `${word} ${number}`;
}

/** Paths and values of all leaves of a table: what a variant changes. */
export function leavesOf(table: JsonObject, path: readonly string[] = []): { path: string[]; value: Json }[] {
  return Object.entries(table).flatMap(([key, value]) => {
    const at = [...path, key];
    if (value === undefined) return [];
    const isTable = typeof value === 'object' && value !== null && !Array.isArray(value);
    return isTable ? leavesOf(value, at) : [{ path: at, value }];
  });
}
