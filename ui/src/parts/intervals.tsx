// Intervals of one quantity, one below the other on one scale.

import type { Interval } from '../server/types.ts';

const WIDTH = 160;
/** As high as the values beside it. */
const ROW = 24;
const MARGIN = 6;

export interface Span {
  value: number | null;
  interval: Interval | null;
}

/** Positions within the drawing; `null`: not known. Pure, so that it can be tested. */
export function positionsOf(
  spans: readonly (Span | null)[],
): ({ low: number; high: number; value: number } | null)[] {
  const ends = spans.flatMap((span) =>
    span ? [span.value, span.interval?.[0] ?? null, span.interval?.[1] ?? null].filter(isKnown) : [],
  );
  const [least, most] = [Math.min(...ends), Math.max(...ends)];
  const at = (value: number) =>
    most > least ? MARGIN + ((value - least) / (most - least)) * (WIDTH - 2 * MARGIN) : WIDTH / 2;
  return spans.map((span) => {
    if (!span || !isKnown(span.value)) return null;
    const [low, high] = span.interval ?? [null, null];
    return { low: at(low ?? span.value), high: at(high ?? span.value), value: at(span.value) };
  });
}

function isKnown(value: number | null): value is number {
  return value !== null && Number.isFinite(value);
}

export function Intervals(props: { spans: readonly (Span | null)[]; label: string }) {
  const positions = positionsOf(props.spans);
  return (
    <svg
      class="intervals"
      role="img"
      aria-label={props.label}
      width={WIDTH}
      height={ROW * positions.length}
      viewBox={`0 0 ${WIDTH} ${ROW * positions.length}`}
    >
      {positions.map((position, at) => {
        if (!position) return null;
        const y = ROW * at + ROW / 2;
        return (
          <g key={at} class={`interval interval-${(at % 6) + 1}`}>
            <line x1={position.low} x2={position.high} y1={y} y2={y} />
            <circle cx={position.value} cy={y} r={3.5} />
          </g>
        );
      })}
    </svg>
  );
}
