// Tabs, operated as the ARIA practices say: arrows move between them, Tab goes on to the content.

import type { ComponentChildren } from 'preact';
import { useId, useState } from 'preact/hooks';

interface Tab {
  name: string;
  title: string;
  show: () => ComponentChildren;
}

interface Props {
  label: string;
  tabs: Tab[];
  /** The tab that is shown, if the page decides; without it the tabs keep it themselves. */
  chosen?: string;
  onChange?: (name: string) => void;
}

export function Tabs(props: Props) {
  const id = useId();
  const [own, setChosen] = useState(props.tabs[0]?.name);
  const chosen = props.chosen ?? own;
  const { tabs } = props;
  const choose = (tab: Tab | undefined) => {
    if (!tab) return;
    setChosen(tab.name);
    props.onChange?.(tab.name);
    document.getElementById(`${id}-${tab.name}`)?.focus();
  };
  const onKey = (event: KeyboardEvent) => {
    const at = tabs.findIndex((tab) => tab.name === chosen);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    choose(tabs[(at + step + tabs.length) % tabs.length]);
  };
  const shown = tabs.find((tab) => tab.name === chosen);
  return (
    <>
      <div role="tablist" aria-label={props.label} class="tabs" onKeyDown={onKey}>
        {tabs.map((tab) => (
          <button
            key={tab.name}
            type="button"
            role="tab"
            id={`${id}-${tab.name}`}
            aria-selected={tab.name === chosen}
            aria-controls={`${id}-panel`}
            tabIndex={tab.name === chosen ? 0 : -1}
            onClick={() => choose(tab)}
          >
            {tab.title}
          </button>
        ))}
      </div>
      <div role="tabpanel" id={`${id}-panel`} aria-labelledby={`${id}-${chosen}`}>
        {shown?.show()}
      </div>
    </>
  );
}
