//! The layout of what `state.h` declares and `calls.bpf.c` writes. Both must change together.
#![cfg_attr(not(has_bpf), allow(dead_code, reason = "only the program's reader needs them"))]

use crate::trace::{Away, Event};

/// `struct thread`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Thread {
    pub(super) call_from_ns: u64,
    pub(super) run_from_ns: u64,
    pub(super) process: u32,
    pub(super) place: u16,
    pub(super) number: u16,
    pub(super) away: u8,
    pub(super) until_exec: u8,
    pub(super) began_before: u8,
    pub(super) unused: [u8; 5],
}

pub(super) const STEPS: usize = 32;
#[cfg(test)]
const STEP_BITS: u32 = STEPS.ilog2();
pub(super) const BUCKETS: usize = STEPS * 36;

/// `struct row`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Row {
    pub(super) count: u64,
    pub(super) preempted: u64,
    pub(super) total_ns: u64,
    pub(super) max_ns: u64,
    pub(super) returned: u64,
    pub(super) buckets: [u32; BUCKETS],
}

/// `struct cpu_state`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct CpuState {
    pub(super) calls: u64,
    pub(super) calls_lost: u64,
    pub(super) records: u64,
    pub(super) records_lost: u64,
    pub(super) lost_now: u64,
    pub(super) lost_from_ns: u64,
    pub(super) not_followed: u64,
    pub(super) softirq_from_ns: [u64; 2],
    pub(super) softirq_last_ns: [u64; 2],
}

/// The durations that bucket `index` counts, by their middle, ns.
pub(super) fn middle_of_bucket(index: usize) -> u64 {
    if index < STEPS {
        return index as u64;
    }
    let octave = (index / STEPS) as u32 - 1;
    let step = (index % STEPS) as u64 + STEPS as u64;
    (step << octave) + ((1 << octave) >> 1)
}

/// The bucket of a duration, as the program finds it.
#[cfg(test)]
fn bucket_of(ns: u64) -> usize {
    if ns < STEPS as u64 {
        return ns as usize;
    }
    let exponent = ns.ilog2();
    let step = (ns >> (exponent - STEP_BITS)) as usize & (STEPS - 1);
    (((exponent - STEP_BITS + 1) as usize) * STEPS + step).min(BUCKETS - 1)
}

/// `enum kind`.
mod kind {
    pub(super) const CALL: u8 = 1;
    pub(super) const RUN: u8 = 2;
    pub(super) const SOFTIRQ: u8 = 3;
    pub(super) const FORK: u8 = 4;
    pub(super) const NAME: u8 = 5;
    pub(super) const EXIT: u8 = 6;
    pub(super) const LOST: u8 = 7;
}

const WAITED: u8 = 1;
const PREEMPTED: u8 = 2;
const UNFINISHED: u8 = 4;
const BEGAN_BEFORE: u8 = 8;

/// A number of `N` bytes at a place of a record.
fn at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset + N)?.try_into().ok()
}

/// A record as an event; `None` if it is none that the program writes.
pub(super) fn event_of(bytes: &[u8]) -> Option<Event> {
    let [kind, away] = at::<2>(bytes, 0)?;
    let number = u16::from_ne_bytes(at(bytes, 2)?);
    let thread = u32::from_ne_bytes(at(bytes, 4)?);
    let process = u32::from_ne_bytes(at(bytes, 8)?);
    let value = i32::from_ne_bytes(at(bytes, 12)?);
    let from_ns = u64::from_ne_bytes(at(bytes, 16)?);
    let to_ns = u64::from_ne_bytes(at(bytes, 24)?);
    let cpu = value.cast_unsigned();
    Some(match kind {
        kind::CALL => {
            let away = Away {
                waited: away & WAITED != 0,
                preempted: away & PREEMPTED != 0,
                ended: away & UNFINISHED != 0,
                began_before: away & BEGAN_BEFORE != 0,
            };
            Event::Called { from_ns, to_ns, thread, process, number, away, returned: value.into() }
        }
        kind::RUN => Event::Ran { from_ns, to_ns, thread, process, cpu },
        kind::SOFTIRQ => Event::Softirq { from_ns, to_ns, cpu, vector: number.into() },
        kind::FORK => Event::Started { at_ns: to_ns, thread, process, parent: value.cast_unsigned() },
        kind::NAME => Event::Named { at_ns: to_ns, thread, process, name: name_of(bytes)?, executed: true },
        kind::EXIT => Event::Ended { at_ns: to_ns, thread, process, name: name_of(bytes) },
        kind::LOST => Event::Lost { from_ns: Some(from_ns), to_ns, cpu, events: process.into() },
        _ => return None,
    })
}

/// The name in a `struct name_record`.
fn name_of(bytes: &[u8]) -> Option<String> {
    let name = bytes.get(32..48)?;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    Some(String::from_utf8_lossy(&name[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bucket_middle_is_within_2_percent(ns in 0u64..1 << 40) {
            let middle = middle_of_bucket(bucket_of(ns));
            prop_assert!(middle.abs_diff(ns) as f64 <= ns as f64 / 60.0, "{ns} is counted as {middle}");
        }

        #[test]
        fn arbitrary_bytes_never_panic_as_record(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = event_of(&bytes);
        }
    }

    #[test]
    fn ring_record_round_trips() {
        let mut bytes = vec![kind::CALL, WAITED | PREEMPTED, 44, 0];
        bytes.extend(7u32.to_ne_bytes().into_iter().chain(5u32.to_ne_bytes()).chain((-11i32).to_ne_bytes()));
        bytes.extend(100u64.to_ne_bytes().into_iter().chain(250u64.to_ne_bytes()));
        let away = Away { waited: true, preempted: true, ..Away::default() };
        let (from_ns, to_ns, thread, process) = (100, 250, 7, 5);
        let expected = Event::Called { from_ns, to_ns, thread, process, number: 44, away, returned: -11 };
        assert_eq!(event_of(&bytes), Some(expected));
        assert_eq!(event_of(&bytes[..31]), None);
        assert_eq!(size_of::<Thread>(), 32);
        assert_eq!(size_of::<CpuState>(), 88);
        assert_eq!(size_of::<Row>(), 40 + 4 * BUCKETS);
    }
}
