// How far a job is.

import { useWords } from '../i18n/index.ts';
import { duration } from '../lib/format.ts';
import type { Job } from '../server/types.ts';
import { Badge } from './states.tsx';

const TONES = {
  queued: 'calm',
  running: 'busy',
  stopping: 'busy',
  ended: 'good',
  failed: 'bad',
  interrupted: 'odd',
} as const;

/** Less time than this would be printed as `0 s`. */
const LEAST_LEFT_S = 0.5;

export function JobState(props: { job: Job }) {
  const t = useWords();
  return <Badge tone={TONES[props.job.state]}>{t.job.states[props.job.state]}</Badge>;
}

/** A thin line, and the same in words. */
export function JobProgress(props: { job: Job }) {
  const t = useWords();
  const { job } = props;
  const left =
    job.left_s === null
      ? t.job.leftUnknown
      : job.left_s < LEAST_LEFT_S
        ? t.job.ending
        : t.job.left(duration(job.left_s));
  const words =
    job.state === 'queued'
      ? t.job.waits(job.position ?? 1)
      : [job.elapsed_s !== null && t.job.elapsed(duration(job.elapsed_s)), job.state === 'running' && left]
          .filter(Boolean)
          .join(' · ');
  const share = overall(job);
  return (
    <div class="job-progress">
      <progress max={1} {...(share === null ? {} : { value: share })} aria-label={job.name} />
      <span>{words}</span>
    </div>
  );
}

/** The share of the whole run: of its time, if the time left is known. */
export function overall(job: Job): number | null {
  if (job.state === 'queued') return 0;
  if (job.state === 'ended') return 1;
  if (job.elapsed_s === null || job.left_s === null) return job.done;
  const all = job.elapsed_s + job.left_s;
  return all > 0 ? Math.min(1, job.elapsed_s / all) : null;
}
