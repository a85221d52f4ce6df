// The console: login, then the page that the address names.

import type { ComponentType } from 'preact';
import { useEffect, useState } from 'preact/hooks';

import { useWords } from './i18n/index.ts';
import { type Route, useRoute } from './lib/router.ts';
import { Home } from './pages/home.tsx';
import { Login } from './pages/login.tsx';
import { Shell } from './parts/shell.tsx';
import { Empty, Loading, Problem } from './parts/states.tsx';
import { type ApiError, remove, whenLoggedOut } from './server/api.ts';
import { toApiError } from './server/resource.ts';
import { isLoggedIn, logIn, takeTokenFromAddress } from './server/session.ts';

type Session = { state: 'checking' | 'in' | 'out' } | { state: 'refused' | 'unreachable'; error: ApiError };

/** Pages beside the first one are loaded when they are opened. */
const PAGES = {
  hosts: () => import('./pages/hosts.tsx').then((page) => page.Hosts),
  new: () => import('./pages/new-run/index.tsx').then((page) => page.NewRun),
  runs: () => import('./pages/runs.tsx').then((page) => page.Runs),
  run: () => import('./pages/run.tsx').then((page) => page.RunPage),
  compare: () => import('./pages/compare.tsx').then((page) => page.Compare),
  live: () => import('./pages/live/index.tsx').then((page) => page.Live),
  qos: () => import('./pages/qos/index.tsx').then((page) => page.Qos),
  tune: () => import('./pages/tune/index.tsx').then((page) => page.Tune),
};

export function App() {
  const [session, setSession] = useState<Session>({ state: 'checking' });
  const route = useRoute();

  useEffect(() => {
    const check = () => {
      const token = takeTokenFromAddress();
      enter(token).then(setSession);
    };
    whenLoggedOut(() => setSession({ state: 'out' }));
    check();
    // A new address pasted into this tab changes only what follows the '#'.
    const onHash = () => location.hash.includes('token=') && check();
    addEventListener('hashchange', onHash);
    return () => removeEventListener('hashchange', onHash);
  }, []);

  switch (session.state) {
    case 'checking':
      return <Loading />;
    case 'unreachable':
      return (
        <main class="alone">
          <Problem error={session.error} retry={() => location.reload()} />
        </main>
      );
    case 'in':
      return (
        <Shell route={route} onLogOut={() => void leave().then(setSession)}>
          <CurrentPage route={route} />
        </Shell>
      );
    default:
      return (
        <Login refused={'error' in session ? session.error : null} onIn={() => setSession({ state: 'in' })} />
      );
  }
}

async function enter(token: string | null): Promise<Session> {
  try {
    if (token) await logIn(token);
    return { state: token || (await isLoggedIn()) ? 'in' : 'out' };
  } catch (failure) {
    const error = toApiError(failure);
    return { state: error.status === 401 ? 'refused' : 'unreachable', error };
  }
}

async function leave(): Promise<Session> {
  // A server that is gone has forgotten the session.
  await remove('/session').catch(() => null);
  return { state: 'out' };
}

function CurrentPage({ route }: { route: Route }) {
  const t = useWords();
  const title = titleOf(route, t.nav);
  useEffect(() => {
    document.title = `${title} · kagiri`;
  }, [title]);
  switch (route.page) {
    case 'home':
      return <Home />;
    case 'unknown':
      return (
        <Empty title={t.common.notFound} help={t.common.notFoundHelp}>
          <a class="button primary" href="/">
            {t.nav.home}
          </a>
        </Empty>
      );
    case 'live':
      return <Lazy key={route.job} name="live" page={{ job: route.job }} />;
    case 'run':
      return <Lazy key={route.run} name="run" page={{ run: route.run }} />;
    case 'compare':
      return <Lazy key={route.runs.join()} name="compare" page={{ runs: route.runs }} />;
    default:
      return <Lazy key={route.page} name={route.page} page={{}} />;
  }
}

function titleOf(route: Route, names: Record<string, unknown>): string {
  const name = names[route.page];
  return typeof name === 'string' ? name : 'job' in route ? route.job : 'run' in route ? route.run : '?';
}

function Lazy(props: { name: keyof typeof PAGES; page: object }) {
  const [Part, setPart] = useState<ComponentType<object> | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  useEffect(() => {
    PAGES[props.name]()
      .then((part) => setPart(() => part as ComponentType<object>))
      .catch((failure: unknown) => setError(toApiError(failure)));
  }, [props.name]);
  if (error) return <Problem error={error} retry={() => location.reload()} />;
  return Part ? <Part {...props.page} /> : <Loading />;
}
