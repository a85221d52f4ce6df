// Settings of the kernel's network: advice, a change for a time, trials.

import { useState } from 'preact/hooks';

import { useWords } from '../../i18n/index.ts';
import { Loaded, Page } from '../../parts/states.tsx';
import { useResource } from '../../server/resource.ts';
import type { AppliedSettings, Server, Setting } from '../../server/types.ts';
import { AdviceSection } from './advice.tsx';
import { Applied } from './applied.tsx';
import { AutoForm } from './auto.tsx';
import { Changes } from './changes.tsx';
import { SettingTable } from './setting-table.tsx';

const EVERY_MS = 2000;

/** Values to apply, by the setting's name. */
export type Tray = Readonly<Record<string, string>>;

export function Tune() {
  const t = useWords();
  const server = useResource<Server>('/console');
  const settings = useResource<Setting[]>('/settings');
  const applied = useResource<AppliedSettings[]>('/settings/applied', EVERY_MS);
  const [tray, setTray] = useState<Tray>({});
  const reload = () => {
    settings.reload();
    applied.reload();
  };
  const choose = (name: string, value: string) => setTray({ ...tray, [name]: value });
  const isRoot = server.data?.is_root ?? true;
  return (
    <Page title={t.tune.title} lead={t.tune.lead}>
      {!isRoot && <p class="notice">{t.common.rootNeeded}</p>}
      <AdviceSection choose={choose} />
      <Applied resource={applied} onChange={reload} />
      <Loaded resource={settings}>
        {(data) => (
          <>
            <Changes
              settings={data}
              tray={tray}
              setTray={setTray}
              isRoot={isRoot}
              onApply={() => {
                setTray({});
                reload();
              }}
            />
            <SettingTable settings={data} tray={tray} choose={choose} />
          </>
        )}
      </Loaded>
      <AutoForm isRoot={isRoot} settings={settings.data ?? []} />
    </Page>
  );
}
