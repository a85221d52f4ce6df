// All settings that kagiri knows, with meaning, value, default, range and scope.

import { useState } from 'preact/hooks';

import { useWords } from '../../i18n/index.ts';
import { TextField } from '../../parts/field.tsx';
import type { Setting } from '../../server/types.ts';
import type { Tray } from './index.tsx';
import { shortName } from './values.ts';

interface Props {
  settings: Setting[];
  tray: Tray;
  choose: (name: string, value: string) => void;
}

/** Whether a value differs from the default. A default such as `64 KiB to 4 MiB by the memory` says nothing. */
export function isChanged(value: string | null, byDefault: string | null): boolean {
  const plain = (text: string) => text.trim().split(/\s+/).join(' ');
  if (value === null || byDefault === null || !/^[\w-]+( \d+)*$/.test(plain(byDefault))) return false;
  return plain(value) !== plain(byDefault);
}

export function SettingTable({ settings, tray, choose }: Props) {
  const t = useWords();
  const [words, setWords] = useState('');
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const found = settings.filter((setting) => {
    const text = `${setting.name} ${setting.meaning}`.toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
  return (
    <section>
      <h2>{t.tune.settings}</h2>
      <TextField label={t.tune.filter} value={words} onValue={setWords} input={{ type: 'search' }} />
      {found.length === 0 && <p class="soft">{t.tune.noMatch}</p>}
      <ul class="setting-list">
        {found.map((setting) => (
          <SettingItem key={setting.name} setting={setting} isChosen={setting.name in tray} choose={choose} />
        ))}
      </ul>
    </section>
  );
}

interface ItemProps {
  setting: Setting;
  isChosen: boolean;
  choose: (name: string, value: string) => void;
}

function SettingItem({ setting, isChosen, choose }: ItemProps) {
  const t = useWords();
  const { name, meaning, value, kernel_default, range, scope, unit } = setting;
  const columns = t.tune.columns;
  const facts: [string, string][] = [
    [columns.default, kernel_default || '–'],
    [columns.range, range],
    [columns.scope, t.tune.scopes[scope] ?? scope],
  ];
  return (
    <li>
      <details>
        <summary>
          <span class="setting-name">{shortName(name)}</span>
          <span class="setting-value">
            {value ?? <small>{scope === 'socket' ? t.tune.scopes.socket : t.tune.absent}</small>}
            {value !== null && unit && <small> {unit}</small>}
          </span>
        </summary>
        <p>
          {meaning} <code class="soft">{name}</code>
        </p>
        {isChanged(value, kernel_default) && <p class="soft">{t.tune.differs}</p>}
        {setting.absent && <p class="soft">{setting.absent}</p>}
        <dl class="facts">
          {facts.map(([term, text]) => (
            <div key={term}>
              <dt>{term}</dt>
              <dd>{text}</dd>
            </div>
          ))}
        </dl>
        {value !== null && scope !== 'socket' && (
          <button
            type="button"
            disabled={isChosen}
            onClick={() => {
              choose(name, value);
              // The list of changes is above the settings.
              setTimeout(() => document.getElementById('changes')?.scrollIntoView({ block: 'center' }));
            }}
          >
            {t.tune.change}
          </button>
        )}
      </details>
    </li>
  );
}
