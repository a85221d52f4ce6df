// Data of the server within a component: loading, ready, or failed.

import { useCallback, useEffect, useRef, useState } from 'preact/hooks';

import { ApiError, get } from './api.ts';

export interface Resource<T> {
  /** The last answer; it stays while a newer one is being fetched. */
  data: T | null;
  error: ApiError | null;
  isLoading: boolean;
  reload: () => void;
  /** Replaces the data, for example by what a change returned. */
  setData: (data: T) => void;
}

/** What `GET path` answers; `null` as the path fetches nothing. `everyMs`: fetch again while the page is visible. */
export function useResource<T>(path: string | null, everyMs = 0): Resource<T> {
  const [data, setData] = useState<T | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [isLoading, setIsLoading] = useState(path !== null);
  const [round, setRound] = useState(0);
  const shownPath = useRef(path);
  const isUnderWay = useRef(false);

  useEffect(() => {
    if (path === null) return;
    if (shownPath.current !== path) {
      shownPath.current = path;
      setData(null);
    }
    const abort = new AbortController();
    setIsLoading(true);
    isUnderWay.current = true;
    get<T>(path, abort.signal)
      .then((answer) => {
        setData(answer);
        setError(null);
      })
      .catch((failure: unknown) => {
        if (!abort.signal.aborted) setError(toApiError(failure));
      })
      .finally(() => {
        if (abort.signal.aborted) return;
        isUnderWay.current = false;
        setIsLoading(false);
      });
    return () => abort.abort();
  }, [path, round]);

  useEffect(() => {
    if (everyMs === 0 || path === null) return;
    const timer = setInterval(() => {
      // An answer may take longer than the interval.
      if (!document.hidden && !isUnderWay.current) setRound((value) => value + 1);
    }, everyMs);
    return () => clearInterval(timer);
  }, [path, everyMs]);

  const reload = useCallback(() => setRound((value) => value + 1), []);
  return { data, error, isLoading, reload, setData };
}

export function toApiError(failure: unknown): ApiError {
  if (failure instanceof ApiError) return failure;
  return new ApiError(-1, failure instanceof Error ? failure.message : String(failure));
}

export interface Action<A extends unknown[]> {
  run: (...args: A) => void;
  isRunning: boolean;
  error: ApiError | null;
  clearError: () => void;
}

/** A change that a person asked for: one at a time, and its error stays until the next try. */
export function useAction<A extends unknown[]>(perform: (...args: A) => Promise<void>): Action<A> {
  const [isRunning, setIsRunning] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const isAlive = useRef(true);
  useEffect(
    () => () => {
      isAlive.current = false;
    },
    [],
  );
  const run = (...args: A) => {
    if (isRunning) return;
    setIsRunning(true);
    setError(null);
    perform(...args)
      .catch((failure: unknown) => {
        if (isAlive.current) setError(toApiError(failure));
      })
      .finally(() => {
        if (isAlive.current) setIsRunning(false);
      });
  };
  return { run, isRunning, error, clearError: () => setError(null) };
}

/** `value` as it was when it had not changed for `waitMs`. */
export function useDebounced<T>(value: T, waitMs: number): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), waitMs);
    return () => clearTimeout(timer);
  }, [value, waitMs]);
  return settled;
}
