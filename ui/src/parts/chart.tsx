// A chart of one unit over time. All charts of a page share one crosshair.

import { useEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';

import { clock, number, quantity, scale } from '../lib/format.ts';
import { useStore } from '../lib/store.ts';
import { paletteVersion } from '../lib/theme.ts';

export interface ChartSeries {
  label: string;
  values: (number | null)[];
}

interface ChartProps {
  title: string;
  unit: string;
  /** The unit as it is shown beside the title. */
  unitWords: string;
  times: number[];
  series: ChartSeries[];
  /** What the chart was made from, such as `120 samples`. */
  caption: string;
}

const HEIGHT = 170;
const SYNC = 'live';
/** Steps between the labels of the time axis, in s. */
const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400];
/** Steps between the labels of counts. */
const COUNT_STEPS = Array.from({ length: 10 }, (_, power) =>
  [1, 2, 5].map((digit) => digit * 10 ** power),
).flat();

export function Chart(props: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [cursor, setCursor] = useState<number | null>(null);
  const palette = useStore(paletteVersion);
  const { title, unit, times, series } = props;
  const count = series.length;
  const latest = useRef<uPlot.AlignedData>([[]]);
  latest.current = [times, ...series.map((one) => one.values)];

  // A chart is made anew only if its series or colours change.
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const made = new uPlot(optionsOf(count, unit, element, setCursor), latest.current, element);
    plot.current = made;
    const observer = new ResizeObserver(() => {
      if (element.clientWidth > 0) made.setSize({ width: element.clientWidth, height: HEIGHT });
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [count, unit, palette]);

  useEffect(() => {
    plot.current?.setData(latest.current);
  }, [times, series]);

  const shown = (one: ChartSeries) =>
    quantity(cursor === null ? lastKnown(one.values) : (one.values[cursor] ?? null), unit);
  const summary = series.map((one) => `${one.label} ${quantity(lastKnown(one.values), unit)}`).join(', ');
  return (
    <figure class="chart">
      <figcaption>
        <strong>{title}</strong> <span class="chart-unit">{props.unitWords}</span>
        <span class="chart-samples">{props.caption}</span>
      </figcaption>
      <div ref={box} role="img" aria-label={`${title}: ${summary}`} />
      <ul class="chart-legend">
        {series.map((one, at) => (
          <li key={one.label} class={`interval-${(at % 6) + 1}`}>
            <svg width="14" height="10" viewBox="0 0 14 10" aria-hidden="true">
              <line x1="0" x2="14" y1="5" y2="5" />
            </svg>
            {one.label} <strong>{shown(one)}</strong>
          </li>
        ))}
        <li class="chart-time">{cursor === null ? '' : clock(times[cursor] ?? 0)}</li>
      </ul>
    </figure>
  );
}

function lastKnown(values: (number | null)[]): number | null {
  return values.findLast((value) => value !== null) ?? null;
}

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function optionsOf(
  count: number,
  unit: string,
  element: HTMLElement,
  onCursor: (index: number | null) => void,
): uPlot.Options {
  const axis: uPlot.Axis = {
    stroke: colour('--soft'),
    grid: { stroke: colour('--faint'), width: 1 },
    ticks: { stroke: colour('--faint'), width: 1, size: 4 },
    font: '12px system-ui, sans-serif',
  };
  return {
    width: Math.max(200, element.clientWidth),
    height: HEIGHT,
    padding: [8, 8, 0, 0],
    legend: { show: false },
    cursor: { sync: { key: SYNC }, drag: { x: false, y: false }, points: { size: 6 } },
    hooks: { setCursor: [(plot) => onCursor(plot.cursor.idx ?? null)] },
    scales: { x: { time: false }, y: { range: rangeOf(unit) } },
    axes: [
      { ...axis, size: 28, incrs: TIME_STEPS, values: (_plot, ticks) => ticks.map(clock) },
      {
        ...axis,
        size: 62,
        values: (_plot, ticks) => tickWords(ticks, unit),
        ...(isCount(unit) ? { incrs: COUNT_STEPS } : {}),
      },
    ],
    series: [
      {},
      ...Array.from({ length: count }, (_, at) => ({
        stroke: colour(`--s${(at % 6) + 1}`),
        width: 1.5,
        points: { show: false },
      })),
    ],
  };
}

/** Whether values are numbers of things, such as streams: there is no half of one. */
function isCount(unit: string): boolean {
  return !/[/%]|^(B|s|ms|us|)$/.test(unit);
}

/** From zero, so that heights can be compared. */
function rangeOf(unit: string): (plot: uPlot, min: number | null, max: number | null) => [number, number] {
  return (_plot, min, max) => {
    const top = max === null || max <= 0 ? 1 : max * 1.08;
    return [Math.min(0, min ?? 0), unit === '%' ? Math.max(top, 10) : top];
  };
}

/** All ticks of an axis have one prefix. */
function tickWords(ticks: number[], unit: string): string[] {
  const top = Math.max(...ticks.map(Math.abs), 0);
  if (unit !== 'bit/s' && unit !== 'B' && unit !== 'B/s') return ticks.map((tick) => number(tick));
  const { factor, prefix } = scale(top);
  return ticks.map((tick) => (tick === 0 ? '0' : `${number(tick / factor)} ${prefix}`.trim()));
}
