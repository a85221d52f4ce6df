import assert from 'node:assert/strict';
import { test } from 'node:test';

import { variantsOf } from '../../src/pages/tune/auto.tsx';
import { candidateProblems, isAllowed, settingOf } from '../../src/pages/tune/values.ts';
import type { Setting } from '../../src/server/types.ts';

const setting = (name: string, range: string) => ({ name, range, scope: 'namespace' }) as Setting;
const SWITCH = '0 (off) or 1 (on)';
const THREE = 'three rising numbers from 1 to 2147483647 bytes';
const SETTINGS = [
  setting('net.ipv4.tcp_sack', SWITCH),
  setting('net.ipv4.tcp_wmem', THREE),
  setting('net.core.somaxconn', '1 to 65535 connections'),
];

test('a value is judged by the range that the server describes', () => {
  const judged: [string, string, boolean | null][] = [
    [SWITCH, ' 1 ', true],
    [SWITCH, '7', false],
    [SWITCH, '', false],
    [SWITCH, '1 1', false],
    ['-31 to 31', '-31', true],
    ['-31 to 31', '32', false],
    ['-31 to 31', '1.5', false],
    ['1 to 65535 connections', '4KiB', false],
    ['0 to 4294967295 bytes', '128KiB', null],
    ['0 to 4294967295 bytes', 'many', false],
    [THREE, '4096 16384 4194304', true],
    [THREE, '4096,16384,4194304', true],
    [THREE, '4096 16384 8192', false],
    [THREE, '4096 16384', false],
    [THREE, '4096 16384 4MiB', null],
    ['one of reno, bbr', 'bbr', true],
    // It may be a module that is not loaded.
    ['one of reno, bbr', 'cubic', null],
    ['one of reno, bbr', '', false],
    ['a queueing discipline, such as fq', 'fq', null],
  ];
  for (const [range, value, expected] of judged) {
    assert.equal(isAllowed(range, value), expected, `${range}: ${value}`);
  }
});

test('a setting is found by each way to write its name', () => {
  for (const name of ['tcp_sack', 'net.ipv4.tcp_sack', 'net/ipv4/tcp_sack', ' TCP_SACK ']) {
    assert.equal(settingOf(SETTINGS, name)?.name, 'net.ipv4.tcp_sack', name);
  }
  assert.equal(settingOf(SETTINGS, 'tcp_sacks'), null);
});

test('candidates that cannot be tried are found while they are typed', () => {
  const text = 'tcp_sack=0;somaxconn=9\n\ntcp_sack=1; tcp_sak=1\ntcp_wmem=1 2\nsomaxconn\nsomaxconn=100';
  assert.deepEqual(
    candidateProblems(text, SETTINGS).map((one) => [one.line, one.name, one.setting?.name ?? null]),
    [
      ['tcp_sak=1', 'tcp_sak', null],
      ['tcp_wmem=1 2', 'tcp_wmem', 'net.ipv4.tcp_wmem'],
      ['somaxconn', null, null],
    ],
  );
});

test('the variants of a plan are counted in its text', () => {
  assert.equal(variantsOf('workload = "transfer"\n# [[variant]]\n'), 1);
  assert.equal(variantsOf('[[variant]]\nname = "a"\n\n  [[ variant ]]\nname = "b"\n'), 2);
});
