//! Response times over time: a small histogram for each slot of a trial.

use std::fmt::Formatter;
use std::time::Duration;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Slots at most; the last one also holds what comes later.
const SLOTS_MAX: usize = 128;
/// Slots that a trial is divided into, and their shortest and longest length unless the trial is longer.
const SLOTS: u64 = 50;
const SLOT_NS: (u64, u64) = (100_000_000, 1_000_000_000);
/// Times below 2^10 ns are in the first bucket, those from 2^36 ns (69 s) on in the last.
const BITS: (u32, u32) = (10, 36);
/// Buckets per doubling, as a power of two: times are within 3.2 %.
const PARTS_BITS: u32 = 4;
const BUCKETS: usize = (((BITS.1 - BITS.0) as usize) << PARTS_BITS) + 2;

/// The response times of requests by the slot of their intended send time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OverTime {
    /// The beginning of the first slot, ns of the monotonic clock of the requesting host; 0 in a report.
    #[serde(skip)]
    from_ns: u64,
    slot_ns: u64,
    #[serde(deserialize_with = "few_slots")]
    slots: Vec<Slot>,
}

/// A report is foreign input, and a slot of a few bytes takes a kilobyte once it is read.
fn few_slots<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Slot>, D::Error> {
    struct Few;
    impl<'de> Visitor<'de> for Few {
        type Value = Vec<Slot>;

        fn expecting(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
            write!(formatter, "at most {SLOTS_MAX} slots")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Vec<Slot>, A::Error> {
            let mut slots = Vec::new();
            while let Some(slot) = all.next_element()? {
                if slots.len() == SLOTS_MAX {
                    return Err(serde::de::Error::invalid_length(SLOTS_MAX + 1, &self));
                }
                slots.push(slot);
            }
            Ok(slots)
        }
    }
    from.deserialize_seq(Few)
}

/// The response times of one slot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "SparseSlot", into = "SparseSlot")]
pub struct Slot {
    /// By bucket; empty until the first time is counted.
    counts: Vec<u32>,
    answered: u64,
    max_ns: u64,
}

/// A slot as it is reported: buckets that are not empty, and their counts.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct SparseSlot {
    counts: Vec<(u16, u32)>,
    max_ns: u64,
}

impl OverTime {
    /// The slots of a trial that lasts `whole` from a moment of the monotonic clock on.
    pub(crate) fn new(from_ns: u64, whole: Duration) -> Self {
        let whole_ns = u64::try_from(whole.as_nanos()).unwrap_or(u64::MAX);
        let slot_ns = (whole_ns / SLOTS).clamp(SLOT_NS.0, SLOT_NS.1).max(whole_ns / SLOTS_MAX as u64);
        Self { from_ns, slot_ns, slots: Vec::new() }
    }

    pub(crate) fn count(&mut self, intended_ns: u64, response_ns: u64) {
        if self.slot_ns == 0 {
            return;
        }
        let at = (intended_ns.saturating_sub(self.from_ns) / self.slot_ns).min(SLOTS_MAX as u64 - 1) as usize;
        if at >= self.slots.len() {
            self.slots.resize_with(at + 1, Slot::default);
        }
        self.slots[at].count(response_ns);
    }

    /// Adds the response times of other requests of the same trial.
    pub(crate) fn merge(&mut self, other: &Self) {
        if self.slot_ns == 0 {
            (self.from_ns, self.slot_ns) = (other.from_ns, other.slot_ns);
        }
        if self.slots.len() < other.slots.len() {
            self.slots.resize_with(other.slots.len(), Slot::default);
        }
        self.slots.iter_mut().zip(&other.slots).for_each(|(own, other)| own.merge(other));
    }

    /// The middle of each slot that has responses, in s after the first slot's beginning, and its times.
    pub fn slots(&self) -> impl Iterator<Item = (f64, &Slot)> {
        let middle_s = |at: usize| (at as f64 + 0.5) * self.slot_ns as f64 / 1e9;
        let slots = self.slots.iter().take(SLOTS_MAX).enumerate();
        slots.map(move |(at, slot)| (middle_s(at), slot)).filter(|(_, slot)| slot.answered > 0)
    }
}

impl Slot {
    fn count(&mut self, ns: u64) {
        self.counts.resize(BUCKETS, 0);
        let count = &mut self.counts[bucket_of(ns)];
        *count = count.saturating_add(1);
        self.answered += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    fn merge(&mut self, other: &Self) {
        if other.answered == 0 {
            return;
        }
        self.counts.resize(BUCKETS, 0);
        let counts = self.counts.iter_mut().zip(&other.counts);
        counts.for_each(|(own, other)| *own = own.saturating_add(*other));
        self.answered = self.answered.saturating_add(other.answered);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The time, within 3.2 %, that `percent` of the slot's times are at or below; `None` while empty.
    pub fn percentile_ns(&self, percent: f64) -> Option<u64> {
        let rank = ((self.answered as f64 * percent / 100.0).ceil() as u64).clamp(1, self.answered.max(1));
        let mut below = 0;
        let at = self.counts.iter().position(|&count| {
            below += u64::from(count);
            below >= rank
        })?;
        Some(middle_ns(at).min(self.max_ns))
    }
}

impl From<SparseSlot> for Slot {
    /// Buckets that do not exist are left out: another host may report any.
    fn from(sparse: SparseSlot) -> Self {
        let mut slot = Self { max_ns: sparse.max_ns, ..Self::default() };
        for (at, count) in sparse.counts.into_iter().filter(|(at, _)| usize::from(*at) < BUCKETS) {
            slot.counts.resize(BUCKETS, 0);
            let own = &mut slot.counts[usize::from(at)];
            *own = own.saturating_add(count);
            slot.answered = slot.answered.saturating_add(count.into());
        }
        slot
    }
}

impl From<Slot> for SparseSlot {
    fn from(slot: Slot) -> Self {
        let counts = (0..).zip(slot.counts).filter(|(_, count)| *count > 0).collect();
        Self { counts, max_ns: slot.max_ns }
    }
}

fn bucket_of(ns: u64) -> usize {
    let doublings = ns.max(1).ilog2();
    if doublings < BITS.0 {
        return 0;
    }
    let part = (ns >> (doublings - PARTS_BITS)) as usize & ((1 << PARTS_BITS) - 1);
    (1 + (((doublings - BITS.0) as usize) << PARTS_BITS) + part).min(BUCKETS - 1)
}

fn middle_ns(at: usize) -> u64 {
    let Some(step) = at.checked_sub(1) else { return 1 << (BITS.0 - 1) };
    if at + 1 == BUCKETS {
        return u64::MAX;
    }
    let (doublings, part) = (step >> PARTS_BITS, step & ((1 << PARTS_BITS) - 1));
    let width_ns = 1 << (BITS.0 + doublings as u32 - PARTS_BITS);
    ((1 << PARTS_BITS) + part as u64) * width_ns + width_ns / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn times_are_counted_in_the_slot_of_their_intended_moment() {
        let mut times = OverTime::new(1_000, Duration::from_secs(5));
        for (intended_ns, response_ns) in [(999, 3 * MS), (1_000, 5 * MS), (1_000 + 250 * MS, 40 * MS)] {
            times.count(intended_ns, response_ns);
        }
        let mut other = OverTime::new(1_000, Duration::from_secs(5));
        other.count(1_000 + 299 * MS, 60 * MS);
        // Long after the end.
        other.count(u64::MAX, 7 * MS);
        times.merge(&other);
        let seen: Vec<_> = times.slots().map(|(at_s, slot)| (at_s, slot.answered, slot.max_ns)).collect();
        let last_s = (SLOTS_MAX as f64 - 0.5) * 0.1;
        assert_eq!(seen, [(0.05, 2, 5 * MS), (0.25, 2, 60 * MS), (last_s, 1, 7 * MS)]);
    }

    #[test]
    fn percentiles_are_within_three_percent_and_survive_the_report() {
        let mut times = OverTime::new(0, Duration::from_secs(1));
        let all: Vec<u64> = (1..=1000).map(|step| step * step * 17).filter(|ns| *ns >= 1024).collect();
        all.iter().for_each(|ns| times.count(0, *ns));
        let text = serde_json::to_string(&times).unwrap();
        let read: OverTime = serde_json::from_str(&text).unwrap();
        assert_eq!(read, times);
        let (_, slot) = read.slots().next().unwrap();
        for percent in [1.0, 50.0, 90.0, 99.0, 100.0] {
            let right = all[(all.len() as f64 * percent / 100.0).ceil() as usize - 1] as f64;
            let seen = slot.percentile_ns(percent).unwrap() as f64;
            assert!((seen / right - 1.0).abs() < 0.032, "{seen} for {right}");
        }
    }

    #[test]
    fn long_trials_have_long_slots_and_any_report_can_be_read() {
        assert_eq!(OverTime::new(0, Duration::from_secs(86_400)).slot_ns, 675_000_000_000);
        let text =
            r#"{"slot_ns": 1, "slots": [{"counts": [[65535, 1], [3, 4294967295], [3, 1]], "max_ns": 5}]}"#;
        let read: OverTime = serde_json::from_str(text).unwrap();
        assert_eq!(read.slots().next().unwrap().1.percentile_ns(50.0), Some(5));
        assert_eq!(OverTime::default().slots().count(), 0);
    }
}
