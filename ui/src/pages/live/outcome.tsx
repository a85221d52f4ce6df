// What came of a job, as soon as it has ended.

import { useWords } from '../../i18n/index.ts';
import { inFields } from '../../lib/advice.ts';
import { number } from '../../lib/format.ts';
import { navigate } from '../../lib/router.ts';
import { Problem } from '../../parts/states.tsx';
import { get, post } from '../../server/api.ts';
import type { EndedVariant, Limit } from '../../server/job-events.ts';
import { useAction } from '../../server/resource.ts';
import type { Job } from '../../server/types.ts';
import type { LiveModel } from './model.ts';
import { TuneAnswer } from './tune-answer.tsx';

/** Whether anything was measured. Pure, so that it can be tested. */
export function hasMeasured(model: Pick<LiveModel, 'end' | 'trialCount'>): boolean {
  return model.trialCount > 0 || (model.end?.variants ?? []).some((one) => one.capacity?.value != null);
}

export function Outcome(props: { job: Job; model: LiveModel }) {
  const t = useWords();
  const { job, model } = props;
  // Of a run that broke off before its first trial, there is no answer, no report and nothing to doubt.
  const isShown = job.state === 'ended' || hasMeasured(model);
  const words =
    job.state === 'failed'
      ? t.live.failed
      : job.state === 'interrupted'
        ? hasMeasured(model)
          ? t.live.endedInterrupted
          : t.live.endedUnmeasured
        : t.live.ended;
  return (
    <section class="outcome" aria-live="polite">
      <p class="soft">{words}</p>
      {job.message && <p class={job.state === 'failed' ? 'failure' : ''}>{job.message}</p>}
      {job.answer && <TuneAnswer answer={job.answer} />}
      {isShown &&
        model.end?.variants.map((variant) => (
          <VariantAnswer key={variant.name} variant={variant} model={model} />
        ))}
      {isShown && <Doubts model={model} />}
      <p class="buttons">
        {job.run && isShown && (
          <a class="button primary" href={`/runs/${job.run}`}>
            {t.live.openReport}
          </a>
        )}
        {job.run && isBrokenOff(job, model) && <Continue run={job.run} />}
        {(job.state === 'failed' || !isShown) && <ChangeAndRun job={job} isFirst={!isShown} />}
        {job.run && (job.state !== 'failed' || isShown) && <RunAgain run={job.run} />}
      </p>
    </section>
  );
}

/** Whether trials are stored, and others of the plan were not measured. Pure, so that it can be tested. */
export function isBrokenOff(job: Job, model: Pick<LiveModel, 'end' | 'trials'>): boolean {
  const hasFailed = job.state === 'interrupted' || job.state === 'failed';
  // A complete run fails, too, if all its trials are invalid.
  return hasFailed && job.kind === 'run' && model.trials.length > 0 && model.end?.state !== 'complete';
}

/** Starts the stored plan of a run again. */
export function RunAgain(props: { run: string }) {
  const t = useWords();
  const ask = async () => {
    const { toml } = await get<{ toml: string }>(`/runs/${encodeURIComponent(props.run)}/plan`);
    return post<Job>('/jobs', { toml, name: null, tags: [] });
  };
  return <StartJob title={t.live.runAgain} ask={ask} />;
}

/** Where what a job was asked for can be corrected. It needs no stored run. */
export function correctionOf(job: Pick<Job, 'id' | 'kind'>): string {
  return `/${job.kind === 'tune' ? 'tune' : 'new'}?job=${encodeURIComponent(job.id)}`;
}

/** The plan of a job in the form, to correct it. */
export function ChangeAndRun(props: { job: Job; isFirst: boolean }) {
  const t = useWords();
  return (
    <a class={`button ${props.isFirst ? 'primary' : ''}`} href={correctionOf(props.job)}>
      {t.run.edit}
    </a>
  );
}

/** Measures what is left of a run that broke off. */
export function Continue(props: { run: string }) {
  const t = useWords();
  return (
    <StartJob
      title={t.live.continueRun}
      help={t.live.continueHelp}
      ask={() => post<Job>('/jobs', { resume: props.run })}
    />
  );
}

/** A button that asks for a job, and then shows its page. */
function StartJob(props: { title: string; help?: string; ask: () => Promise<Job> }) {
  const start = useAction(async () => {
    const job = await props.ask();
    navigate(`/live/${job.id}`);
  });
  return (
    <>
      <button type="button" title={props.help} disabled={start.isRunning} onClick={() => start.run()}>
        {props.title}
      </button>
      <Problem error={start.error} />
    </>
  );
}

function VariantAnswer(props: { variant: EndedVariant; model: LiveModel }) {
  const t = useWords();
  const { variant, model } = props;
  const last = model.trials.find((trial) => trial.variant === variant.name);
  const account = last?.account;
  return (
    <div class="variant-answer">
      {variant.name !== 'default' && <h3>{variant.name}</h3>}
      <p class="answer">{account?.headline ?? <CapacityWords variant={variant} />}</p>
      <LimitWords limit={variant.limit ?? account?.limit ?? null} t={t.live} />
    </div>
  );
}

function CapacityWords({ variant }: { variant: EndedVariant }) {
  const t = useWords();
  const { capacity } = variant;
  if (!capacity || capacity.value === null) return <>{t.common.unknown}</>;
  const isLowerBound = capacity.interval[0] !== null && capacity.interval[1] === null;
  const say = isLowerBound ? t.live.carriesAtLeast : t.live.carries;
  return <>{say(number(capacity.value), capacity.unit)}</>;
}

interface LimitText {
  limitedBy: (resource: string, certainty: string) => string;
  cpuUsers: { name: string; used: (percent: string) => string }[];
  ofWhich: (users: string[]) => string;
  limitUnknown: string;
  certainty: Record<string, string>;
}

/** Of a limit by the CPU: who else used a notable part of it. Pure, so that it can be tested. */
export function cpuUsers(limit: Limit, t: Pick<LimitText, 'cpuUsers' | 'ofWhich'>): string {
  if (limit.resource !== 'cpu') return '';
  const users = t.cpuUsers.flatMap(({ name, used }) => {
    const piece = limit.evidence.find((one) => one.values?.[name] !== undefined);
    return piece ? [used(number(piece.values?.[name]))] : [];
  });
  return users.length > 0 ? t.ofWhich(users) : '';
}

function LimitWords(props: { limit: Limit | null; t: LimitText }) {
  const { limit, t } = props;
  if (!limit) return null;
  const isKnown = limit.certainty !== 'unknown' && limit.resource !== 'none';
  return (
    <>
      <p>
        {isKnown
          ? t.limitedBy(
              `${limit.resource.replaceAll('_', ' ')}${cpuUsers(limit, t)}`,
              t.certainty[limit.certainty] ?? limit.certainty,
            )
          : t.limitUnknown}
      </p>
      {limit.evidence.length > 0 && (
        <ul class="evidence">
          {limit.evidence.slice(0, 3).map((piece) => (
            <li key={piece.statement}>{piece.statement}</li>
          ))}
        </ul>
      )}
    </>
  );
}

interface DoubtText {
  message: string;
  advice: string;
}

/** The doubts of all variants and of the run, each once. */
function doubtsOf(model: LiveModel): DoubtText[] {
  const end = model.end;
  if (!end) return [];
  const all = [...end.variants.flatMap((variant) => variant.doubts), ...end.doubts];
  const found = new Map<string, DoubtText>();
  for (const doubt of all) {
    const { message, advice } = doubt as { message?: unknown; advice?: unknown };
    if (typeof message === 'string') found.set(message, { message, advice: String(advice ?? '') });
  }
  return [...found.values()];
}

function Doubts({ model }: { model: LiveModel }) {
  const t = useWords();
  const doubts = doubtsOf(model);
  if (doubts.length === 0) return null;
  const fields = { repeats: t.newRun.repeats, hosts: t.newRun.hosts, terminal: t.live.terminalOption };
  return (
    <details class="doubts">
      <summary>
        {t.live.doubts} ({doubts.length})
      </summary>
      <p class="soft">{t.live.doubtsHelp}</p>
      <ul>
        {doubts.map(({ message, advice }) => (
          <li key={message}>
            {message}
            {advice && <span class="soft"> — {inFields(advice, fields)}</span>}
          </li>
        ))}
      </ul>
    </details>
  );
}
