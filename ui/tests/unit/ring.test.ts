import assert from 'node:assert/strict';
import { test } from 'node:test';

import { SampleRing } from '../../src/lib/ring.ts';

test('an hour at 10 Hz stays within the capacity, and its mean is kept', () => {
  const ring = new SampleRing(1200);
  for (let at = 0; at < 36_000; at += 1) ring.add(at / 10, { a: at % 2 });
  assert.equal(ring.samples, 36_000);
  assert.ok(ring.points() <= 1200 && ring.points() >= 500, `${ring.points()} points`);
  const times = ring.timesS();
  assert.ok((times[0] ?? 99) < 10 && (times.at(-1) ?? 0) > 3590, 'the whole hour is visible');
  const values = ring.values('a').filter((value) => value !== null);
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  assert.ok(Math.abs(mean - 0.5) < 0.01, `mean ${mean}`);
});

test('a value that is missing is a gap and not zero', () => {
  const ring = new SampleRing(8);
  ring.add(0, { a: 1, b: 2 });
  ring.add(1, { a: 3 });
  ring.add(2, { a: 5, b: null });
  assert.deepEqual(ring.values('b'), [2, null, null]);
  assert.equal(ring.last('b'), null);
  assert.equal(ring.last('a'), 5);
  assert.deepEqual(ring.values('unknown'), []);
});

test('a gap ends the lines', () => {
  const ring = new SampleRing(8);
  ring.add(0, { a: 1 });
  ring.gap(1);
  ring.add(2, { a: 2 });
  assert.deepEqual(ring.values('a'), [1, null, 2]);
});

test('repeated events and nonsense change nothing, and series are bounded', () => {
  const ring = new SampleRing(8, 2);
  ring.add(5, { a: 1 });
  ring.add(4, { a: 9 });
  ring.add(Number.NaN, { a: 9 });
  assert.deepEqual(ring.values('a'), [1]);
  ring.add(6, { b: 1, c: 1, d: Number.POSITIVE_INFINITY });
  assert.deepEqual(ring.names(), ['a', 'b']);
});
