// Plans that the pages start by themselves.

import type { JsonObject } from './types.ts';

/** A short transfer over loopback: throughput, then response times. */
export function firstPlan(words: { planName: string; throughput: string; response: string }): JsonObject {
  return {
    schema: 1,
    name: words.planName,
    workload: 'transfer',
    variant: [
      { name: words.throughput, transfer: { time: '5s' } },
      { name: words.response, transfer: { time: '5s', requests: { size: '1B' } } },
    ],
  };
}
