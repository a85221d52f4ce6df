// Plans that the pages start by themselves.

import type { JsonObject } from '../server/types.ts';

/** A short transfer over loopback. */
export function firstPlan(name: string): JsonObject {
  return { schema: 1, name, workload: 'transfer', transfer: { time: '5s' } };
}
