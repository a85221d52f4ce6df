// Server-sent events.

import { address, get } from './api.ts';

export type StreamState = 'connecting' | 'open' | 'lost';

interface Handlers {
  onEvent: (name: string, data: unknown) => void;
  onState: (state: StreamState) => void;
  /** The stream begins from its start: what came before comes again. */
  onRestart?: () => void;
}

/** Wait before a stream that the server ended is opened anew. */
const RETRY_MS = 2000;
/** The server's word that nothing more comes. */
const END = 'bye';

/**
 * Follows `GET path` while the page is visible: browsers open only six connections to a server, for all tabs.
 * The browser connects anew by itself and sends Last-Event-ID; a stream that was closed here restarts.
 * The returned function ends it.
 */
export function follow(path: string, names: readonly string[], handlers: Handlers): () => void {
  let source: EventSource | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let hasEnded = false;
  const close = () => {
    clearTimeout(timer);
    source?.close();
    source = null;
  };
  const open = () => {
    close();
    handlers.onState('connecting');
    handlers.onRestart?.();
    const opened = new EventSource(address(path));
    source = opened;
    opened.onopen = () => handlers.onState('open');
    opened.onerror = () => {
      handlers.onState('lost');
      if (opened.readyState !== EventSource.CLOSED) return;
      // A stream does not say why it is refused; another request does, if a new login is needed.
      get('/console').catch(() => {});
      timer = setTimeout(open, RETRY_MS);
    };
    opened.addEventListener(END, () => {
      hasEnded = true;
      close();
    });
    for (const name of names) {
      opened.addEventListener(name, (event) => {
        const data = parsed((event as MessageEvent<string>).data);
        if (data !== undefined) handlers.onEvent(name, data);
      });
    }
  };
  const onVisibility = () => {
    if (document.hidden) close();
    else if (!source && !hasEnded) open();
  };
  document.addEventListener('visibilitychange', onVisibility);
  if (!document.hidden) open();
  return () => {
    document.removeEventListener('visibilitychange', onVisibility);
    close();
  };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
