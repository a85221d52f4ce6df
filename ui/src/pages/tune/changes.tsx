// Values that were chosen, before they are applied.

import { useState } from 'preact/hooks';

import { useWords } from '../../i18n/index.ts';
import { duration } from '../../lib/format.ts';
import { SelectField, TextField } from '../../parts/field.tsx';
import { Problem } from '../../parts/states.tsx';
import { post } from '../../server/api.ts';
import { useAction } from '../../server/resource.ts';
import type { AppliedSettings, Setting } from '../../server/types.ts';
import type { Tray } from './index.tsx';
import { isAllowed } from './values.ts';

const TIMES_S = [60, 600, 3600];

interface Props {
  settings: Setting[];
  tray: Tray;
  setTray: (tray: Tray) => void;
  isRoot: boolean;
  onApply: () => void;
}

export function Changes({ settings, tray, setTray, isRoot, onApply }: Props) {
  const t = useWords();
  const [time, setTime] = useState(String(TIMES_S[0]));
  const apply = useAction(async (while_measuring: boolean) => {
    await post<AppliedSettings>('/settings/set', { settings: tray, for_s: Number(time), while_measuring });
    onApply();
  });
  const names = Object.keys(tray);
  const isOutOfRange = (name: string) =>
    isAllowed(settings.find((one) => one.name === name)?.range ?? '', tray[name] ?? '') === false;
  const rangeErrors = (name: string) => {
    const range = settings.find((one) => one.name === name)?.range ?? '';
    return isOutOfRange(name) ? [t.newRun.range(range)] : [];
  };
  if (names.length === 0) return null;
  const drop = (name: string) =>
    setTray(Object.fromEntries(Object.entries(tray).filter(([other]) => other !== name)));
  // An error of one setting is shown beside it.
  const isOf = (name: string) => apply.error?.field === name || apply.error?.field === `settings.${name}`;
  return (
    <section class="card" id="changes">
      <h2>{t.tune.changes}</h2>
      {names.map((name) => {
        const setting = settings.find((one) => one.name === name);
        return (
          <div class="with-remove" key={name}>
            <TextField
              label={<code>{name}</code>}
              help={setting ? `${setting.meaning} (${setting.range})` : undefined}
              value={tray[name] ?? ''}
              onValue={(value) => {
                apply.clearError();
                setTray({ ...tray, [name]: value });
              }}
              errors={isOf(name) && apply.error ? [apply.error.message] : rangeErrors(name)}
            />
            <button type="button" class="quiet" onClick={() => drop(name)}>
              {t.common.remove}
            </button>
          </div>
        );
      })}
      <SelectField
        label={t.tune.forTime}
        value={time}
        options={TIMES_S.map((s) => ({ value: String(s), text: duration(s) }))}
        onValue={setTime}
        help={t.tune.applyHelp}
      />
      {!names.some(isOf) && <Problem error={apply.error} />}
      <button
        type="button"
        class="primary"
        disabled={!isRoot || apply.isRunning || names.some(isOutOfRange)}
        onClick={() => apply.run(false)}
      >
        {t.tune.apply}
      </button>
      {apply.error?.field === 'while_measuring' && (
        <button type="button" disabled={apply.isRunning} onClick={() => apply.run(true)}>
          {t.tune.applyAnyway}
        </button>
      )}
    </section>
  );
}
