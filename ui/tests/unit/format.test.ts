import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  clock,
  duration,
  moment,
  number,
  percentChange,
  quantity,
  unitOf,
  wordsOf,
} from '../../src/lib/format.ts';

test('numbers have three digits, and unknown is not zero', () => {
  const cases: [number | null, string][] = [
    [null, '–'],
    [Number.NaN, '–'],
    [0, '0'],
    [11.751, '11.8'],
    [69757.9, '69,758'],
    [-132.4, '−132'],
    [0.00012, '1.2e−4'],
  ];
  for (const [value, text] of cases) assert.equal(number(value), text);
});

test('quantities get a decimal prefix or a larger unit of time', () => {
  const cases: [number | null, string, string][] = [
    [38_472_667_007, 'bit/s', '38.5 Gbit/s'],
    [999_600, 'bit/s', '1 Mbit/s'],
    [25_769_803_776, 'B', '25.8 GB'],
    [11.751, 'us', '11.8 µs'],
    [500, 'ms', '500 ms'],
    [204, 's', '3 min 24 s'],
    [57.5, '%', '57.5 %'],
    [null, 'bit/s', '–'],
  ];
  for (const [value, unit, text] of cases) assert.equal(quantity(value, unit), text);
});

test('lengths of time are whole seconds', () => {
  assert.equal(duration(7.4), '7 s');
  assert.equal(duration(60), '1 min');
  assert.equal(duration(7500), '2 h 5 min');
  assert.equal(duration(null), '–');
  assert.equal(clock(3723), '1:02:03');
  assert.equal(clock(7), '0:07');
});

test('names of metrics are read as words and a unit', () => {
  assert.equal(unitOf('goodput_up_bit_per_s'), 'bit/s');
  assert.equal(unitOf('events'), '');
  assert.equal(wordsOf('server_cpu_percent'), 'server CPU');
  assert.equal(wordsOf('response_p99_ms'), 'response 99 %');
});

test('changes have a sign, and times without a date are unknown', () => {
  assert.equal(percentChange(25), '+25 %');
  assert.equal(percentChange(-3.21), '−3.21 %');
  assert.equal(percentChange(null), '–');
  assert.equal(moment('nonsense'), '–');
  assert.equal(moment(null), '–');
});
