// A host of the fleet that leaves while its page is open, and comes back.

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import type { Browser } from 'playwright-core';
import { type Console, openPage, program, startBrowser, startConsole } from './harness.ts';

/** Agents are listed at most every 10 s, and have 5 s to join. */
const SEEN_MS = 40_000;

let console: Console;
let browser: Browser;
let endpoint: string;
const folder = mkdtempSync(join(tmpdir(), 'kagiri-agent-'));
const agents: ChildProcess[] = [];

/** A port of loopback that was free a moment ago. */
function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() => resolve(typeof address === 'object' && address !== null ? address.port : 0));
    });
  });
}

function startAgent(): ChildProcess {
  const words = ['agent', '--join', endpoint, '--name', 'nas', '--data', folder];
  const agent = spawn(program(), words, { stdio: 'ignore' });
  agents.push(agent);
  return agent;
}

before(async () => {
  endpoint = `tcp/127.0.0.1:${await freePort()}`;
  console = await startConsole(['--fleet', endpoint]);
  browser = await startBrowser();
});

after(async () => {
  for (const agent of agents) agent.kill('SIGKILL');
  await browser?.close();
  await console?.end();
  rmSync(folder, { recursive: true, force: true });
});

test('host that leaves is shown as lost and as free when it is back', async () => {
  const { page, problems } = await openPage(browser, console.address);
  await page.goto(`${console.origin}/hosts`);
  const row = page.locator('tr', { has: page.getByRole('rowheader', { name: /^nas/ }) });
  await page.getByText('this machine').first().waitFor();
  assert.equal(await row.count(), 0);
  const first = startAgent();
  await row.getByText('free').waitFor({ timeout: SEEN_MS });
  first.kill('SIGKILL');
  await row.getByText('lost').waitFor({ timeout: SEEN_MS });
  // What to do about it is beside it.
  await row.getByText('kagiri agent').waitFor();
  startAgent();
  await row.getByText('free').waitFor({ timeout: SEEN_MS });
  assert.deepEqual(problems, []);
  await page.context().close();
});
