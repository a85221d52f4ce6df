// A part of a form that can be folded away. It opens by itself for what a person must see, and never closes by itself.

import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';

interface Props {
  title: ComponentChildren;
  /** Something in it is set or wrong. */
  mustShow: boolean;
  class?: string;
  children: ComponentChildren;
}

export function Fold(props: Props) {
  const [isOpen, setIsOpen] = useState(props.mustShow);
  useEffect(() => {
    if (props.mustShow) setIsOpen(true);
  }, [props.mustShow]);
  return (
    <details class={props.class} open={isOpen} onToggle={(event) => setIsOpen(event.currentTarget.open)}>
      <summary>{props.title}</summary>
      {props.children}
    </details>
  );
}
