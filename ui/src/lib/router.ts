// The page that the address names.

import { createStore, useStore } from './store.ts';

export type Route =
  | { page: 'home' | 'hosts' | 'new' | 'runs' | 'qos' | 'tune' | 'unknown' }
  | { page: 'live'; job: string }
  | { page: 'run'; run: string }
  | { page: 'compare'; runs: string[] };

const SIMPLE = ['hosts', 'new', 'runs', 'qos', 'tune'] as const;

export function routeOf(pathname: string, search: string): Route {
  const [first = '', second = '', ...rest] = pathname.split('/').filter(Boolean).map(decoded);
  if (rest.length > 0) return { page: 'unknown' };
  if (first === '') return { page: 'home' };
  if (first === 'live' && second) return { page: 'live', job: second };
  if (first === 'runs' && second) return { page: 'run', run: second };
  if (first === 'compare') {
    const ids = new URLSearchParams(search).get('ids') ?? '';
    return { page: 'compare', runs: ids.split(',').filter(Boolean) };
  }
  const simple = SIMPLE.find((name) => name === first);
  return simple && !second ? { page: simple } : { page: 'unknown' };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

const here = createStore(typeof location === 'undefined' ? '/' : location.pathname + location.search);

/** Shows the page of `path`; `replace`: without a new entry in the history. */
export function navigate(path: string, replace = false): void {
  if (replace) history.replaceState(null, '', path);
  else history.pushState(null, '', path);
  here.set(path);
  scrollTo(0, 0);
}

export function startRouter(): void {
  addEventListener('popstate', () => here.set(location.pathname + location.search));
  // Links within the console change the page without loading it anew.
  document.addEventListener('click', (event) => {
    const link = (event.target as Element | null)?.closest?.('a');
    const isPlain =
      event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (!link || !isPlain || event.defaultPrevented || link.target || link.hasAttribute('download')) return;
    const url = new URL(link.href, location.href);
    if (url.origin !== location.origin || url.pathname.startsWith('/api/') || url.pathname === '/metrics')
      return;
    // A link to a place in this page.
    if (url.hash && url.pathname === location.pathname) return;
    event.preventDefault();
    navigate(url.pathname + url.search);
  });
}

export function useRoute(): Route {
  const [pathname = '/', search = ''] = useStore(here).split('?');
  return routeOf(pathname, search);
}
