// What a run found, in the rows of lists.

import { useWords } from '../i18n/index.ts';
import { UNKNOWN } from '../lib/format.ts';
import type { JobState, RunRow } from '../server/types.ts';

/** What it measured, in one line. A run without an answer has its state there, which is known in any language. */
export function AnswerOf({ run }: { run: RunRow }) {
  const { states } = useWords().job;
  return <>{run.answer === run.state ? (states[run.state as JobState] ?? run.answer) : run.answer}</>;
}

/** What limits it, if a limit was found. */
export function LimitOf({ run }: { run: RunRow }) {
  const t = useWords();
  if (!run.limit || [UNKNOWN, 'unknown', 'none'].includes(run.limit)) return null;
  return <span class="soft"> · {t.runs.limit(run.limit)}</span>;
}
