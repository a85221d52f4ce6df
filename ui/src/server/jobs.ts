// The jobs of the server, kept up to date by its events.

import { useEffect, useRef } from 'preact/hooks';
import { createStore, useStore } from '../lib/store.ts';
import { get } from './api.ts';
import { follow } from './events.ts';
import type { Job } from './types.ts';

const jobs = createStore<Job[] | null>(null);
let users = 0;
let end: (() => void) | null = null;

/** Newest first. A job is replaced by its newer state. */
export function withJob(all: readonly Job[], job: Job): Job[] {
  const others = all.filter((other) => other.id !== job.id);
  return [job, ...others].sort((a, b) => b.created.localeCompare(a.created));
}

export const isUnderWay = (job: Job): boolean =>
  job.state === 'queued' || job.state === 'running' || job.state === 'stopping';

/** Whether it failed before a run was stored. */
export const isNotStored = (job: Pick<Job, 'state' | 'run'>): boolean =>
  job.state === 'failed' && job.run === null;

/** Fetches the list. */
export function reloadJobs(): void {
  get<Job[]>('/jobs')
    .then((all) => jobs.set([...all].sort((a, b) => b.created.localeCompare(a.created))))
    .catch(() => {
      // The stream's state says that the server does not answer.
    });
}

function start(): void {
  reloadJobs();
  end = follow('/events', ['jobs', 'removed'], {
    onEvent: (name, data) => {
      const all = jobs.get() ?? [];
      jobs.set(
        name === 'removed' ? all.filter((job) => job.id !== (data as Job).id) : withJob(all, data as Job),
      );
    },
    // What changed while the connection was lost is in the list.
    onState: (state) => state === 'open' && reloadJobs(),
  });
}

/** All jobs; `null`: not known yet. One event stream for all components: browsers open only six connections. */
export function useJobs(): Job[] | null {
  useEffect(() => {
    users += 1;
    if (users === 1) start();
    return () => {
      users -= 1;
      if (users === 0) {
        end?.();
        end = null;
      }
    };
  }, []);
  return useStore(jobs);
}

/** Calls `onEnd` when a job has ended while the component is shown: there may be a new run. */
export function useEndedJobs(onEnd: () => void): void {
  const all = useJobs();
  const ended = all?.filter((job) => !isUnderWay(job)).length ?? null;
  const before = useRef<number | null>(null);
  useEffect(() => {
    if (before.current !== null && ended !== null && ended > before.current) onEnd();
    before.current = ended;
  }, [ended]);
}
