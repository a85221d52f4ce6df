// The machines that can take part in runs.

import { useWords } from '../i18n/index.ts';
import { moment, quantity } from '../lib/format.ts';
import { Badge, Loaded, Page } from '../parts/states.tsx';
import { useResource } from '../server/resource.ts';
import type { Host, Server } from '../server/types.ts';

const EVERY_MS = 2000;
const TONES = { free: 'good', busy: 'busy', lost: 'bad' } as const;

export function Hosts() {
  const t = useWords();
  const hosts = useResource<Host[]>('/hosts', EVERY_MS);
  const server = useResource<Server>('/console');
  return (
    <Page title={t.hosts.title} lead={t.hosts.lead}>
      <Loaded resource={hosts}>{(data) => <HostTable hosts={data} />}</Loaded>
      <section>
        <h2>{t.hosts.addTitle}</h2>
        <p>{t.hosts.addText}</p>
        <pre class="code">{commandsOf(server.data)}</pre>
      </section>
      <section>
        <h2>{t.home.machine}</h2>
        <Loaded resource={server}>{(data) => <Facts server={data} />}</Loaded>
        <p>
          <a href="/tune">{t.hosts.settings}</a>
        </p>
      </section>
    </Page>
  );
}

function commandsOf(server: Server | null): string {
  const serve = 'kagiri serve --fleet tls/0.0.0.0:7447 --credentials fleet/bundles/coordinator';
  const agent = `kagiri agent --join tls/${server?.host ?? 'HOST'}:7447 --credentials /etc/kagiri`;
  return server?.has_fleet
    ? agent
    : `${serve}
${agent}`;
}

function HostTable({ hosts }: { hosts: Host[] }) {
  const t = useWords();
  const own = hosts.find((host) => host.is_this);
  const columns = t.hosts.columns;
  return (
    <div class="scroll">
      <table class="stack">
        <thead>
          <tr>
            <th scope="col">{columns.name}</th>
            <th scope="col">{columns.state}</th>
            <th scope="col">{columns.running}</th>
            <th scope="col" class="number">
              {columns.cores}
            </th>
            <th scope="col" title={t.hosts.clockHelp}>
              {columns.clock}
            </th>
            <th scope="col">{columns.version}</th>
          </tr>
        </thead>
        <tbody>
          {hosts.map((host) => (
            <tr key={host.name}>
              <th scope="row">
                {host.name}
                <small>{host.is_this ? t.hosts.thisMachine : host.address}</small>
              </th>
              <td data-label={columns.state}>
                <Badge tone={TONES[host.state]}>{t.hosts.states[host.state]}</Badge>
                {host.state === 'lost' && <small>{t.hosts.lostHelp}</small>}
              </td>
              <td data-label={columns.running}>
                {host.running ? <a href={`/live/${host.running}`}>{host.running}</a> : '–'}
              </td>
              <td class="number" data-label={columns.cores}>
                {host.cores ?? '–'}
              </td>
              <td data-label={columns.clock}>{clockWords(host, t.hosts.clock)}</td>
              <td data-label={columns.version}>
                {host.version ?? '–'}
                {own && host.version !== null && host.version !== own.version && (
                  <small>{t.hosts.versionDiffers}</small>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function clockWords(host: Host, say: (offset: string, bound: string) => string): string {
  // A clock does not differ from itself.
  if (host.is_this || host.clock_offset_us === null) return '–';
  return say(quantity(host.clock_offset_us, 'us'), quantity(host.clock_bound_us, 'us'));
}

function Facts({ server }: { server: Server }) {
  const t = useWords();
  const names = t.hosts.facts;
  const facts: [string, string][] = [
    ['kagiri', server.version],
    [names.kernel, server.kernel ? `Linux ${server.kernel}` : t.common.unknown],
    [names.memory, quantity(server.memory_bytes, 'B')],
    [names.root, server.is_root ? names.yes : names.no],
    [names.data, server.data_dir],
    [names.started, moment(server.started)],
  ];
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
