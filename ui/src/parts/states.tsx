// What a page shows while it has no data: loading, empty, failed. Each says what to do next.

import type { ComponentChildren } from 'preact';

import { useWords } from '../i18n/index.ts';
import type { ApiError } from '../server/api.ts';
import type { Resource } from '../server/resource.ts';

export function Loading() {
  const t = useWords();
  return (
    <p class="loading" role="status">
      {t.common.loading}
    </p>
  );
}

export function Empty(props: { title: string; help?: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{props.title}</p>
      {props.help && <p>{props.help}</p>}
      {props.children}
    </div>
  );
}

/** An error where it happened: what the server says, and what to do. */
export function Problem(props: { error: ApiError | null; retry?: () => void }) {
  const t = useWords();
  if (!props.error) return null;
  const { status, message } = props.error;
  return (
    <div class="problem" role="alert">
      <p>{status === 0 ? t.common.serverGone : message || t.common.failed}</p>
      {status === 0 && <p>{t.common.serverGoneHelp}</p>}
      {props.retry && (
        <button type="button" onClick={props.retry}>
          {t.common.retry}
        </button>
      )}
    </div>
  );
}

/** The data of `resource`, or its state. Data that is there stays when a later request fails. */
export function Loaded<T>(props: { resource: Resource<T>; children: (data: T) => ComponentChildren }) {
  const { data, error, reload } = props.resource;
  return (
    <>
      <Problem error={error} retry={reload} />
      {data !== null ? props.children(data) : error === null && <Loading />}
    </>
  );
}

export function Badge(props: {
  tone: 'good' | 'bad' | 'odd' | 'calm' | 'busy';
  children: ComponentChildren;
}) {
  return <span class={`badge badge-${props.tone}`}>{props.children}</span>;
}

export function Page(props: { title: string; lead?: string; children: ComponentChildren }) {
  return (
    <>
      <h1>{props.title}</h1>
      {props.lead && <p class="lead">{props.lead}</p>}
      {props.children}
    </>
  );
}
