import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  emptyPlan,
  errorsByField,
  leavesOf,
  nextVariantName,
  valueAt,
  withValue,
  withWorkload,
} from '../../src/lib/plan.ts';

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

test('errors go to their fields, and those of no field are not lost', () => {
  const errors = [
    { message: 'a', field: 'transfer.time', line: null },
    { message: 'b', field: 'unknown.key', line: 3 },
    { message: 'c', field: null, line: null },
  ];
  const found = errorsByField(errors, new Set(['transfer.time']));
  assert.deepEqual(
    found.get('transfer.time')?.map((error) => error.message),
    ['a'],
  );
  assert.deepEqual(
    found.get(null)?.map((error) => error.message),
    ['b', 'c'],
  );
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
