// Login: the token of the address that the server printed is exchanged for a cookie.

import { get, post } from './api.ts';

/** The token of an address (`#token=...`), or of a text that a person pasted: an address, or the token alone. */
export function tokenOf(text: string): string | null {
  const trimmed = text.trim();
  const found = /[#&?]token=([^&\s]+)/.exec(trimmed)?.[1];
  if (found) return found;
  return /^[\w.~-]{8,}$/.test(trimmed) ? trimmed : null;
}

/** Takes the token out of the address bar, so that it is neither seen nor kept in the history. */
export function takeTokenFromAddress(): string | null {
  const token = tokenOf(location.hash);
  if (token) history.replaceState(null, '', location.pathname + location.search);
  return token;
}

export const logIn = (token: string) => post<null>('/session', { token });

export async function isLoggedIn(): Promise<boolean> {
  try {
    await get('/session');
    return true;
  } catch (error) {
    if ((error as { status?: number }).status === 401) return false;
    throw error;
  }
}
