import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  emptyPlan,
  leavesOf,
  nextVariantName,
  valueAt,
  withValue,
  withWorkload,
} from '../../src/lib/plan.ts';
import { type KeptPlan, planFor } from '../../src/pages/new-run/origin.ts';

test('a value is set and removed, and tables that are empty then disappear', () => {
  const plan = withValue(emptyPlan('transfer'), ['transfer', 'requests', 'size'], '1B');
  assert.equal(valueAt(plan, ['transfer', 'requests', 'size']), '1B');
  assert.deepEqual(withValue(plan, ['transfer', 'requests', 'size'], undefined), emptyPlan('transfer'));
});

test('the plan before a change stays as it was', () => {
  const plan = { a: { b: 1 } };
  withValue(plan, ['a', 'b'], 2);
  assert.deepEqual(plan, { a: { b: 1 } });
});

test('items of lists are replaced, added and removed', () => {
  const one = withValue({}, ['require', 0], 'capacity>=4');
  assert.deepEqual(one, { require: ['capacity>=4'] });
  const two = withValue(one, ['require', 1], 'stalls==0');
  assert.deepEqual(withValue(two, ['require', 0], undefined), { require: ['stalls==0'] });
  assert.deepEqual(withValue(one, ['require', 0], undefined), {});
});

test('another workload keeps what does not depend on it', () => {
  const plan = {
    schema: 1,
    name: 'transfer',
    workload: 'transfer',
    transfer: { time: '5s' },
    repeats: 5,
    place: { server: 'a' },
  };
  assert.deepEqual(withWorkload(plan, 'stream'), {
    schema: 1,
    name: 'stream',
    workload: 'stream',
    repeats: 5,
  });
});

test('of a plan that others made, only the repetitions stay for another workload', () => {
  const ready = { schema: 1, name: 'Robots', workload: 'exchange', lab: 'labs/robots.toml', repeats: 3 };
  assert.deepEqual(withWorkload({ ...ready, variant: [{ name: 'a' }] }, 'stream', false), {
    ...emptyPlan('stream'),
    repeats: 3,
  });
  assert.equal(withWorkload(ready, 'stream').lab, 'labs/robots.toml');
  assert.equal(withWorkload({ ...ready, require: ['messages>=1'] }, 'stream').require, undefined);
});

test('going back to a workload restores its plan and where it came from', () => {
  const ready: KeptPlan = {
    plan: { schema: 1, name: 'Robots', workload: 'exchange', variant: [{ name: 'a' }] },
    origin: { kind: 'ready', name: 'exchange-cliff' },
  };
  const other = planFor('stream', ready, new Map());
  assert.deepEqual(other, { plan: emptyPlan('stream'), origin: { kind: 'own' } });
  assert.equal(planFor('exchange', other, new Map([['exchange', ready]])), ready);
});

test('a new variant gets a name that no other has', () => {
  assert.equal(nextVariantName({}, 'variant'), 'variant 1');
  assert.equal(nextVariantName({ variant: [{ name: 'variant 2' }] }, 'variant'), 'variant 3');
});

test('leaves of a table are its keys with values', () => {
  assert.deepEqual(leavesOf({ a: { b: 1 }, c: [1] }), [
    { path: ['a', 'b'], value: 1 },
    { path: ['c'], value: [1] },
  ]);
});
