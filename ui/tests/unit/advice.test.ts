import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inFields } from '../../src/lib/advice.ts';

const names = {
  repeats: 'Repetitions',
  hosts: 'Hosts',
  terminal: (option: string) => `the terminal's option ${option}`,
};

test('options are named as the fields of the form', () => {
  for (const [advice, expected] of [
    ['add --repeat 5 before you compare', 'add “Repetitions” 5 before you compare'],
    ['use longer trials (--time, --search-time)', 'use longer trials (“time”, “search time”)'],
    ['measure from further hosts as well (--place)', 'measure from further hosts as well (“Hosts”)'],
    ['give it with --ceiling disk=1', "give it with the terminal's option --ceiling disk=1"],
    ['trust it with --ca FILE', "trust it with the terminal's option --ca FILE"],
    ['repeat on a quiet host', 'repeat on a quiet host'],
  ] as const)
    assert.equal(inFields(advice, names), expected);
});
