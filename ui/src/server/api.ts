// Requests to the server's HTTP API.

const BASE = '/api/v1';

/** An answer that is an error, or none at all (`status` 0). */
export class ApiError extends Error {
  readonly status: number;
  readonly field: string | null;

  constructor(status: number, message: string, field: string | null = null) {
    super(message);
    this.status = status;
    this.field = field;
  }
}

let onLoggedOut: () => void = () => {};

/** `listener` is called whenever the server does not know this browser (any more). */
export function whenLoggedOut(listener: () => void): void {
  onLoggedOut = listener;
}

type Method = 'GET' | 'POST' | 'PATCH' | 'DELETE';

export async function request<T>(
  method: Method,
  path: string,
  body?: unknown,
  signal?: AbortSignal,
): Promise<T> {
  const headers: Record<string, string> = { Accept: 'application/json' };
  // A foreign page cannot send this header without the server's consent.
  if (method !== 'GET') headers['X-Kagiri'] = '1';
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  let response: Response;
  try {
    response = await fetch(BASE + path, {
      method,
      headers,
      credentials: 'same-origin',
      body: body === undefined ? null : JSON.stringify(body),
      signal: signal ?? null,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, '');
  }
  const text = await response.text();
  const content = parse(text);
  if (response.ok) return content as T;
  if (response.status === 401 && path !== '/session') onLoggedOut();
  throw errorOf(response.status, content);
}

function parse(text: string): unknown {
  if (text === '') return null;
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function errorOf(status: number, content: unknown): ApiError {
  const error = (content as { error?: { message?: unknown; field?: unknown } } | null)?.error;
  const message = typeof error?.message === 'string' ? error.message : `HTTP ${status}`;
  return new ApiError(status, message, typeof error?.field === 'string' ? error.field : null);
}

export const get = <T>(path: string, signal?: AbortSignal) => request<T>('GET', path, undefined, signal);
export const post = <T>(path: string, body: unknown = {}, signal?: AbortSignal) =>
  request<T>('POST', path, body, signal);
export const patch = <T>(path: string, body: unknown) => request<T>('PATCH', path, body);
export const remove = (path: string) => request<null>('DELETE', path);

/** The address of `path`, for links and event streams. */
export const address = (path: string): string => BASE + path;
