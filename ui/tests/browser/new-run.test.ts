import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Page } from 'playwright-core';

import { browser, openPage, server, useConsole } from './harness.ts';

useConsole();

const openForm = async (options = {}) => {
  const { page, problems } = await openPage(browser, server.address, options);
  await page.goto(`${server.origin}/new`);
  await page.getByText('The plan is valid').waitFor();
  return { page, problems };
};

const focusedField = (page: Page) =>
  page.evaluate(() => document.activeElement?.closest('[data-field]')?.getAttribute('data-field') ?? null);

test('another workload takes a ready plan away as a whole, and gives it back', async () => {
  const { page, problems } = await openForm();
  const ready = page.getByLabel('A ready plan');
  const workload = page.getByLabel('What to measure');
  await ready.selectOption('exchange-cliff');
  await page.waitForFunction(() => document.querySelectorAll('fieldset.card').length > 1);
  const name = await page.getByLabel('Name of the run').inputValue();
  const variants = await page.locator('fieldset.card').count();

  await workload.selectOption('stream');
  await page.getByText('The plan for exchange is kept').waitFor();
  assert.equal(await ready.inputValue(), '');
  assert.equal(await page.getByLabel('Name of the run').inputValue(), 'stream');
  assert.equal(await page.getByLabel('Lab', { exact: true }).inputValue(), '');
  assert.equal(await page.locator('.about').count(), 0);
  assert.equal(await page.locator('fieldset.card').count(), 0);

  await workload.selectOption('exchange');
  assert.equal(await ready.inputValue(), 'exchange-cliff');
  assert.equal(await page.getByLabel('Name of the run').inputValue(), name);
  assert.equal(await page.locator('fieldset.card').count(), variants);
  assert.match(await page.getByLabel('Lab', { exact: true }).inputValue(), /robots/);
  await page.locator('.about').waitFor();
  assert.deepEqual(problems, []);
  await page.context().close();
});

test('all errors are listed, and each shows its field, also one that is folded away or not found', async () => {
  const { page, problems } = await openForm({ viewport: { width: 1200, height: 700 } });
  await page.getByLabel('Repetitions').fill('abc');
  await page.getByLabel('flows', { exact: true }).fill('0');
  await page.getByLabel('time', { exact: true }).fill('soon');
  await page.getByText('Objectives', { exact: true }).first().click();
  await page.getByPlaceholder('capacity>=4').fill('goodput>=3');
  const panel = page.locator('.check-panel');
  await panel.getByText('4 things to correct').waitFor();
  assert.match((await panel.textContent()) ?? '', /Repetitions: a whole number, 1 to 1000/);
  // Also after the server has answered, each is said once.
  await page.waitForTimeout(1000);
  await panel.getByText('4 things to correct').waitFor();
  assert.ok((await panel.textContent())?.includes('the nearest are goodput_bit_per_s'));
  assert.ok(!(await panel.textContent())?.includes('u32'));

  const start = page.getByRole('button', { name: 'Start the run' });
  assert.ok(await start.isDisabled());
  const box = await start.boundingBox();
  assert.ok(box && box.y + box.height <= 700, 'the button is in view');

  await page.getByLabel('Find a setting').fill('nothing has these words');
  await panel.getByRole('button', { name: /^flows:/ }).click();
  assert.equal(await focusedField(page), 'transfer.flows');
  assert.equal(await page.getByLabel('Find a setting').inputValue(), '');
  const flows = page.getByLabel('flows', { exact: true });
  assert.equal(await flows.getAttribute('aria-invalid'), 'true');

  await page.getByRole('tab', { name: 'TOML' }).click();
  await panel.getByRole('button', { name: /^Objectives:/ }).click();
  assert.equal(await focusedField(page), 'require[0]');

  await page.getByLabel('Repetitions').fill('2');
  await flows.fill('1');
  await page.getByLabel('time', { exact: true }).fill('1s');
  await page.getByLabel('Objectives', { exact: true }).first().fill('goodput_bit_per_s>=1Mbit/s');
  await page.getByText('The plan is valid').waitFor();
  assert.deepEqual(problems, []);
  await page.context().close();
});

test('a plan with very many variants, or far too long, leaves the page usable', async () => {
  const { page, problems } = await openForm();
  const plan = 'workload = "transfer"\nname = "many"\n[transfer]\ntime = "1s"\n';
  const variants = (count: number) =>
    Array.from({ length: count }, (_, at) => `[[variant]]\nname = "v${at}"\n`).join('');
  const load = (text: string) =>
    page
      .getByLabel('A file')
      .setInputFiles({ name: 'plan.toml', mimeType: 'text/plain', buffer: Buffer.from(text) });
  const start = page.getByRole('button', { name: 'Start the run' });
  const began = Date.now();
  await load(plan + variants(1000));
  await page.getByText('950 more variants are in the text').waitFor();
  console.log(`form of 1000 variants: ${Date.now() - began} ms`);
  assert.equal(await page.locator('fieldset.card').count(), 50);
  // What is edited in the form keeps those that it does not show.
  await page.getByLabel('Name of the run').fill('many more');
  await page.getByText('1000 trials').waitFor();
  await page.getByRole('tab', { name: 'TOML' }).click();
  await page.waitForFunction(() => document.querySelector('textarea')?.value.includes('many more'));
  assert.match(await page.getByRole('textbox', { name: 'TOML' }).inputValue(), /name = "v999"/);
  await page.getByRole('tab', { name: 'Form' }).click();

  await load(plan + variants(10_000));
  await page.getByText(/10000 variants, and at most 1000/).waitFor();
  assert.ok(await start.isDisabled());
  await load(`${plan}# ${'x'.repeat((1 << 20) - plan.length - 2)}`);
  await page.getByText(/larger than 1 MiB/).waitFor();
  assert.ok(await start.isDisabled());
  await load(plan);
  await page.getByText('The plan is valid').waitFor();
  assert.deepEqual(problems, []);
  await page.context().close();
});
