// The frame of every page: name, pages, colours, language.

import type { ComponentChildren } from 'preact';

import { setLanguage, useWords } from '../i18n/index.ts';
import type { Route } from '../lib/router.ts';
import { useStore } from '../lib/store.ts';
import { setTheme, type Theme, theme } from '../lib/theme.ts';
import { isUnderWay, useJobs } from '../server/jobs.ts';

const PAGES = [
  { page: 'home', to: '/' },
  { page: 'new', to: '/new' },
  { page: 'runs', to: '/runs' },
  { page: 'hosts', to: '/hosts' },
  { page: 'qos', to: '/qos' },
  { page: 'tune', to: '/tune' },
] as const;

/** The page that is marked while another one below it is shown. */
export function markedPage(route: Route): string {
  return ['run', 'compare', 'live'].includes(route.page) ? 'runs' : route.page;
}

export function Shell(props: { route: Route; onLogOut: () => void; children: ComponentChildren }) {
  const t = useWords();
  const marked = markedPage(props.route);
  return (
    <>
      <a class="skip" href="#content">
        {t.nav.skip}
      </a>
      <header class="top">
        <a class="wordmark" href="/">
          kagiri
        </a>
        <nav aria-label={t.nav.label}>
          <ul>
            {PAGES.map(({ page, to }) => (
              <li key={page}>
                <a href={to} aria-current={marked === page ? 'page' : undefined}>
                  {t.nav[page]}
                </a>
              </li>
            ))}
          </ul>
        </nav>
        {/* The page of a job follows its own stream. */}
        {props.route.page !== 'live' && <UnderWay />}
        <Switches />
        <button type="button" class="quiet" onClick={props.onLogOut}>
          {t.nav.logOut}
        </button>
      </header>
      <main id="content" tabIndex={-1}>
        {props.children}
      </main>
    </>
  );
}

function UnderWay() {
  const t = useWords();
  const running = (useJobs() ?? []).filter(isUnderWay);
  const [first] = running;
  return (
    <span class="under-way" aria-live="polite">
      {first && (
        <a href={running.length === 1 ? `/live/${first.id}` : '/runs'}>{t.nav.underWay(running.length)}</a>
      )}
    </span>
  );
}

export function Switches() {
  const t = useWords();
  const chosen = useStore(theme);
  const names: Theme[] = ['system', 'light', 'dark'];
  return (
    <div class="switches">
      <select
        class="quiet"
        aria-label={t.nav.theme}
        value={chosen}
        onChange={(event) => setTheme(event.currentTarget.value as Theme)}
      >
        {names.map((name) => (
          <option key={name} value={name} selected={name === chosen}>
            {t.nav.themes[name]}
          </option>
        ))}
      </select>
      <button
        type="button"
        class="quiet"
        lang={t.code === 'ja' ? 'en' : 'ja'}
        title={t.nav.languageHelp}
        onClick={() => void setLanguage(t.code === 'ja' ? 'en' : 'ja')}
      >
        {t.nav.language}
      </button>
    </div>
  );
}
