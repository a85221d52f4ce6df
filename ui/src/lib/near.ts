// Known words that a person may have meant.

/** Insertions, removals and replacements of letters between two words. */
export function editsBetween(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const replaced = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}

/** At most `most` of the known words, nearest first: those that contain `word` before those that are alike. */
export function nearest(word: string, known: readonly string[], most: number): string[] {
  const lower = word.toLowerCase();
  const distance = (one: string) =>
    one.includes(lower) ? one.length / 1000 : 1 + editsBetween(lower, one.toLowerCase());
  return [...known].sort((a, b) => distance(a) - distance(b) || a.localeCompare(b)).slice(0, most);
}
