// Dark or light: as the system says, or as chosen here.

import { createStore } from './store.ts';

export type Theme = 'system' | 'light' | 'dark';
const THEMES: readonly Theme[] = ['system', 'light', 'dark'];
const KEY = 'kagiri.theme';

export const theme = createStore<Theme>('system');
/** Counts changes of the colours, so that charts are drawn anew. */
export const paletteVersion = createStore(0);

export function startTheme(): void {
  const kept = stored(KEY);
  apply(THEMES.find((one) => one === kept) ?? 'system');
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    paletteVersion.set(paletteVersion.get() + 1);
  });
}

export function setTheme(chosen: Theme): void {
  keep(KEY, chosen);
  apply(chosen);
}

function apply(chosen: Theme): void {
  if (chosen === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  theme.set(chosen);
  paletteVersion.set(paletteVersion.get() + 1);
}

/** A kept choice; `null` where the browser keeps nothing. */
export function stored(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

export function keep(key: string, value: string): void {
  try {
    localStorage.setItem(key, value);
  } catch {
    // The choice then lasts as long as the page.
  }
}

/** A kept text: as this tab left it, else as the last tab did. */
export function storedDraft(key: string): string | null {
  try {
    return sessionStorage.getItem(key) ?? localStorage.getItem(key);
  } catch {
    return null;
  }
}

export function keepDraft(key: string, text: string): void {
  try {
    sessionStorage.setItem(key, text);
    localStorage.setItem(key, text);
  } catch {
    // The text then lasts as long as the page.
  }
}
