import assert from 'node:assert/strict';
import { test } from 'node:test';

import { en } from '../../src/i18n/en/index.ts';
import { preferred } from '../../src/i18n/index.ts';
import { ja } from '../../src/i18n/ja/index.ts';
import { routeOf } from '../../src/lib/router.ts';
import { isMeasured, namesOf, unitIn } from '../../src/pages/compare.tsx';
import { chartsOf, groupOf, LiveModel } from '../../src/pages/live/model.ts';
import { correctionOf, cpuUsers, hasMeasured, isBrokenOff } from '../../src/pages/live/outcome.tsx';
import { planOptions } from '../../src/pages/new-run/start-from.tsx';
import { sumOf } from '../../src/pages/qos/in-force.tsx';
import { changesOf } from '../../src/pages/run.tsx';
import { byAge } from '../../src/pages/runs.tsx';
import { isChanged } from '../../src/pages/tune/setting-table.tsx';
import { inGroups } from '../../src/parts/field.tsx';
import { positionsOf } from '../../src/parts/intervals.tsx';
import { overall } from '../../src/parts/progress.tsx';
import { markedPage } from '../../src/parts/shell.tsx';
import { isNotStored, withJob } from '../../src/server/jobs.ts';
import { tokenOf } from '../../src/server/session.ts';
import type { Job, QosSocket, ReadyPlan } from '../../src/server/types.ts';

test('addresses name pages', () => {
  assert.deepEqual(routeOf('/', ''), { page: 'home' });
  assert.deepEqual(routeOf('/live/j%201', ''), { page: 'live', job: 'j 1' });
  assert.deepEqual(routeOf('/compare', '?ids=a,b,'), { page: 'compare', runs: ['a', 'b'] });
  assert.deepEqual(routeOf('/runs/20261127-211205-fhn9', ''), { page: 'run', run: '20261127-211205-fhn9' });
  for (const wrong of ['/nonsense', '/runs/a/b', '/live', '/hosts/x']) {
    assert.equal(routeOf(wrong, '').page, 'unknown', wrong);
  }
  assert.equal(routeOf('/runs/%E0%A4%A', '').page, 'run');
});

test('a token is found in an address and in a pasted text', () => {
  assert.equal(tokenOf('http://127.0.0.1:7890/#token=abc-123_~x'), 'abc-123_~x');
  assert.equal(tokenOf(' abcdefgh12 \n'), 'abcdefgh12');
  assert.equal(tokenOf('http://127.0.0.1:7890/'), null);
  assert.equal(tokenOf(''), null);
  assert.equal(tokenOf('#token=%'), '%');
});

test('the language is the chosen one, else the first that the browser prefers', () => {
  assert.equal(preferred('en', ['ja']), 'en');
  assert.equal(preferred(null, ['fr', 'ja-JP', 'en']), 'ja');
  assert.equal(preferred('nonsense', ['de']), 'en');
});

test('both languages have every word', () => {
  const keysOf = (value: unknown, at = ''): string[] =>
    typeof value === 'object' && value !== null
      ? Object.entries(value).flatMap(([key, inner]) => keysOf(inner, `${at}.${key}`))
      : [at];
  assert.deepEqual(keysOf(ja), keysOf(en));
});

const job = (id: string, created: string, state: Job['state'] = 'queued') => ({ id, created, state }) as Job;

test('a newer state replaces a job', () => {
  const all = withJob([job('a', '1'), job('b', '2')], job('a', '1', 'running'));
  assert.deepEqual(
    all.map((one) => [one.id, one.state]),
    [
      ['b', 'queued'],
      ['a', 'running'],
    ],
  );
});

test('only a run with trials that is not complete can be continued', () => {
  const ended = (state: Job['state'], kind: Job['kind'] = 'run') => ({ state, kind }) as Job;
  const model = (trials: number, end: string | null) =>
    ({
      trials: new Array(trials).fill({}),
      end: end && { state: end },
    }) as Pick<LiveModel, 'end' | 'trials'>;
  assert.ok(isBrokenOff(ended('interrupted'), model(1, 'interrupted')));
  assert.ok(isBrokenOff(ended('failed'), model(1, null)), 'its process was killed');
  assert.ok(!isBrokenOff(ended('failed'), model(0, null)), 'nothing was measured');
  assert.ok(!isBrokenOff(ended('failed'), model(2, 'complete')), 'all trials are invalid');
  assert.ok(!isBrokenOff(ended('ended'), model(2, 'complete')));
  assert.ok(!isBrokenOff(ended('interrupted', 'tune'), model(2, null)), 'trials of settings');
});

test('live values are drawn by kind and unit', () => {
  assert.equal(groupOf('server_cpu_percent'), 'cpu');
  assert.equal(groupOf('disk_write_bit_per_s'), 'disk');
  assert.equal(groupOf('response_p99_ms'), 'response');
  assert.equal(groupOf('goodput_up_bit_per_s'), 'rate');
  assert.equal(groupOf('page_cache_bytes'), 'caches');
  const charts = chartsOf(['disk_busy_percent', 'load', 'disk_bit_per_s', 'passed_up_bytes'], 'flows');
  assert.deepEqual(
    charts.map((chart) => `${chart.group} ${chart.unit}`),
    ['load flows', 'disk %', 'disk bit/s'],
  );
});

test('the model of a job is bounded and can restart', () => {
  const model = new LiveModel();
  model.apply('job', job('a', '1', 'running'));
  model.apply('trial_began', { variant: 'v', load: 2, phase: 'search', elapsed_s: 0, left_s: 9 });
  for (let at = 1; at <= 36_000; at += 1) {
    model.apply('progress', { done: 0.5, live: { a: 1 }, elapsed_s: at / 10, left_s: 5 });
  }
  for (let number = 1; number <= 1000; number += 1) model.apply('trial', { trial: { number } });
  assert.ok(model.ring.points() <= 1200 && model.trials.length <= 200 && model.trialCount === 1000);
  assert.equal(model.trials[0]?.number, 1000);
  assert.equal(model.current()?.left_s, 5);
  model.restart();
  assert.equal(model.ring.points(), 0);
  assert.equal(model.trialCount, 0);
  assert.equal(model.job?.id, 'a');
});

test('each run of trials of settings has its own clock and numbers', () => {
  const model = new LiveModel();
  model.apply('job', { ...job('a', '1', 'running'), kind: 'tune', elapsed_s: 99, left_s: null, done: null });
  for (const length of [30, 3]) {
    model.apply('run', { run: 'r', unit: 'flows' });
    model.apply('trial_began', { variant: 'v', load: 2, phase: 'search', elapsed_s: 0, left_s: 9 });
    for (let at = 1; at <= length; at += 1) {
      model.apply('progress', { done: 0.5, live: { a: 1 }, elapsed_s: at, left_s: 1 });
    }
    model.apply('trial', { trial: { number: 1 } });
  }
  assert.equal(model.ring.samples, 3);
  assert.equal(new Set(model.trials.map((trial) => `${trial.run} ${trial.number}`)).size, 2);
  const { elapsed_s, left_s, done } = model.current() ?? {};
  assert.deepEqual([elapsed_s, left_s, done], [99, null, null]);
});

test('the share of a trial is not that of the whole run', () => {
  const model = new LiveModel();
  model.apply('job', { ...job('a', '1', 'running'), kind: 'run', elapsed_s: null, left_s: null, done: null });
  model.apply('progress', { done: 0.9, live: {}, elapsed_s: 3, left_s: null });
  const current = model.current();
  assert.ok(current && overall(current) === null);
});

test('only what a person changed of tags and note is saved', () => {
  const loaded = { tags: ['a', 'b'], note: 'old' };
  assert.deepEqual(changesOf(loaded, { tags: ['a', 'b', 'c'], note: 'old' }), { tags: ['a', 'b', 'c'] });
  assert.deepEqual(changesOf(loaded, { tags: ['a', 'b'], note: '' }), { note: '' });
  assert.deepEqual(changesOf(loaded, { tags: [], note: 'new' }), { tags: [], note: 'new' });
  assert.deepEqual(changesOf(loaded, loaded), {});
});

test('the rate of a class is unknown if that of a socket is', () => {
  const socket = (rate: number | null) => ({ asked_bit_per_s: rate }) as QosSocket;
  assert.equal(sumOf([socket(1), socket(2)], 'asked_bit_per_s'), 3);
  assert.equal(sumOf([socket(1), socket(null)], 'asked_bit_per_s'), null);
  assert.equal(sumOf([], 'asked_bit_per_s'), null);
});

test('a setting differs only from a default that is a value', () => {
  assert.equal(isChanged('bbr', 'cubic'), true);
  assert.equal(isChanged('4096\t16384 4194304', '4096 16384 4194304'), false);
  assert.equal(isChanged('4096', "64 KiB by the host's memory"), false);
  assert.equal(isChanged(null, '1'), false);
});

test('intervals of a row have one scale', () => {
  const [a, b, c] = positionsOf([{ value: 4, interval: [4, 5] }, { value: 6, interval: null }, null]);
  assert.ok(a && b && a.low < a.high && a.high < b.value && b.low === b.high);
  assert.equal(c, null);
  assert.equal(positionsOf([{ value: 1, interval: null }])[0]?.value, 80);
});

test('runs of one name are told apart by their ids', () => {
  const ids = ['r1', 'r2', 'r3'];
  assert.deepEqual(namesOf({ ids, names: ['a', 'b', 'a'] }), ['a (r1)', 'b', 'a (r3)']);
});

test('the older run is the baseline, in whatever order runs were ticked', () => {
  const [old, young] = ['20261128-123729-g66u', '20261128-123733-aaaa'];
  assert.deepEqual(byAge(new Set([young, old])), [old, young]);
});

test('a row without any value is left out, and values of the host have the unit of their name', () => {
  const value = (number: number | null) => ({ value: number, interval: null, n: 0 });
  assert.equal(isMeasured({ values: [value(null), null] }), false);
  assert.equal(isMeasured({ values: [null, value(0)] }), true);
  assert.equal(unitIn({ unit: '', metric: 'page_cache_bytes' }), 'B');
  assert.equal(unitIn({ unit: '', metric: 'steal_percent' }), '%');
  assert.equal(unitIn({ unit: 'flows', metric: 'capacity' }), 'flows');
  assert.equal(unitIn({ unit: '', metric: 'datagrams_sent' }), '');
});

test('a run that failed before its first trial has measured nothing', () => {
  const end = (value: number | null) =>
    ({ variants: [{ name: 'default', capacity: { value, unit: '', interval: [null, null] } }] }) as never;
  assert.equal(hasMeasured({ trialCount: 0, end: null }), false);
  assert.equal(hasMeasured({ trialCount: 0, end: end(null) }), false);
  assert.equal(hasMeasured({ trialCount: 0, end: end(0) }), true);
  assert.equal(hasMeasured({ trialCount: 1, end: null }), true);
});

test('a limit by the CPU says what other programs used of it', () => {
  const limit = (resource: string, ...values: Record<string, number>[]) => ({
    resource,
    certainty: 'confirmed',
    evidence: values.map((one) => ({ statement: 'x', inferred: false, values: one })),
  });
  const users: Record<string, number>[] = [{ used_percent: 99 }, { other_cpu_percent: 85.2 }];
  assert.equal(cpuUsers(limit('cpu', ...users), en.live), ', of which other programs used 85.2 % of a core');
  assert.equal(
    cpuUsers(limit('cpu', { steal_percent: 20 }, { other_cpu_percent: 120 }), ja.live),
    '（うち他のプログラムが 1 コアの 120 %、ハイパーバイザーが 1 コアの 20 % を使用）',
  );
  assert.equal(cpuUsers(limit('disk', ...users), en.live), '');
  assert.equal(cpuUsers(limit('cpu', { used_percent: 99 }), en.live), '');
});

test('a job that failed without a stored run leads back to what was asked for', () => {
  assert.equal(isNotStored({ state: 'failed', run: null }), true);
  assert.equal(isNotStored({ state: 'failed', run: 'r1' }), false);
  assert.equal(isNotStored({ state: 'queued', run: null }), false);
  assert.equal(correctionOf({ id: 'j1', kind: 'run' }), '/new?job=j1');
  assert.equal(correctionOf({ id: 'j1', kind: 'tune' }), '/tune?job=j1');
});

test('pages below another mark it in the menu', () => {
  assert.equal(markedPage(routeOf('/live/j1', '')), 'runs');
  assert.equal(markedPage(routeOf('/compare', '?ids=a,b')), 'runs');
  assert.equal(markedPage(routeOf('/new', '')), 'new');
});

test('ready plans are listed by workload, with their time and what they need', () => {
  const ready = (name: string, workload: string, needs_root: boolean, cost_short: string | null) =>
    ({ name, workload, needs_root, title: '', cost_short }) as ReadyPlan;
  const plans = [
    ready('a', 'daq', true, '4 min'),
    ready('b', 'transfer', false, '35 s'),
    ready('c', 'daq', false, null),
  ];
  const options = planOptions(plans, [{ name: 'transfer' }, { name: 'daq' }], en.newRun);
  assert.deepEqual(
    inGroups([{ value: '', text: 'none' }, ...options]).map(({ group, members }) => [
      group,
      ...members.map((one) => one.text),
    ]),
    [
      [undefined, 'none'],
      ['transfer', 'b (about 35 s)'],
      ['daq', 'a (about 4 min, needs root)', 'c (not known beforehand)'],
    ],
  );
});
