// A real server ('kagiri serve', by the environment variable KAGIRI) and a real browser (Debian's chromium).

import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before } from 'node:test';
import { type Browser, chromium, type Page } from 'playwright-core';

const START_MS = 20_000;
/** The built pages. */
export const PAGES = process.env.KAGIRI_PAGES ?? new URL('../../dist', import.meta.url).pathname;

export interface Console {
  /** With the token. */
  address: string;
  /** Without. */
  origin: string;
  token: string;
  /** Sends a request as a tool does. */
  call: <T>(method: string, path: string, body?: unknown) => Promise<T>;
  end: () => Promise<void>;
}

/** The program under test. */
export function program(): string {
  const path = process.env.KAGIRI;
  if (!path) throw new Error('KAGIRI is not set: give the path of the program, such as target/debug/kagiri');
  return path;
}

/**
 * Starts a server with an empty store. CONSOLE_URL: uses one that runs, by the address that it printed.
 * `more`: further options of 'kagiri serve'; with them, or with a program, a server is started in any case.
 */
export async function startConsole(more: string[] = [], executable?: string): Promise<Console> {
  const given = process.env.CONSOLE_URL;
  if (given && more.length === 0 && !executable) return consoleAt(given, async () => {});
  const data = mkdtempSync(join(tmpdir(), 'kagiri-console-'));
  const server = spawn(
    executable ?? program(),
    ['serve', '--listen', '127.0.0.1:0', '--pages', PAGES, ...more],
    {
      env: { ...process.env, KAGIRI_DATA: data },
      stdio: ['ignore', 'pipe', 'inherit'],
    },
  );
  const address = await printedAddress(server);
  return consoleAt(address, async () => {
    const ended = new Promise((resolve) => server.once('exit', resolve));
    server.kill('SIGINT');
    await ended;
    rmSync(data, { recursive: true, force: true });
  });
}

function printedAddress(server: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = '';
    const timer = setTimeout(() => reject(new Error(`no address within ${START_MS} ms: ${text}`)), START_MS);
    server.stdout?.on('data', (chunk) => {
      text += chunk;
      const found = /https?:\/\/\S+#token=\S+/.exec(text)?.[0];
      if (!found) return;
      clearTimeout(timer);
      resolve(found);
    });
    server.once('exit', (code) => reject(new Error(`kagiri serve ended with ${code}: ${text}`)));
  });
}

function consoleAt(address: string, end: () => Promise<void>): Console {
  const url = new URL(address);
  const token = url.hash.replace('#token=', '');
  const call = async <T>(method: string, path: string, body?: unknown): Promise<T> => {
    const response = await fetch(`${url.origin}/api/v1${path}`, {
      method,
      headers: { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' },
      body: body === undefined ? null : JSON.stringify(body),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return (text === '' ? null : JSON.parse(text)) as T;
  };
  return { address, origin: url.origin, token, call, end };
}

export function startBrowser(): Promise<Browser> {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    // Tests run as root, for which chromium has no sandbox.
    args: ['--no-sandbox', '--disable-dev-shm-usage'],
  });
}

/** The server and the browser of a file's tests, from {@link useConsole} on. */
export let server: Console;
export let browser: Browser;

/** Starts both before the first test of the file, and ends them after the last. */
export function useConsole(): void {
  before(async () => {
    server = await startConsole();
    browser = await startBrowser();
  });
  after(async () => {
    await browser?.close();
    await server?.end();
  });
}

/** A page that is logged in. Errors of its scripts and of its content policy fail the test. */
export async function openPage(
  browser: Browser,
  address: string,
  options = {},
): Promise<{ page: Page; problems: string[] }> {
  const context = await browser.newContext({ locale: 'en-GB', ...options });
  // The compiler of these tests marks functions with their names, also those that run in the page.
  await context.addInitScript('globalThis.__name = (value) => value');
  const page = await context.newPage();
  const problems: string[] = [];
  page.on('pageerror', (error) => problems.push(error.message));
  page.on('console', (message) => {
    // An answer that is an error is a part of some tests.
    if (message.type() === 'error' && !message.text().includes('status of 4')) problems.push(message.text());
  });
  await page.goto(address);
  await page.waitForSelector('main h1');
  return { page, problems };
}

export interface StoredJob {
  id: string;
  state: string;
  run: string | null;
  message: string | null;
}

/** Runs a plan to its end. */
export async function runPlan(console: Console, toml: string): Promise<StoredJob> {
  let job = await console.call<StoredJob>('POST', '/jobs', { toml, name: null, tags: [] });
  const deadline = Date.now() + 120_000;
  while (!['ended', 'failed', 'interrupted'].includes(job.state)) {
    if (Date.now() > deadline) throw new Error(`the job did not end: ${JSON.stringify(job)}`);
    await new Promise((resolve) => setTimeout(resolve, 300));
    job = await console.call<StoredJob>('GET', `/jobs/${job.id}`);
  }
  return job;
}
