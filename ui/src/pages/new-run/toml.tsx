// The plan as text: typed here, copied, saved as a file.

import { useState } from 'preact/hooks';

import { useWords } from '../../i18n/index.ts';
import { textOf } from '../../lib/schema.ts';
import { AreaField } from '../../parts/field.tsx';
import type { Draft } from './draft.ts';
import { correctionsOf } from './errors.ts';

/** In the text every error keeps the name of its key. */
const NO_KEYS: ReadonlySet<string> = new Set();

/** A file name of a run's name: letters, digits and dashes. */
export function fileNameOf(name: string): string {
  const plain = name
    .normalize('NFKC')
    .replace(/[^\p{L}\p{N}]+/gu, '-')
    .replace(/^-+|-+$/g, '');
  return `${plain.toLowerCase() || 'plan'}.toml`;
}

function saveAsFile(name: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: 'application/toml' }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

export function TomlEditor({ draft }: { draft: Draft }) {
  const t = useWords();
  const [isCopied, setIsCopied] = useState(false);
  const errors = correctionsOf([], draft.check?.errors ?? [], NO_KEYS, t).map((error) =>
    error.line === null ? error.message : `${t.newRun.line(error.line)}: ${error.message}`,
  );
  const copy = async () => {
    await navigator.clipboard.writeText(draft.toml);
    setIsCopied(true);
  };
  return (
    <>
      <AreaField
        isLabelHidden
        label={t.newRun.toml}
        help={t.newRun.tomlHelp}
        value={draft.toml}
        onValue={(text) => {
          setIsCopied(false);
          draft.setToml(text);
        }}
        rows={24}
        isCode
        errors={errors}
      />
      <p class="buttons">
        <button type="button" onClick={() => saveAsFile(fileNameOf(textOf(draft.plan.name)), draft.toml)}>
          {t.newRun.exportFile}
        </button>
        {navigator.clipboard && (
          <button type="button" onClick={() => void copy()}>
            {t.newRun.copy}
          </button>
        )}
        <span role="status">{isCopied && t.newRun.copied}</span>
      </p>
    </>
  );
}
