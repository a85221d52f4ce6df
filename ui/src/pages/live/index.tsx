// A job while it runs: progress, charts, trials; then what came of it.

import { useCallback, useEffect, useRef, useState } from 'preact/hooks';

import { useWords } from '../../i18n/index.ts';
import { number } from '../../lib/format.ts';
import { navigate } from '../../lib/router.ts';
import { JobProgress, JobState } from '../../parts/progress.tsx';
import { Loading, Problem } from '../../parts/states.tsx';
import { ApiError, get, post, remove } from '../../server/api.ts';
import { follow, type StreamState } from '../../server/events.ts';
import { toApiError, useAction } from '../../server/resource.ts';
import type { Job } from '../../server/types.ts';
import { Charts } from './charts.tsx';
import { EVENTS, LiveModel } from './model.ts';
import { Outcome } from './outcome.tsx';
import { Trials } from './trials.tsx';

/** Events come at up to 10 Hz; the page is drawn no more often. */
const DRAW_MS = 100;
/** A stop that takes longer can be cut short. */
const STOP_LONG_MS = 10_000;

/** Draws the component after a change, at most every [`DRAW_MS`]. */
function useThrottledDraw(): () => void {
  const [, setVersion] = useState(0);
  const timer = useRef<ReturnType<typeof setTimeout> | null>(null);
  useEffect(
    () => () => {
      if (timer.current) clearTimeout(timer.current);
    },
    [],
  );
  return useCallback(() => {
    timer.current ??= setTimeout(() => {
      timer.current = null;
      setVersion((version) => version + 1);
    }, DRAW_MS);
  }, []);
}

export function Live(props: { job: string }) {
  const t = useWords();
  const model = useRef(new LiveModel()).current;
  const draw = useThrottledDraw();
  const [connection, setConnection] = useState<StreamState>('connecting');
  const [error, setError] = useState<ApiError | null>(null);
  const path = `/jobs/${encodeURIComponent(props.job)}`;

  useEffect(() => {
    let end = () => {};
    let isGone = false;
    // It may have been removed while this page was hidden: then no event says so.
    const look = () =>
      get<Job>(path).catch((failure: unknown) => {
        const error = toApiError(failure);
        if (isGone || error.status !== 404) return;
        setError(error);
        end();
      });
    // The stream itself does not say why it is refused.
    get<Job>(path)
      .then((job) => {
        if (isGone) return;
        model.apply('job', job);
        draw();
        end = follow(`${path}/events`, EVENTS, {
          onEvent: (name, data) => {
            if (name === 'removed') setError(new ApiError(404, ''));
            model.apply(name, data);
            draw();
          },
          onState: (state) => {
            setConnection(state);
            if (state === 'lost') look();
          },
          onRestart: () => model.restart(),
        });
      })
      .catch((failure: unknown) => setError(toApiError(failure)));
    return () => {
      isGone = true;
      end();
    };
  }, [path, model, draw]);

  const job = model.current();
  if (error?.status === 404) return <Problem error={{ ...error, message: t.live.notFound }} />;
  if (error) return <Problem error={error} retry={() => location.reload()} />;
  if (!job) return <Loading />;
  const isOver = job.state === 'ended' || job.state === 'failed' || job.state === 'interrupted';
  return (
    <>
      <div class="live-head">
        <h1>{job.name}</h1>
        <JobState job={job} />
      </div>
      {isOver ? (
        <Outcome job={job} model={model} />
      ) : (
        <UnderWay job={job} model={model} connection={connection} />
      )}
      <Charts ring={model.ring} loadUnit={job.unit ?? ''} isOver={isOver} />
      {(!isOver || model.trialCount > 0) && <Trials model={model} unit={job.unit ?? ''} />}
    </>
  );
}

function UnderWay(props: { job: Job; model: LiveModel; connection: StreamState }) {
  const t = useWords();
  const { job, model, connection } = props;
  const facts: [string, string][] = [];
  if (model.variant && model.variant !== 'default') facts.push([t.live.variant, model.variant]);
  if (model.load !== null)
    facts.push([`${t.live.load}${job.unit ? ` (${job.unit})` : ''}`, number(model.load)]);
  const phase = model.isPreparing ? t.live.preparing : (t.live.phases[model.phase ?? ''] ?? model.phase);
  if (phase) facts.push([t.live.phase, phase]);
  return (
    <section class="live-now">
      <JobProgress job={job} />
      {job.state === 'queued' && <p class="soft">{job.message ?? t.live.queuedHelp}</p>}
      <dl class="facts">
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      <StopButton job={job} />
      <p class={`connection connection-${connection}`} role="status">
        {t.live.connection[connection]}
      </p>
    </section>
  );
}

/** Whether `value` has been true for some time. */
function useIsLong(value: boolean, ms: number): boolean {
  const [isLong, setIsLong] = useState(false);
  useEffect(() => {
    setIsLong(false);
    if (!value) return;
    const timer = setTimeout(() => setIsLong(true), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return isLong;
}

function StopButton({ job }: { job: Job }) {
  const t = useWords();
  const stop = useAction(async () => {
    if (job.state === 'queued') {
      await remove(`/jobs/${encodeURIComponent(job.id)}`);
      navigate('/runs');
    } else {
      await post(`/jobs/${encodeURIComponent(job.id)}/stop`);
    }
  });
  const kill = useAction(async () => {
    await post(`/jobs/${encodeURIComponent(job.id)}/stop`, { at_once: true });
  });
  const words = job.state === 'queued' ? t.live.cancelQueued : t.live.stop;
  const isStopping = job.state === 'stopping' || stop.isRunning;
  const takesLong = useIsLong(job.state === 'stopping', STOP_LONG_MS);
  return (
    <>
      <button type="button" disabled={isStopping} onClick={() => stop.run()}>
        {isStopping ? t.live.stopping : words}
      </button>
      {takesLong && (
        <button
          type="button"
          class="danger"
          disabled={kill.isRunning}
          onClick={() => confirm(t.live.stopAtOnceSure) && kill.run()}
        >
          {t.live.stopAtOnce}
        </button>
      )}
      <Problem error={stop.error ?? kill.error} />
    </>
  );
}
