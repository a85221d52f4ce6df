// A chart of one unit over time. All charts of a page share one crosshair.

import { useEffect, useRef } from 'preact/hooks';
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
  times: number[];
  series: ChartSeries[];
  /** What the chart was made from, such as `120 samples`. */
  caption: string;
  timeLabel: string;
}

const HEIGHT = 180;
const SYNC = 'live';

export function Chart(props: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const palette = useStore(paletteVersion);
  const { title, unit, timeLabel } = props;
  const labels = props.series.map((one) => one.label).join('\n');
  const data: uPlot.AlignedData = [props.times, ...props.series.map((one) => one.values)];
  const latest = useRef(data);
  latest.current = data;

  // A chart is made anew only if its series, words or colours change.
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const made = new uPlot(optionsOf(labels.split('\n'), unit, timeLabel, element), latest.current, element);
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
  }, [labels, unit, timeLabel, palette]);

  useEffect(() => {
    plot.current?.setData(latest.current);
  });

  const newest = props.series
    .map((one) => `${one.label} ${quantity(lastKnown(one.values), unit)}`)
    .join(', ');
  return (
    <figure class="chart">
      <figcaption>
        <strong>{title}</strong> <span class="chart-unit">{unitWords(unit)}</span>
        <span class="chart-samples">{props.caption}</span>
      </figcaption>
      <div ref={box} role="img" aria-label={`${title}: ${newest}`} />
    </figure>
  );
}

function unitWords(unit: string): string {
  return unit === 'us' ? 'µs' : unit;
}

function lastKnown(values: (number | null)[]): number | null {
  return values.findLast((value) => value !== null) ?? null;
}

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function optionsOf(labels: string[], unit: string, timeLabel: string, element: HTMLElement): uPlot.Options {
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
    cursor: { sync: { key: SYNC }, drag: { x: false, y: false }, points: { size: 6 } },
    scales: { x: { time: false }, y: { range: rangeOf(unit) } },
    axes: [
      { ...axis, values: (_plot, ticks) => ticks.map(clock) },
      { ...axis, size: 68, values: (_plot, ticks) => tickWords(ticks, unit) },
    ],
    series: [
      { label: timeLabel, value: (_plot, value) => (value === null ? '' : clock(value)) },
      ...labels.map((label, at) => ({
        label,
        stroke: colour(`--s${(at % 6) + 1}`),
        width: 1.5,
        // Colour alone does not tell more than three lines apart.
        ...(at >= 3 ? { dash: [6, 3] } : {}),
        points: { show: false },
        value: (_plot: uPlot, value: number | null) => quantity(value, unit),
      })),
    ],
  };
}

/** From zero, so that heights can be compared. */
function rangeOf(unit: string): (plot: uPlot, min: number | null, max: number | null) => [number, number] {
  return (_plot, min, max) => {
    const top = max === null || max <= 0 ? 1 : max * 1.08;
    const floor = unit === '%' ? Math.max(top, 10) : top;
    return [Math.min(0, min ?? 0), floor];
  };
}

/** All ticks of an axis have one prefix. */
function tickWords(ticks: number[], unit: string): string[] {
  const top = Math.max(...ticks.map(Math.abs), 0);
  if (unit !== 'bit/s' && unit !== 'B' && unit !== 'B/s') return ticks.map((tick) => number(tick));
  const { factor, prefix } = scale(top);
  return ticks.map((tick) => (tick === 0 ? '0' : `${number(tick / factor)} ${prefix}`.trim()));
}
