// The charts of a job.

import { useWords } from '../../i18n/index.ts';
import type { SampleRing } from '../../lib/ring.ts';
import { Chart } from '../../parts/chart.tsx';
import { chartsOf } from './model.ts';

export function Charts(props: { ring: SampleRing; loadUnit: string; isOver: boolean }) {
  const t = useWords();
  const { ring, loadUnit, isOver } = props;
  const title = isOver ? t.live.chartsAfter : t.live.charts;
  // No sample will come any more.
  if (isOver && ring.points() === 0) return null;
  const caption = t.live.samples(ring.samples, ring.samplesPerPoint);
  const times = ring.timesS();
  return (
    <section aria-label={title}>
      <h2>{title}</h2>
      {ring.points() === 0 ? (
        <p class="soft">{t.live.noSamples}</p>
      ) : (
        <>
          <p class="soft">{t.live.chartHelp}</p>
          <div class="charts">
            {chartsOf(ring.names(), loadUnit).map((chart) => (
              <Chart
                key={`${chart.group} ${chart.unit}`}
                title={t.live.groups[chart.group]}
                unit={chart.unit}
                unitWords={chart.group === 'cpu' ? t.live.cpuUnit : chart.unit}
                times={times}
                series={chart.series.map(({ name, label }) => ({ label, values: ring.values(name) }))}
                caption={caption}
              />
            ))}
          </div>
        </>
      )}
    </section>
  );
}
