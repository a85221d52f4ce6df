import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fieldsOf, placeholderOf, typedValue } from '../../src/lib/schema.ts';
import { groupsOf, matching } from '../../src/pages/new-run/settings.tsx';
import { firstValue } from '../../src/pages/new-run/variants.tsx';

/** As `kagiri plan schema` prints it. */
const SCHEMA = {
  properties: {
    clients: { type: 'integer', minimum: 1, maximum: 100000, default: 1, description: 'Number of\nclients.' },
    loop: {
      anyOf: [
        {
          oneOf: [
            { type: 'string', const: 'open', description: 'At its moments.' },
            { type: 'string', const: 'closed' },
          ],
        },
        { type: 'null' },
      ],
      default: null,
      'x-unset': 'open with --rate, else closed',
    },
    size: { type: ['string', 'null'], format: 'byte-size', 'x-min': '1KiB', 'x-max': '1GiB' },
    nagle: { type: 'boolean', default: false, 'x-flag': { group: 'Connections', rare: true } },
    http: {
      'x-flag': { group: 'HTTP' },
      properties: { headers: { type: 'array', items: { type: 'string' } } },
    },
    class: { type: 'array', items: { type: 'object', properties: { name: { type: 'string' } } } },
  },
};

test('a schema becomes fields of the right kind', () => {
  const fields = fieldsOf(SCHEMA);
  assert.deepEqual(
    fields.map((field) => [field.key, field.type.kind]),
    [
      ['clients', 'number'],
      ['loop', 'choice'],
      ['size', 'text'],
      ['nagle', 'switch'],
      ['http.headers', 'texts'],
      ['class', 'tables'],
    ],
  );
  const [clients, loop, size, nagle, headers] = fields;
  assert.equal(clients?.help, 'Number of clients.');
  assert.deepEqual(clients?.range, { min: '1', max: '100000' });
  assert.deepEqual(loop?.type.kind === 'choice' && loop.type.choices.map((choice) => choice.name), [
    'open',
    'closed',
  ]);
  assert.deepEqual(size?.range, { min: '1KiB', max: '1GiB' });
  assert.equal(nagle?.isRare, true);
  // A key of a table has the group of its table.
  assert.equal(headers?.group, 'HTTP');
});

test('a field without a value shows what is done then', () => {
  const [clients, loop] = fieldsOf(SCHEMA);
  assert.equal(clients && placeholderOf(clients), '1');
  assert.equal(loop && placeholderOf(loop), 'open with --rate, else closed');
});

test('typed numbers are numbers, and anything else is left to the server', () => {
  const [clients, , size] = fieldsOf(SCHEMA);
  assert.ok(clients && size);
  assert.equal(typedValue(clients, ' 17 '), 17);
  assert.equal(typedValue(clients, '1e3'), 1000);
  assert.equal(typedValue(clients, 'many'), 'many');
  assert.equal(typedValue(clients, '0x10'), '0x10');
  assert.equal(typedValue(clients, '  '), undefined);
  assert.equal(typedValue(size, '250kB'), '250kB');
});

test('fields are grouped and found by all words', () => {
  const fields = fieldsOf(SCHEMA);
  assert.deepEqual(
    groupsOf(fields).map((group) => [group.name, group.fields.length]),
    [
      [null, 4],
      ['Connections', 1],
      ['HTTP', 1],
    ],
  );
  assert.deepEqual(
    matching(fields, 'NUMBER client').map((field) => field.key),
    ['clients'],
  );
});

test('what a variant changes begins with another value than the default', () => {
  const [clients, loop, , nagle] = fieldsOf(SCHEMA);
  assert.ok(clients && loop && nagle);
  assert.equal(firstValue(nagle), true);
  assert.equal(firstValue(loop), 'open');
  assert.equal(firstValue(clients), 1);
});
