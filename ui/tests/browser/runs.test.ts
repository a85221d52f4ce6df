import assert from 'node:assert/strict';
import { copyFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Page } from 'playwright-core';

import { browser, openPage, program, runPlan, server, startConsole, useConsole } from './harness.ts';

const RUN_MS = 120_000;

useConsole();

const samplesOf = async (page: Page) =>
  Number.parseInt((await page.locator('.chart-samples').first().textContent()) ?? '', 10);

test('a newcomer gets from the first page to a result with three clicks', async () => {
  const { page, problems } = await openPage(browser, server.address);
  const began = Date.now();
  await page.getByText(/^Takes .*about/).waitFor();
  await page.getByRole('button', { name: 'Measure now' }).click();
  await page.waitForSelector('.chart canvas', { timeout: RUN_MS });
  await page.getByText('The run has ended').waitFor({ timeout: RUN_MS });
  assert.match((await page.textContent('.answer')) ?? '', /bit\/s/);
  await page.getByRole('link', { name: 'Read the report' }).click();
  const report = page.frameLocator('iframe.report');
  await report.getByRole('heading', { name: 'This machine' }).waitFor();
  console.log(`from the first page to the report: ${((Date.now() - began) / 1000).toFixed(1)} s`);
  assert.deepEqual(problems, []);
  await page.context().close();
});

test('the plan of 17 robots is made in the form, checked as it is typed, run in a small version and watched', async () => {
  const { page, problems } = await openPage(browser, server.address);
  await page.getByRole('link', { name: 'New run' }).click();
  await page.getByLabel('What to measure').selectOption('exchange');
  const start = page.getByRole('button', { name: 'Start the run' });
  await page.getByLabel('clients', { exact: true }).first().fill('17');
  await page.getByLabel('size', { exact: true }).fill('250 bananas');
  const error = page
    .locator('.setting', { has: page.getByLabel('size', { exact: true }) })
    .locator('.field-error');
  await error.waitFor();
  assert.ok(await start.isDisabled(), 'a plan that is not valid cannot be started');
  await page.getByLabel('size', { exact: true }).fill('250kB');
  await error.waitFor({ state: 'detached' });
  await page.getByLabel('rate_per_s', { exact: true }).fill('0.667');
  await page.getByLabel('loop', { exact: true }).selectOption('closed');
  await page.getByLabel('target', { exact: true }).fill('500ms');
  await page.getByLabel('time', { exact: true }).fill('4s');
  await page.getByLabel('Name of the run').fill('17 robots, small');

  // The text has the same plan; what is changed there is in the form.
  await page.getByRole('tab', { name: 'TOML' }).click();
  const text = page.getByRole('textbox', { name: 'TOML' });
  await page.waitForFunction(() => document.querySelector('textarea')?.value.includes('"4s"'));
  const toml = await text.inputValue();
  assert.match(toml, /clients = 17\b/);
  await text.fill(toml.replace('"4s"', '"3s"'));
  await page.getByText('The plan is valid').waitFor();
  await page.getByRole('tab', { name: 'Form' }).click();
  assert.equal(await page.getByLabel('time', { exact: true }).inputValue(), '3s');

  await page.getByText('The plan is valid').waitFor();
  await start.click();
  await page.getByRole('heading', { name: '17 robots, small' }).waitFor();
  await page.waitForSelector('.chart canvas', { timeout: RUN_MS });
  const before = await samplesOf(page);
  await page.waitForTimeout(1000);
  const later = await samplesOf(page);
  assert.ok(later > before, `samples arrive: ${before}, then ${later}`);
  console.log(`live samples in one second: ${later - before}`);
  await page.getByText('The run has ended').waitFor({ timeout: RUN_MS });
  assert.deepEqual(problems, []);
  await page.context().close();
});

test('a run that is stopped keeps what was measured', async () => {
  const plan = 'workload = "transfer"\nname = "long"\nrepeats = 60\n[transfer]\ntime = "1s"\n';
  const job = await server.call<{ id: string }>('POST', '/jobs', { toml: plan, name: null, tags: [] });
  const { page, problems } = await openPage(browser, server.address);
  await page.goto(`${server.origin}/live/${job.id}`);
  await page.locator('main table tbody tr').first().waitFor({ timeout: RUN_MS });
  await page.getByRole('button', { name: 'Stop and keep what was measured' }).click();
  await page.getByText('The run was stopped').waitFor({ timeout: RUN_MS });
  const ended = await server.call<{ state: string; run: string }>('GET', `/jobs/${job.id}`);
  assert.equal(ended.state, 'interrupted');
  const stored = await server.call<{ trials: unknown[] }>('GET', `/runs/${ended.run}`);
  assert.ok(stored.trials.length >= 1, 'the trials before are stored');
  assert.deepEqual(problems, []);
  await page.context().close();
});

test('a run that was stopped goes on after its trials', async () => {
  const plan = 'workload = "transfer"\nname = "in two parts"\nrepeats = 3\n[transfer]\ntime = "2s"\n';
  const job = await server.call<{ id: string }>('POST', '/jobs', { toml: plan, name: null, tags: [] });
  const { page, problems } = await openPage(browser, server.address);
  await page.goto(`${server.origin}/live/${job.id}`);
  await page.locator('main table tbody tr').first().waitFor({ timeout: RUN_MS });
  await page.getByRole('button', { name: 'Stop and keep what was measured' }).click();
  await page.getByText('The run was stopped').waitFor({ timeout: RUN_MS });
  const { run } = await server.call<{ run: string }>('GET', `/jobs/${job.id}`);
  const trialsOf = async () => {
    const stored = await server.call<{ state: string; trials: { started_at: string }[] }>(
      'GET',
      `/runs/${run}`,
    );
    return { state: stored.state, began: stored.trials.map((trial) => trial.started_at) };
  };
  const before = await trialsOf();
  await page.goto(`${server.origin}/runs/${run}`);
  await page.getByRole('button', { name: 'Continue' }).click();
  await page.waitForURL(/\/live\//);
  await page.getByText('The run has ended').waitFor({ timeout: RUN_MS });
  const after = await trialsOf();
  assert.equal(after.state, 'complete');
  assert.equal(after.began[0], before.began[0], 'the first trial is kept');
  assert.ok(after.began.length >= 3, `${after.began}`);
  // There is nothing to continue any more.
  await page.goto(`${server.origin}/runs/${run}`);
  await page.getByRole('button', { name: 'Run it again' }).waitFor();
  assert.equal(await page.getByRole('button', { name: 'Continue' }).count(), 0);
  assert.deepEqual(problems, []);
  await page.context().close();
});

test('two runs are found, chosen and compared, with intervals and a verdict', async () => {
  const plan = (name: string, flows: number) =>
    `workload = "transfer"\nname = "${name}"\nrepeats = 3\n[transfer]\ntime = "300ms"\nflows = ${flows}\n`;
  for (const [name, flows] of [
    ['pair one', 1],
    ['pair two', 2],
  ] as const) {
    const job = await runPlan(server, plan(name, flows));
    assert.equal(job.state, 'ended', job.message ?? '');
  }
  const { page, problems } = await openPage(browser, server.address);
  await page.getByRole('link', { name: 'Runs', exact: true }).click();
  await page.getByLabel('Search').fill('pair');
  await page.waitForFunction(() => document.querySelectorAll('table.runs tbody tr').length === 2);
  await page.getByText('Tick runs to compare or delete them.').waitFor();
  await page.getByRole('checkbox', { name: /pair two/ }).check();
  assert.ok(await page.getByRole('button', { name: 'Compare', exact: true }).isDisabled());
  await page.getByRole('checkbox', { name: /pair one/ }).check();
  await page.getByRole('button', { name: 'Compare 2 runs' }).click();
  await page.waitForSelector('table.comparison tbody tr');
  assert.ok(((await page.textContent('.answer')) ?? '').length > 10, 'the verdict is a sentence');
  assert.ok((await page.locator('svg.intervals line').count()) >= 2);
  assert.match((await page.textContent('table.comparison')) ?? '', /n = 3/);
  // The older run is the baseline, although it was ticked last.
  await page.getByText('Changes are against pair one, the older run.').waitFor();
  assert.deepEqual(problems, []);
  await page.context().close();
});

test('a comparison has units, tells runs of one name apart, and leaves out what none has', async () => {
  // Ids of runs order them by the second in which they began.
  const plan = 'workload = "transfer"\nname = "twin"\n[transfer]\ntime = "1100ms"\n';
  const runs = [await runPlan(server, plan), await runPlan(server, plan)].map((job) => job.run);
  const { page, problems } = await openPage(browser, server.address);
  // In the wrong order: the older run is the baseline in any case.
  await page.goto(`${server.origin}/compare?ids=${runs[1]},${runs[0]}`);
  await page.getByText(`Changes are against twin (${runs[0]}), the older run.`).waitFor();
  const text = (await page.textContent('table.comparison')) ?? '';
  assert.match(text, /page cache.*? [\d.]+ [GM]B/);
  assert.ok(!text.includes('datagrams lost'), 'a transfer over TCP has no datagrams');
  await page.getByText(/\d+ quantities that no run has are left out/).waitFor();
  await page
    .getByText(/^\d{4}-\d\d-\d\d \d\d:\d\d$/)
    .first()
    .waitFor();
  assert.deepEqual(problems, []);
  await page.context().close();
});

test('a run that failed says why, and nothing of what it did not measure', async () => {
  const failing =
    'workload = "transfer"\nname = "no server"\n[transfer]\ntime = "300ms"\nhost = "127.0.0.1:9"\n';
  const job = await runPlan(server, failing);
  assert.equal(job.state, 'failed');
  const good = await runPlan(server, 'workload = "transfer"\nname = "works"\n[transfer]\ntime = "300ms"\n');
  const { page, problems } = await openPage(browser, server.address);
  await page.goto(`${server.origin}/live/${job.id}`);
  await page.getByText('The run failed.').waitFor();
  await page.getByText(/Connection refused/).waitFor();
  const text = (await page.textContent('main')) ?? '';
  for (const empty of [
    'not known',
    'first sample',
    'No trial',
    'Measured now',
    'Run it again',
    'Read the report',
  ]) {
    assert.ok(!text.includes(empty), `"${empty}" is said of nothing: ${text}`);
  }
  assert.equal(await page.locator('nav [aria-current]').textContent(), 'Runs');
  await page.getByRole('link', { name: 'Change it and run it' }).click();
  await page.getByLabel('Name of the run').waitFor();
  // Until the plan has been fetched, the form has that of a new measurement.
  await page.waitForFunction(() =>
    [...document.querySelectorAll('[data-field="name"] input')].some(
      (input) => (input as HTMLInputElement).value === 'no server',
    ),
  );

  await page.goto(`${server.origin}/runs`);
  await page.locator('table.runs .badge-bad').getByText('failed').waitFor();
  await page.goto(`${server.origin}/compare?ids=${good.run},${job.run}`);
  await page.getByText('no server failed, so what it did not measure cannot be compared.').waitFor();

  await page.goto(`${server.origin}/runs`);
  await page.getByRole('checkbox', { name: /no server/ }).check();
  page.once('dialog', (dialog) => void dialog.accept());
  await page.getByRole('button', { name: 'Delete this run' }).click();
  await page.getByRole('checkbox', { name: /no server/ }).waitFor({ state: 'detached' });
  assert.deepEqual(problems, []);
  await page.context().close();
});

test('a job that failed before a run was stored leads back to its plan', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'kagiri-program-'));
  const copy = join(folder, 'kagiri');
  copyFileSync(program(), copy);
  const own = await startConsole([], copy);
  const { page, problems } = await openPage(browser, own.address);
  // As while the program is being installed anew.
  rmSync(folder, { recursive: true });
  const plan = '# kept\nworkload = "transfer"\nname = "never begun"\n[transfer]\ntime = "300ms"\n';
  const job = await runPlan(own, plan);
  assert.deepEqual([job.state, job.run], ['failed', null]);

  await page.goto(`${own.origin}/live/${job.id}`);
  await page.getByText('The run failed.').waitFor();
  await page.getByText(/cannot be started/).waitFor();
  await page.getByRole('link', { name: 'Change it and run it' }).click();
  await page.getByRole('tab', { name: 'TOML' }).click();
  const text = page.getByRole('textbox', { name: 'TOML' });
  await page.waitForFunction(() => document.querySelector('textarea')?.value.startsWith('# kept'));
  assert.equal(await text.inputValue(), plan);

  // The list of runs cannot have it; the page has, until it is removed.
  await page.goto(`${own.origin}/runs`);
  await page.getByRole('heading', { name: 'Failed before anything was measured' }).waitFor();
  await page.getByRole('link', { name: 'never begun' }).waitFor();
  await page.getByRole('link', { name: 'Change it and run it' }).click();
  await page.waitForURL(new RegExp(`/new\\?job=${job.id}`));
  await page.goto(`${own.origin}/runs`);
  await page.getByRole('button', { name: 'Remove' }).click();
  await page.getByRole('link', { name: 'never begun' }).waitFor({ state: 'detached' });
  assert.deepEqual(await own.call('GET', '/jobs'), []);
  assert.deepEqual(problems, []);
  await page.context().close();
  await own.end();
});

test('a run that is deleted while it is shown is missed with a sentence, not with an empty page', async () => {
  const job = await runPlan(
    server,
    'workload = "transfer"\nname = "gone soon"\n[transfer]\ntime = "200ms"\n',
  );
  const { page, problems } = await openPage(browser, server.address);
  await page.goto(`${server.origin}/runs/${job.run}`);
  await page.getByRole('heading', { name: 'gone soon', level: 1 }).waitFor();
  // In another tab.
  await server.call('DELETE', `/runs/${job.run}`);
  await page.getByRole('button', { name: 'Run it again' }).click();
  await page
    .getByRole('alert')
    .getByText(/there is no run/)
    .waitFor();
  await page.getByRole('tab', { name: 'Tags and note' }).click();
  await page.getByRole('button', { name: 'Save' }).click();
  await page
    .locator('form.notes')
    .getByText(/there is no run/)
    .waitFor();
  await page.reload();
  await page.getByText('There is no run with this id. It may have been deleted.').waitFor();
  assert.deepEqual(problems, []);
  await page.context().close();
});

interface Stored {
  variants: {
    account: { figures: { title: string; layers: { marks: { form: string; at?: unknown[] } }[] }[] };
  }[];
}

test('the report of timed calls has their timelines, to zoom into, also within the console', async () => {
  const job = await runPlan(
    server,
    'workload = "transfer"\nname = "timed"\n[transfer]\ntime = "300ms"\ncalls = true\n',
  );
  assert.equal(job.state, 'ended', job.message ?? '');
  const { page, problems } = await openPage(browser, server.address);
  await page.goto(`${server.origin}/runs/${job.run}`);
  const report = page.frameLocator('iframe.report');
  const timelines = report.locator('.timeline');
  await timelines.first().waitFor();
  assert.equal(await timelines.count(), 2, 'of the sender and of the receiver');
  // As many spans as the stored run has, drawn by the report's own script in its frame.
  const stored = await server.call<Stored>('GET', `/runs/${job.run}`);
  const figures = stored.variants[0]?.account.figures.filter((one) => one.title.startsWith('Timeline')) ?? [];
  const spans = figures.map(({ layers }) =>
    layers.reduce((sum, { marks }) => sum + (marks.form === 'spans' ? (marks.at?.length ?? 0) : 0), 0),
  );
  const drawn = await timelines.locator('script.head').evaluateAll((heads) =>
    heads.map((head) => {
      const lanes: { count: number }[] = JSON.parse(head.textContent ?? '').lanes;
      return lanes.reduce((sum, { count }) => sum + count, 0);
    }),
  );
  assert.deepEqual(drawn, spans);
  assert.ok(
    drawn.every((count) => count > 10),
    `${drawn}`,
  );
  const range = timelines.first().locator('.range');
  const whole = await range.textContent();
  assert.match(whole ?? '', /^0.* to .*s \(.*s\)$/);
  await timelines.first().getByRole('button', { name: '+' }).click();
  await page.waitForFunction(() => true);
  const zoomed = await range.textContent();
  assert.notEqual(zoomed, whole);
  // Spans have colours of their own, and a tooltip.
  const canvas = timelines.first().locator('canvas.lanes');
  const colours = await canvas.evaluate((element) => {
    const { width, height } = element as HTMLCanvasElement;
    const ink = (element as HTMLCanvasElement).getContext('2d');
    return new Set(new Uint32Array(ink?.getImageData(0, 0, width, height).data.buffer ?? [])).size;
  });
  assert.ok(colours > 5, `${colours} colours`);
  const box = await canvas.boundingBox();
  const told = timelines.first().locator('.told');
  for (let x = 200; x < (box?.width ?? 0) && (await told.isHidden()); x += 7) {
    await canvas.hover({ position: { x, y: 32 } });
  }
  assert.match((await told.textContent()) ?? '', /^(send|recv|splice|epoll)/);
  assert.deepEqual(problems, []);
  await page.context().close();
});

test('tags and a note are kept, and the report cannot reach the console', async () => {
  await runPlan(server, 'workload = "transfer"\nname = "noted"\n[transfer]\ntime = "200ms"\n');
  const { page } = await openPage(browser, server.address);
  await page.getByRole('link', { name: 'Runs', exact: true }).click();
  await page.locator('table.runs a').first().click();
  assert.equal(await page.locator('iframe.report').getAttribute('sandbox'), 'allow-scripts');
  await page.getByRole('tab', { name: 'Tags and note' }).click();
  await page.getByRole('textbox', { name: 'Tags' }).fill('nightly, desk, nightly');
  await page.getByRole('textbox', { name: 'Note' }).fill('with <b>nothing</b> beside it');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText('Saved.').waitFor();
  await page.goto(`${server.origin}/runs`);
  await page.getByText('with <b>nothing</b> beside it').waitFor();
  assert.equal(await page.locator('.tag', { hasText: 'nightly' }).count(), 1);
  await page.context().close();
});
