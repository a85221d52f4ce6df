import assert from 'node:assert/strict';
import { test } from 'node:test';

import { browser, openPage, server, useConsole } from './harness.ts';

useConsole();

test('the printed address logs in, and the token leaves the address bar', async () => {
  const { page, problems } = await openPage(browser, server.address);
  await page.getByRole('heading', { name: 'Measure this machine' }).waitFor();
  assert.equal(page.url(), `${server.origin}/`);
  await page.reload();
  await page.getByRole('heading', { name: 'Measure this machine' }).waitFor();
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByRole('heading', { name: 'Log in' }).waitFor();
  assert.deepEqual(problems, []);
  await page.context().close();
});

test('without a token the page says what to do, and takes the pasted address', async () => {
  const { page } = await openPage(browser, `${server.origin}/runs`);
  assert.match((await page.textContent('main')) ?? '', /kagiri serve.*has printed an address/s);
  const field = page.getByLabel('Address or token');
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByText('Paste the address that the terminal shows').waitFor();
  await field.fill(server.address);
  await page.keyboard.press('Enter');
  // The page that was asked for.
  await page.getByRole('heading', { name: 'Runs', exact: true }).waitFor();
  await page.context().close();
});

test('a wrong token is refused in words, and the right one helps', async () => {
  const { page } = await openPage(browser, `${server.origin}/#token=not-the-token-of-this-server`);
  await page.getByText('The server does not accept this token').waitFor();
  assert.ok(!page.url().includes('token'), page.url());
  await page.goto(server.address);
  await page.getByRole('heading', { name: 'Measure this machine' }).waitFor();
  await page.context().close();
});
