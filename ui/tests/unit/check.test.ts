import assert from 'node:assert/strict';
import { test } from 'node:test';

import { en } from '../../src/i18n/en/index.ts';
import { ja } from '../../src/i18n/ja/index.ts';
import { otherErrors, problemsOf } from '../../src/lib/check.ts';
import { editsBetween, nearest } from '../../src/lib/near.ts';
import { correctionsOf, knownKeys } from '../../src/pages/new-run/errors.ts';
import type { JsonObject, Metric, Workload } from '../../src/server/types.ts';

const metric = (name: string) => ({ name, unit: '', better: 'lower', help: '' }) as Metric;

const WORKLOAD: Workload = {
  name: 'exchange',
  summary: null,
  load_unit: 'clients',
  metrics: [metric('response_p50_ms'), metric('response_p99_ms'), metric('messages')],
  objectives: ['capacity', 'response_p50_ms', 'response_p99_ms'],
  roles: [{ name: 'server', many: false, meaning: '' }],
  schema: {
    properties: {
      clients: { type: 'integer', minimum: 1, maximum: 100000, default: 1 },
      rate_per_s: { type: ['number', 'null'], minimum: 0.001, maximum: 1000000.0 },
      time: { type: 'string', format: 'span' },
      reply_size: { type: 'string', format: 'byte-size' },
      link: { type: ['string', 'null'], format: 'bit-rate' },
      size: { type: ['string', 'null'] },
      class: {
        type: 'array',
        items: { type: 'object', properties: { clients: { type: 'integer', minimum: 1 } } },
      },
    },
  },
};

const plan = (more: JsonObject): JsonObject => ({ schema: 1, name: 'a', workload: 'exchange', ...more });
const fieldsIn = (more: JsonObject) => problemsOf(plan(more), WORKLOAD).map((problem) => problem.field);

test('everything that the form can judge is found at once, with its place', () => {
  const problems = problemsOf(
    plan({
      repeats: 'abc',
      exchange: { clients: 1.5, rate_per_s: 0, time: '5', class: [{ clients: 2 }, { clients: 0 }] },
      require: ['capacity>=4', 'respons_p99_ms<=5ms', 'capacity'],
      variant: [{ name: 'many', exchange: { clients: 'lots' } }],
    }),
    WORKLOAD,
  );
  assert.deepEqual(
    problems.map((problem) => [problem.field, problem.label, problem.wrong.kind]),
    [
      ['repeats', '', 'whole'],
      ['exchange.clients', 'clients', 'whole'],
      ['exchange.rate_per_s', 'rate_per_s', 'number'],
      ['exchange.time', 'time', 'time'],
      ['exchange.class[1].clients', 'class 2: clients', 'whole'],
      ['require[1]', '', 'metric'],
      ['require[2]', '', 'relation'],
      ['variant[0].exchange.clients', 'many: clients', 'whole'],
    ],
  );
});

test('what the server accepts is not called wrong', () => {
  const right: JsonObject[] = [
    { repeats: 1 },
    { repeats: 1000 },
    { exchange: { clients: 100000, rate_per_s: 0.001, size: 'uniform 1kB..250kB' } },
    { exchange: { rate_per_s: null } },
    ...['0', '500ms', '10 s', '1.5min', '1_000us', '2h', '3µs'].map((time) => ({ exchange: { time } })),
    ...['24B', '250kB', '128KiB', '1 GiB'].map((size) => ({ exchange: { reply_size: size } })),
    ...['25Mbit/s', '25mbit/s', '1.5 Gbps', '100MB/s', '5MiB/s'].map((link) => ({ exchange: { link } })),
    ...['capacity>=4', ' messages == 0', 'response_p99_ms<5ms'].map((text) => ({ require: [text] })),
  ];
  for (const one of right) assert.deepEqual(fieldsIn(one), [], JSON.stringify(one));
  for (const time of ['abc', '5', '-5s', '5 parsecs', '']) {
    assert.deepEqual(fieldsIn({ exchange: { time } }), ['exchange.time'], time);
  }
  for (const repeats of [0, 1001, 2.5, '3']) assert.deepEqual(fieldsIn({ repeats }), ['repeats']);
});

test('an unknown quantity is answered with the nearest few', () => {
  assert.equal(editsBetween('kitten', 'sitting'), 3);
  assert.deepEqual(nearest('respons_p99_ms', WORKLOAD.objectives, 2), ['response_p99_ms', 'response_p50_ms']);
  assert.deepEqual(nearest('p50', WORKLOAD.objectives, 1), ['response_p50_ms']);
});

test('corrections are in words of the form, and each is said once', () => {
  const problems = problemsOf(plan({ repeats: 'abc', require: ['foo>=3'] }), WORKLOAD);
  const errors = [
    { message: 'repeats: invalid type: string "abc", expected u32', field: 'repeats', line: 4 },
    { message: "the requirement 'foo>=3' cannot be checked: there is no metric", field: null, line: null },
    { message: 'exchange.size: 5 is not a size', field: 'exchange.size', line: 7 },
    { message: 'unknown key', field: 'exchange.sizes', line: 8 },
  ];
  const corrections = correctionsOf(problems, errors, knownKeys(WORKLOAD), en);
  assert.deepEqual(
    corrections.map((one) => [one.field, one.label, one.message]),
    [
      ['repeats', 'Repetitions', 'a whole number, 1 to 1000'],
      [
        'require[0]',
        'Objectives',
        'there is no quantity foo; the nearest are capacity, response_p50_ms, response_p99_ms',
      ],
      ['exchange.size', 'size', '5 is not a size'],
      [null, '', 'unknown key'],
    ],
  );
  assert.match(correctionsOf(problems, [], knownKeys(WORKLOAD), ja)[0]?.message ?? '', /整数.*1 〜 1000/);
});

test('errors go to their fields, and those of no field are not lost', () => {
  const errors = [
    { message: 'a', field: 'exchange.time', line: null },
    { message: 'b', field: 'unknown.key', line: 3 },
    { message: 'c', field: null, line: null },
    { message: 'd', field: 'exchange.class[3].clients', line: null },
  ];
  const found = correctionsOf([], errors, knownKeys(WORKLOAD), en);
  assert.deepEqual(
    found.map((one) => [one.field, one.message]),
    [
      ['exchange.time', 'a'],
      [null, 'b'],
      [null, 'c'],
      ['exchange.class[3].clients', 'd'],
    ],
  );
});

test('what the server says of a setting that one variant has is shown there', () => {
  const errors = [{ message: 'exchange.size: no such file', field: 'exchange.size', line: 9 }];
  const of = (more: JsonObject) => correctionsOf([], errors, knownKeys(WORKLOAD), en, plan(more))[0];
  const variant = [{ name: 'a' }, { name: 'b', exchange: { size: 'file x' } }];
  const found = of({ variant });
  assert.deepEqual([found?.field, found?.label], ['variant[1].exchange.size', 'b: size']);
  assert.equal(found?.message, 'no such file');
  assert.equal(of({ variant, exchange: { size: 'file y' } })?.field, 'exchange.size');
  assert.equal(of({ variant: [...variant, ...variant] })?.field, 'exchange.size');
});

test('types of Rust are said in words', () => {
  const words = { whole: 'a whole number', any: 'a number' };
  const said = (message: string) => otherErrors([{ message, field: null, line: 1 }], [], words)[0]?.message;
  assert.equal(said('seed: invalid type: string "x", expected u64'), 'seed: a whole number');
  assert.equal(said('k: invalid type: string "x", expected f64'), 'k: a number');
  assert.equal(said('k: invalid value: integer `-1`, expected u32'), 'k: a whole number');
  assert.equal(said('k: 5 is too large'), 'k: 5 is too large');
});

test('an error of a variant is not said again for the plan', () => {
  const problems = problemsOf(plan({ variant: [{ name: 'v', exchange: { clients: 'q' } }] }), WORKLOAD);
  const errors = [{ message: 'exchange.clients: no', field: 'exchange.clients', line: 9 }];
  assert.deepEqual(otherErrors(errors, problems, { whole: '', any: '' }), []);
});
