// Pictures of every page at 1400 and 400 px, light and dark, from real runs.
// KAGIRI=target/debug/kagiri npm run screenshots [FOLDER]
// LANGUAGE=ja: in Japanese. ONLY=NAME,...: only these pages.

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { type Console, openPage, runPlan, startBrowser, startConsole } from '../tests/browser/harness.ts';

const FOLDER = process.argv[2] ?? 'pictures';
const WIDTHS = [1400, 400];
const SCHEMES = ['light', 'dark'] as const;
const ONLY = process.env.ONLY?.split(',');

const PLAN = (name: string, flows: number) => `schema = 1
name = "${name}"
workload = "transfer"
repeats = 5
[transfer]
time = "1s"
flows = ${flows}
`;

interface Shot {
  name: string;
  path: string;
  /** Makes the page show what is to be seen. */
  prepare?: (page: Page) => Promise<void>;
}

async function shots(console: Console): Promise<Shot[]> {
  const runs = await console.call<{ runs: { id: string }[] }>('GET', '/runs?limit=2');
  const ids = runs.runs.map((run) => run.id);
  const live = await console.call<{ id: string }>('POST', '/jobs', {
    toml: PLAN('Two flows over loopback', 2).replace('time = "1s"', 'time = "20s"'),
    name: null,
    tags: [],
  });
  return [
    { name: 'home', path: '/' },
    { name: 'live', path: `/live/${live.id}`, prepare: (page) => page.waitForTimeout(4000) },
    { name: 'new', path: '/new', prepare: chooseReadyPlan },
    { name: 'new-empty', path: '/new', prepare: (page) => page.waitForTimeout(600) },
    { name: 'runs', path: '/runs', prepare: selectTwo },
    { name: 'report', path: `/runs/${ids[0]}`, prepare: (page) => page.waitForTimeout(800) },
    { name: 'compare', path: `/compare?ids=${[...ids].reverse().join(',')}` },
    { name: 'hosts', path: '/hosts' },
    { name: 'qos', path: '/qos', prepare: usePolicy },
    { name: 'tune', path: '/tune', prepare: watch },
  ];
}

async function chooseReadyPlan(page: Page): Promise<void> {
  await page.getByLabel('A ready plan').selectOption('exchange-cliff');
  await page.waitForTimeout(1500);
}

async function selectTwo(page: Page): Promise<void> {
  const boxes = page.locator('table.runs input[type=checkbox]');
  await boxes.nth(0).check();
  await boxes.nth(1).check();
}

async function usePolicy(page: Page): Promise<void> {
  const example = page.getByRole('button', { name: 'Use the example' });
  if (await example.isVisible()) await example.click();
  await page.waitForSelector('.verdicts li');
}

async function watch(page: Page): Promise<void> {
  await page.getByRole('button', { name: /Watch for/ }).click();
  await page.waitForSelector('.statements li', { timeout: 15_000 });
  await page.locator('.setting-list summary').first().click();
}

async function take(
  browser: Browser,
  console: Console,
  shot: Shot,
  width: number,
  colorScheme: 'light' | 'dark',
) {
  const viewport = { width, height: width > 700 ? 1000 : 860 };
  const { page, problems } = await openPage(browser, console.address, { viewport, colorScheme });
  await page.goto(console.origin + shot.path);
  await page.waitForSelector('main h1, main .empty, main .problem');
  await page.waitForLoadState('load');
  await page.waitForTimeout(500);
  await shot.prepare?.(page);
  if (process.env.LANGUAGE === 'ja') {
    await page.locator('button[lang=ja]').click();
    await page.waitForTimeout(300);
  }
  await page.evaluate(() => scrollTo({ top: 0, behavior: 'instant' }));
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  const path = join(FOLDER, `${shot.name}-${width}-${colorScheme}.png`);
  await page.screenshot({ path, fullPage: true });
  process.stdout.write(
    `${path}${overflow > 0 ? ` is ${overflow} px too wide` : ''} ${problems.join('; ')}\n`,
  );
  await page.context().close();
}

async function main(): Promise<void> {
  mkdirSync(FOLDER, { recursive: true });
  const console = await startConsole();
  const browser = await startBrowser();
  try {
    if (!process.env.CONSOLE_URL) {
      await runPlan(console, PLAN('One flow over loopback', 1));
      await runPlan(console, PLAN('Four flows over loopback', 4));
    }
    for (const shot of await shots(console)) {
      if (ONLY && !ONLY.includes(shot.name)) continue;
      for (const width of WIDTHS) {
        for (const scheme of SCHEMES) await take(browser, console, shot, width, scheme);
      }
    }
  } finally {
    await browser.close();
    await console.end();
  }
}

await main();
