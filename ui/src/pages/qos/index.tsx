// Policies in force, and the one that is being written.

import { useWords } from '../../i18n/index.ts';
import { Empty, Loaded, Page } from '../../parts/states.tsx';
import { useResource } from '../../server/resource.ts';
import type { QosStatus } from '../../server/types.ts';
import { PolicyEditor } from './editor.tsx';
import { InForce } from './in-force.tsx';

const EVERY_MS = 1000;

export function Qos() {
  const t = useWords();
  const status = useResource<QosStatus>('/qos', EVERY_MS);
  return (
    <Page title={t.qos.title} lead={t.qos.lead}>
      <section>
        <h2>{t.qos.inForce}</h2>
        {status.error?.status === 403 ? (
          <Empty title={status.error.message} help={t.common.rootNeeded} />
        ) : (
          <Loaded resource={status}>
            {(data) =>
              data.policies.length === 0 ? (
                <Empty title={t.qos.notInForce} help={t.qos.notInForceHelp} />
              ) : (
                data.policies.map((record) => (
                  <InForce key={record.pid} record={record} onEnd={status.reload} />
                ))
              )
            }
          </Loaded>
        )}
      </section>
      <PolicyEditor inForce={status.data?.policies ?? []} onApply={status.reload} />
    </Page>
  );
}
