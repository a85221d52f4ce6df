// The first page: measure this machine, then what else there is.

import { useEffect, useState } from 'preact/hooks';

import { useWords } from '../i18n/index.ts';
import { moment, quantity } from '../lib/format.ts';
import { navigate } from '../lib/router.ts';
import { firstPlan } from '../lib/starters.ts';
import { AnswerOf } from '../parts/answer.tsx';
import { JobProgress } from '../parts/progress.tsx';
import { Empty, Loaded, Problem } from '../parts/states.tsx';
import { post } from '../server/api.ts';
import { isUnderWay, useEndedJobs, useJobs } from '../server/jobs.ts';
import { useAction, useResource } from '../server/resource.ts';
import type { Job, PlanCheck, RunList, Server } from '../server/types.ts';

export function Home() {
  const t = useWords();
  const server = useResource<Server>('/console');
  return (
    <>
      <section class="first">
        <h1>{t.home.title}</h1>
        <p class="lead">{t.home.lead}</p>
        <FirstRun />
        <h2>{t.home.meaningTitle}</h2>
        <ul class="meaning">
          {t.home.meaning.map(({ term, text }) => (
            <li key={term}>
              <strong>{term}</strong>
              <span>{text}</span>
            </li>
          ))}
        </ul>
        <p class="soft">{t.home.safe}</p>
      </section>
      <UnderWay />
      <Recent />
      <section>
        <h2>{t.home.nextTitle}</h2>
        <ul class="next">
          {t.home.next.map(({ to, title, text }) => (
            <li key={to}>
              <a href={to}>{title}</a>
              <span>{text}</span>
            </li>
          ))}
        </ul>
      </section>
      <Loaded resource={server}>{(data) => <Machine server={data} />}</Loaded>
    </>
  );
}

function FirstRun() {
  const t = useWords();
  const [cost, setCost] = useState<PlanCheck | null>(null);
  const plan = firstPlan(t.home.planName);
  useEffect(() => {
    post<PlanCheck>('/plans/check', { plan })
      .then(setCost)
      .catch(() => setCost(null));
  }, [t]);
  const start = useAction(async () => {
    const toml = cost?.toml ?? (await post<PlanCheck>('/plans/check', { plan })).toml;
    const job = await post<Job>('/jobs', { toml, name: null, tags: [] });
    navigate(`/live/${job.id}`);
  });
  const words = cost?.cost_words;
  return (
    <>
      <p class="start">
        <button type="button" class="primary large" onClick={() => start.run()} disabled={start.isRunning}>
          {start.isRunning ? t.home.starting : t.home.start}
        </button>
        <span>{words ? t.home.cost(words) : t.home.costUnknown}</span>
      </p>
      <Problem error={start.error} />
    </>
  );
}

function UnderWay() {
  const t = useWords();
  const jobs = (useJobs() ?? []).filter(isUnderWay);
  if (jobs.length === 0) return null;
  return (
    <section>
      <h2>{t.home.underWay}</h2>
      <ul class="jobs">
        {jobs.map((job) => (
          <li key={job.id}>
            <a href={`/live/${job.id}`}>{job.name}</a>
            <JobProgress job={job} />
          </li>
        ))}
      </ul>
    </section>
  );
}

function Recent() {
  const t = useWords();
  const runs = useResource<RunList>('/runs?limit=3');
  useEndedJobs(runs.reload);
  return (
    <section>
      <h2>{t.home.recent}</h2>
      <Loaded resource={runs}>
        {(data) =>
          data.runs.length === 0 ? (
            <Empty title={t.home.recentNone} />
          ) : (
            <>
              <ul class="recent">
                {data.runs.map((run) => (
                  <li key={run.id}>
                    <a href={`/runs/${run.id}`}>{run.name}</a>
                    <span class="soft">{moment(run.began)}</span>
                    <span class={`answer-line ${run.state === 'failed' ? 'failure' : ''}`}>
                      <AnswerOf run={run} />
                    </span>
                  </li>
                ))}
              </ul>
              <p>
                <a href="/runs">{t.home.allRuns}</a>
              </p>
            </>
          )
        }
      </Loaded>
    </section>
  );
}

function Machine({ server }: { server: Server }) {
  const t = useWords();
  const facts = [
    server.host,
    server.cores !== null && t.home.cores(server.cores),
    server.memory_bytes !== null && t.home.memory(quantity(server.memory_bytes, 'B')),
    server.kernel && `Linux ${server.kernel}`,
    `kagiri ${server.version}`,
    server.is_root ? t.home.isRoot : t.home.notRoot,
  ];
  return (
    <footer class="machine">
      {server.store_problem && (
        <div class="problem" role="alert">
          <p>
            {t.home.storeProblem}: {server.store_problem}
          </p>
        </div>
      )}
      <p class="soft">
        {t.home.machine}: {facts.filter(Boolean).join(' · ')}
      </p>
    </footer>
  );
}
