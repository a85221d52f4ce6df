// The language of the pages: as chosen here, or as the browser prefers.

import { createStore, useStore } from '../lib/store.ts';
import { keep, stored } from '../lib/theme.ts';
import { type Dictionary, en } from './en/index.ts';

export type { Dictionary } from './en/index.ts';

const KEY = 'kagiri.language';
const current = createStore<Dictionary>(en);

export type Language = 'en' | 'ja';

/** Japanese if it was chosen, or if the browser prefers it and nothing was chosen. */
export function preferred(chosen: string | null, languages: readonly string[]): Language {
  if (chosen === 'ja' || chosen === 'en') return chosen;
  const first = languages.find((language) => /^(ja|en)\b/.test(language));
  return first?.startsWith('ja') ? 'ja' : 'en';
}

/** Loads the words before the first page is drawn. */
export async function startLanguage(): Promise<void> {
  await use(preferred(stored(KEY), navigator.languages));
}

export async function setLanguage(language: Language): Promise<void> {
  keep(KEY, language);
  await use(language);
}

async function use(language: Language): Promise<void> {
  current.set(language === 'ja' ? (await import('./ja/index.ts')).ja : en);
  document.documentElement.lang = language;
}

/** The words of the chosen language. */
export function useWords(): Dictionary {
  return useStore(current);
}
