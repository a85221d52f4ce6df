//! Keeps samples and makes the report of them.

use std::collections::BTreeMap;

use base::series::Series;
use serde::{Deserialize, Serialize};

use super::quantity::Quantity;
use super::rates::Sample;

/// 13 minutes at 10 Hz; as JSON, so many samples of all quantities are half of what a coordinator reads of a
/// host. A longer recording has fewer samples per second.
const SAMPLES_MAX: usize = 8192;
/// How far the other programs' CPU may fall below zero before it is taken for noise of the host's counter:
/// three ticks of 10 ms in an interval of 100 ms.
const DEBT_MOST_PERCENT: f64 = 30.0;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// One series for each quantity that could be watched, times in seconds after the start.
    pub series: Vec<Series>,
    pub samples: u64,
    /// Largest delay of a sample after its due time, in ms.
    pub late_ms_max: f64,
    /// Points without a reading, because the sampler was a whole interval late; their values are unknown.
    pub missed: u64,
    /// CPU time of the sampler's own thread, in % of one core; `None` when it took no sample.
    pub cost_cpu_percent: Option<f64>,
    /// For each series, the share of its points that could not be read, in %.
    pub missing: BTreeMap<String, f64>,
    /// The CPUs of the host that may be used.
    #[serde(default)]
    pub cores: Option<u32>,
    pub watched: Watched,
    /// What was requested and could not be watched, and why; one sentence each.
    pub unavailable: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Watched {
    /// The target's processes at the end, those that it had started included.
    pub pids: Vec<i32>,
    pub cgroup: Option<String>,
    pub block_device: Option<String>,
    pub network_device: Option<String>,
    /// Intended samples per second.
    pub rate_hz: f64,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recorder {
    /// Each the mean of `merged` samples in a row, at the time of the last.
    samples: Vec<(f64, Sample)>,
    /// 1 in short recordings, then powers of two; 0 stands for 1.
    merged: u64,
    /// Samples since the last whole group of `merged`.
    pending: Vec<(f64, Sample)>,
    taken: u64,
    /// Samples without this quantity, by its index.
    unread: BTreeMap<usize, u64>,
    other_debt: f64,
    missed: u64,
    late_ns_max: u64,
}

impl Recorder {
    pub fn push(&mut self, at_s: f64, mut sample: Sample) {
        let other = sample.get(Quantity::OtherCpu).map(|percent| self.settle(percent));
        sample.set(Quantity::OtherCpu, other);
        self.keep(at_s, sample);
    }

    /// Records a point without a sample.
    pub fn push_missed(&mut self, at_s: f64) {
        self.missed += 1;
        self.keep(at_s, Sample::UNKNOWN);
    }

    pub fn note_late_ns(&mut self, late_ns: u64) {
        self.late_ns_max = self.late_ns_max.max(late_ns);
    }

    fn keep(&mut self, at_s: f64, sample: Sample) {
        self.taken += 1;
        for quantity in Quantity::ALL.into_iter().filter(|quantity| sample.get(*quantity).is_none()) {
            *self.unread.entry(quantity as usize).or_default() += 1;
        }
        self.pending.push((at_s, sample));
        if (self.pending.len() as u64) < self.merged {
            return;
        }
        self.samples.extend(mean(&self.pending));
        self.pending.clear();
        if self.samples.len() == SAMPLES_MAX {
            self.samples = self.samples.chunks(2).filter_map(mean).collect();
            self.merged = 2 * self.merged.max(1);
        }
    }

    /// The host's counter has ticks of 10 ms, so a difference of two numbers near each other falls on both
    /// sides of zero. Without its negative side, the noise would add up to load that does not exist. It is
    /// carried over to the following samples, so that the mean stays right.
    fn settle(&mut self, percent: f64) -> f64 {
        let balance = percent + self.other_debt;
        self.other_debt = balance.clamp(-DEBT_MOST_PERCENT, 0.0);
        balance.max(0.0)
    }

    pub fn report(mut self, offered: &[Quantity], unavailable: Vec<String>, watched: Watched) -> Report {
        self.samples.extend(mean(&self.pending));
        let missing = |quantity: &Quantity| (quantity.name().to_owned(), self.missing_percent(*quantity));
        Report {
            series: offered.iter().map(|quantity| self.series(*quantity)).collect(),
            samples: self.taken,
            late_ms_max: self.late_ns_max as f64 / 1e6,
            missed: self.missed,
            cost_cpu_percent: None,
            missing: offered.iter().map(missing).collect(),
            cores: None,
            watched,
            unavailable,
        }
    }

    fn series(&self, quantity: Quantity) -> Series {
        let mut series = Series::new(quantity.name(), quantity.unit());
        for (at_s, sample) in &self.samples {
            series.push(*at_s, sample.get(quantity));
        }
        series
    }

    /// Without a sample everything is missing.
    fn missing_percent(&self, quantity: Quantity) -> f64 {
        if self.taken == 0 {
            return 100.0;
        }
        let unread = self.unread.get(&(quantity.read_with() as usize)).copied().unwrap_or(0);
        100.0 * unread as f64 / self.taken as f64
    }
}

/// Of each quantity the mean of the samples in which it could be read, at the time of the last sample; `None`
/// without a sample.
fn mean(samples: &[(f64, Sample)]) -> Option<(f64, Sample)> {
    let (at_s, last) = samples.last()?;
    if samples.len() == 1 {
        return Some((*at_s, *last));
    }
    let mut merged = Sample::UNKNOWN;
    for quantity in Quantity::ALL {
        let read: Vec<f64> = samples.iter().filter_map(|(_, sample)| sample.get(quantity)).collect();
        let sum: f64 = read.iter().sum();
        merged.set(quantity, (!read.is_empty()).then(|| sum / read.len() as f64));
    }
    Some((*at_s, merged))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(percent: f64) -> Sample {
        let mut sample = Sample::UNKNOWN;
        sample.set(Quantity::OtherCpu, Some(percent));
        sample
    }

    #[test]
    fn noise_around_zero_sums_to_zero() {
        let mut recorder = Recorder::default();
        for (place, percent) in [10.0, -10.0, -5.0, 10.0, -10.0, 5.0, 40.0].into_iter().enumerate() {
            recorder.push(place as f64, other(percent));
        }
        let report = recorder.report(&[Quantity::OtherCpu], Vec::new(), Watched::default());
        let values: Vec<f64> = report.series[0].values.iter().map(|value| value.unwrap()).collect();
        assert_eq!(values, [10.0, 0.0, 0.0, 0.0, 0.0, 0.0, 30.0]);
        assert_eq!(values.iter().sum::<f64>(), 40.0, "the mean is that of what came in");
    }

    #[test]
    fn negative_balance_is_bounded() {
        let mut recorder = Recorder::default();
        for place in 0..100 {
            recorder.push(f64::from(place), other(-50.0));
        }
        recorder.push(100.0, other(80.0));
        let report = recorder.report(&[Quantity::OtherCpu], Vec::new(), Watched::default());
        assert_eq!(report.series[0].max(100.0, 100.0), Some(50.0));
    }

    #[test]
    fn missing_samples_are_counted_without_idle_disks() {
        let offered = [Quantity::DiskBusy, Quantity::DiskAwait, Quantity::Slab];
        let mut recorder = Recorder::default();
        for place in 0..4 {
            let mut sample = Sample::UNKNOWN;
            sample.set(Quantity::DiskBusy, Some(0.0));
            sample.set(Quantity::Slab, (place > 0).then_some(1.0));
            recorder.push(f64::from(place), sample);
        }
        recorder.push_missed(4.0);
        recorder.note_late_ns(3_500_000);
        let report = recorder.report(&offered, vec!["x cannot be watched: y.".into()], Watched::default());
        assert_eq!(report.missing["disk_busy_percent"], 20.0);
        assert_eq!(report.missing["disk_await_ms"], 20.0);
        assert_eq!(report.missing["slab_bytes"], 40.0);
        assert_eq!((report.samples, report.missed, report.late_ms_max), (5, 1, 3.5));
        assert_eq!(report.series[1].values, [None; 5]);
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    }

    #[test]
    fn long_recordings_keep_their_mean_with_fewer_samples() {
        let mut recorder = Recorder::default();
        let count = 3 * SAMPLES_MAX as u32 + 3;
        for place in 1..=count {
            let mut sample = other(f64::from(place));
            sample.set(Quantity::Slab, (place % 4 == 0).then_some(8.0));
            recorder.push(f64::from(place), sample);
        }
        let offered = [Quantity::OtherCpu, Quantity::Slab];
        let report = recorder.report(&offered, Vec::new(), Watched::default());
        let values: Vec<f64> = report.series[0].values.iter().map(|value| value.unwrap()).collect();
        assert!((SAMPLES_MAX / 2..=SAMPLES_MAX).contains(&values.len()), "{}", values.len());
        assert_eq!(report.series[0].at_s.first(), Some(&4.0));
        assert_eq!(report.series[0].at_s.last(), Some(&f64::from(count)));
        let whole = &values[..values.len() - 1];
        let mean = whole.iter().sum::<f64>() / whole.len() as f64;
        assert_eq!(mean, f64::from(count - 3 + 1) / 2.0);
        assert_eq!(report.samples, u64::from(count));
        assert_eq!(report.series[1].values[0], Some(8.0));
        assert!((74.9..75.1).contains(&report.missing["slab_bytes"]), "{}", report.missing["slab_bytes"]);
    }

    #[test]
    fn all_is_missing_without_samples() {
        let report = Recorder::default().report(&[Quantity::Slab], Vec::new(), Watched::default());
        assert_eq!(report.missing["slab_bytes"], 100.0);
        assert!(report.series[0].values.is_empty());
    }
}
