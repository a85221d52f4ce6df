// A policy in force: what its classes get, and whether the kernel reports what was set.

import { useWords } from '../../i18n/index.ts';
import { duration, number, quantity, UNKNOWN } from '../../lib/format.ts';
import { Problem } from '../../parts/states.tsx';
import { post } from '../../server/api.ts';
import { useAction } from '../../server/resource.ts';
import type { QosClass, QosRecord, QosSocket } from '../../server/types.ts';

export function InForce({ record, onEnd }: { record: QosRecord; onEnd: () => void }) {
  const t = useWords();
  const { status } = record;
  const end = useAction(async () => {
    await post('/qos/clear', { interface: status.interface, pid: record.pid });
    onEnd();
  });
  return (
    <article class="card">
      <h3>
        {status.interface} <small>{t.qos.since(duration(record.age_s))}</small>
      </h3>
      <p>
        {t.qos.carries(quantity(status.capacity_bit_per_s, 'bit/s'))}
        {status.queue_ms !== null && ` ${t.qos.queue(quantity(status.queue_ms, 'ms'))}`}
      </p>
      <Classes classes={status.classes} sockets={status.sockets} />
      <p class="soft">{t.qos.ratesHelp}</p>
      {status.sockets.length > 0 && <Sockets sockets={status.sockets} />}
      {status.problems.length > 0 && (
        <div class="problem">
          <p>{t.qos.problems}:</p>
          {status.problems.map((problem) => (
            <p key={problem}>{problem}</p>
          ))}
        </div>
      )}
      <Problem error={end.error} />
      <button type="button" disabled={end.isRunning} onClick={() => end.run()}>
        {t.qos.end}
      </button>
    </article>
  );
}

type RateName = 'asked_bit_per_s' | 'enforced_bit_per_s' | 'verified_bit_per_s';

/** The sum over the sockets of a class; `null` if one is not known, or there is none. */
export function sumOf(sockets: readonly QosSocket[], name: RateName): number | null {
  if (sockets.length === 0) return null;
  let sum = 0;
  for (const socket of sockets) {
    const rate = socket[name];
    if (rate === null) return null;
    sum += rate;
  }
  return sum;
}

function Classes(props: { classes: QosClass[]; sockets: QosSocket[] }) {
  const t = useWords();
  const columns = t.qos.columns;
  const cells = (one: QosClass): [string, string][] => {
    const own = props.sockets.filter((socket) => socket.class === one.name);
    const isUrgent = one.target_ms !== null;
    const inTime = isUrgent && one.messages > 0 ? `${number((100 * one.in_time) / one.messages)} %` : UNKNOWN;
    const rate = (name: RateName) => quantity(sumOf(own, name), 'bit/s');
    return [
      [columns.target, quantity(one.target_ms, 'ms')],
      [columns.messages, isUrgent ? number(one.messages) : UNKNOWN],
      [columns.inTime, inTime],
      [columns.median, quantity(one.transfer_p50_ms, 'ms')],
      [columns.p99, quantity(one.transfer_p99_ms, 'ms')],
      [columns.sockets, number(one.sockets + one.udp_sockets)],
      [columns.asked, rate('asked_bit_per_s')],
      [columns.enforced, rate('enforced_bit_per_s')],
      [columns.verified, rate('verified_bit_per_s')],
    ];
  };
  const [first] = props.classes;
  return (
    <div class="scroll">
      <table class="stack">
        <thead>
          <tr>
            <th scope="col">{columns.name}</th>
            {(first ? cells(first) : []).map(([name]) => (
              <th key={name} scope="col" class="number">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {props.classes.map((one) => (
            <tr key={one.name}>
              <th scope="row">{one.name}</th>
              {cells(one).map(([name, text]) => (
                <td key={name} class="number" data-label={name}>
                  {text}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Sockets({ sockets }: { sockets: QosSocket[] }) {
  const t = useWords();
  const columns = t.qos.columns;
  return (
    <details>
      <summary>{t.qos.showSockets(sockets.length)}</summary>
      <div class="scroll">
        <table>
          <thead>
            <tr>
              <th scope="col">{columns.name}</th>
              <th scope="col">{columns.program}</th>
              <th scope="col">{columns.sockets}</th>
              {[columns.asked, columns.enforced, columns.verified].map((name) => (
                <th key={name} scope="col" class="number">
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {sockets.map((socket) => (
              <tr key={`${socket.local} ${socket.peer}`}>
                <td>{socket.class}</td>
                <td>
                  {socket.program} <small>{socket.pid}</small>
                </td>
                <td>
                  <code>
                    {socket.local} → {socket.peer}
                  </code>
                </td>
                <td class="number">{quantity(socket.asked_bit_per_s, 'bit/s')}</td>
                <td class="number">{quantity(socket.enforced_bit_per_s, 'bit/s')}</td>
                <td class="number">{quantity(socket.verified_bit_per_s, 'bit/s')}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}
