import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Page } from 'playwright-core';

import { browser, openPage, runPlan, server, useConsole } from './harness.ts';

const PHONE = { viewport: { width: 400, height: 800 } };

useConsole();

const tooWide = (page: Page) => page.evaluate(() => document.documentElement.scrollWidth - innerWidth);

test('a report in the console is as wide as a phone, and nothing of it is beside the screen', async () => {
  const job = await runPlan(
    server,
    'workload = "transfer"\nname = "on a phone"\nrepeats = 2\n[transfer]\ntime = "300ms"\ncalls = true\n',
  );
  assert.equal(job.state, 'ended', job.message ?? '');
  const { page, problems } = await openPage(browser, server.address, PHONE);
  await page.goto(`${server.origin}/runs/${job.run}`);
  const report = page.frameLocator('iframe.report');
  await report.getByRole('heading', { name: 'on a phone' }).waitFor();
  const frame = await page.locator('iframe.report').evaluate((element) => {
    const { left, right } = element.getBoundingClientRect();
    return { left, right, page: document.documentElement.clientWidth };
  });
  assert.deepEqual([frame.left, frame.right], [0, frame.page]);
  assert.ok((await tooWide(page)) <= 0, 'the page scrolls sideways');
  const own = await report.locator('html').evaluate((html) => ({
    over: html.scrollWidth - html.clientWidth,
    letters: Number.parseFloat(getComputedStyle(document.body).fontSize),
  }));
  assert.ok(own.over <= 0, `the report scrolls sideways by ${own.over} px`);
  assert.ok(own.letters >= 14, `letters of ${own.letters} px`);
  for (const tab of ['Plan', 'Tags and note']) {
    await page.getByRole('tab', { name: tab }).click();
    assert.ok((await tooWide(page)) <= 0, tab);
  }
  assert.deepEqual(problems, []);
  await page.context().close();
});

/** Choices whose text does not fit into their control, if they are chosen. */
const cutOff = (page: Page) =>
  page.evaluate(() => {
    const ink = document.createElement('canvas').getContext('2d') as CanvasRenderingContext2D;
    const found: string[] = [];
    for (const select of document.querySelectorAll('main select') as NodeListOf<HTMLSelectElement>) {
      const style = getComputedStyle(select);
      ink.font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
      const before = select.value;
      const line = Number.parseFloat(style.fontSize) * 1.15;
      for (const option of select.options) {
        select.value = option.value;
        // Beside the text is the arrow. The width of some follows their choice.
        const width =
          select.clientWidth -
          Number.parseFloat(style.paddingLeft) -
          Number.parseFloat(style.paddingRight) -
          20;
        const lines = Math.ceil(ink.measureText(option.text).width / width);
        if (select.clientHeight < lines * line) found.push(option.text);
      }
      select.value = before;
    }
    return found;
  });

test('choices can be read as a whole on a phone', async () => {
  for (const locale of ['en-GB', 'ja-JP']) {
    const { page, problems } = await openPage(browser, server.address, { ...PHONE, locale });
    for (const path of ['/new', '/tune', '/runs']) {
      await page.goto(server.origin + path);
      await page.waitForSelector('main select');
      if (path !== '/runs')
        await page.waitForFunction(() => document.querySelectorAll('optgroup').length > 2);
      assert.deepEqual(await cutOff(page), [], `${locale} ${path}`);
      assert.ok((await tooWide(page)) <= 0, path);
    }
    assert.deepEqual(problems, []);
    await page.context().close();
  }
});

test('every ready plan has its time, in the list and in the check', async () => {
  const { page } = await openPage(browser, server.address);
  await page.goto(`${server.origin}/new`);
  const plan = page.getByLabel('A ready plan');
  await page.waitForFunction(() => document.querySelectorAll('optgroup').length > 2);
  const texts = await plan.locator('optgroup option').allTextContents();
  assert.ok(texts.length > 10);
  for (const text of texts) assert.match(text, /\((about [\d.]+ (s|min|h)|not known beforehand)/, text);
  const listed = texts.find((text) => text.startsWith('How many robots'));
  const time = /about ([\d.]+ \w+)/.exec(listed ?? '')?.[1];
  await plan.selectOption('exchange-cliff');
  await page.locator('.check-panel dd').getByText(`${time};`).waitFor();
  await page.context().close();
});
