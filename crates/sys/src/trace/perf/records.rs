//! The records in a ring, perf_event_open(2), "Ring-buffer".

use super::tracepoints::Tracepoints;
use crate::trace::Event;

const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const SWITCH: u32 = 14;

const MISC_COMM_EXEC: u16 = 1 << 13;
const MISC_SWITCH_OUT: u16 = 1 << 13;
const MISC_SWITCH_OUT_PREEMPTED: u16 = 1 << 14;

/// A record's head: kind, flags, and its size with the head.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    kind: u32,
    misc: u16,
    pub(super) size: usize,
}

impl Head {
    pub(super) const BYTES: usize = 8;

    /// `None` if a record cannot begin so.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let size: usize = number::<u16>(bytes, 6)?.into();
        (size >= Self::BYTES).then_some(Self { kind: number(bytes, 0)?, misc: number(bytes, 4)?, size })
    }
}

/// An integer of the kernel's.
trait Number: Sized {
    fn read(bytes: &[u8], offset: usize) -> Option<Self>;
}

macro_rules! numbers {
    ($($kind:ty),+) => {$(
        impl Number for $kind {
            fn read(bytes: &[u8], offset: usize) -> Option<Self> {
                let bytes = bytes.get(offset..offset + size_of::<Self>())?;
                Some(Self::from_ne_bytes(bytes.try_into().ok()?))
            }
        }
    )+};
}
numbers!(u16, u32, u64, i64);

fn number<T: Number>(bytes: &[u8], offset: usize) -> Option<T> {
    T::read(bytes, offset)
}

/// What stands at the end of every record that is no sample (`sample_id_all`): thread, time, CPU.
struct Trailer {
    process: u32,
    thread: u32,
    at_ns: u64,
    cpu: u32,
}

impl Trailer {
    const BYTES: usize = 24;

    fn parse(record: &[u8]) -> Option<Self> {
        let from = record.len().checked_sub(Self::BYTES)?;
        Some(Self {
            process: number(record, from)?,
            thread: number(record, from + 4)?,
            at_ns: number(record, from + 8)?,
            cpu: number(record, from + 16)?,
        })
    }
}

/// A whole record, its head included, as an event; `None` for those that are no event.
pub(super) fn event_of(record: &[u8], tracepoints: &Tracepoints) -> Option<Event> {
    let head = Head::parse(record)?;
    match head.kind {
        SAMPLE => sample(record, tracepoints),
        SWITCH => Trailer::parse(record).map(|trailer| switch(&trailer, head.misc)),
        FORK => {
            let trailer = Trailer::parse(record)?;
            Some(Event::Started {
                at_ns: trailer.at_ns,
                process: number(record, 8)?,
                thread: number(record, 16)?,
                parent: number(record, 20)?,
            })
        }
        EXIT => {
            let at_ns = Trailer::parse(record)?.at_ns;
            Some(Event::Ended { at_ns, process: number(record, 8)?, thread: number(record, 16)?, name: None })
        }
        COMM => {
            let trailer = Trailer::parse(record)?;
            let name = record.get(16..record.len() - Trailer::BYTES)?;
            let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
            Some(Event::Named {
                at_ns: trailer.at_ns,
                process: number(record, 8)?,
                thread: number(record, 12)?,
                name: String::from_utf8_lossy(&name[..end]).into_owned(),
                executed: head.misc & MISC_COMM_EXEC != 0,
            })
        }
        LOST => {
            let trailer = Trailer::parse(record)?;
            let events = number(record, 16)?;
            Some(Event::Lost { from_ns: None, to_ns: trailer.at_ns, cpu: trailer.cpu, events })
        }
        _ => None,
    }
}

fn switch(trailer: &Trailer, misc: u16) -> Event {
    let Trailer { process, thread, at_ns, cpu } = *trailer;
    match misc & MISC_SWITCH_OUT {
        0 => Event::SwitchedIn { at_ns, thread, process, cpu },
        _ => {
            let preempted = misc & MISC_SWITCH_OUT_PREEMPTED != 0;
            Event::SwitchedOut { at_ns, thread, process, cpu, preempted }
        }
    }
}

/// Thread, time, CPU, then the tracepoint's own data behind its size; that begins with the tracepoint's
/// number (`common_type`), its fields follow from byte 8 on (`events/*/format` in tracefs).
fn sample(record: &[u8], tracepoints: &Tracepoints) -> Option<Event> {
    const RAW: usize = 36;
    let process = number(record, 8)?;
    let thread = number(record, 12)?;
    let at_ns = number(record, 16)?;
    let cpu = number(record, 24)?;
    let tracepoint: u16 = number(record, RAW)?;
    let call = || number::<i64>(record, RAW + 8).and_then(|call| u16::try_from(call).ok());
    match tracepoint {
        it if it == tracepoints.enter => Some(Event::Entered { at_ns, thread, process, number: call()? }),
        it if it == tracepoints.leave => {
            Some(Event::Left { at_ns, thread, process, number: call()?, returned: number(record, RAW + 16)? })
        }
        it if it == tracepoints.softirq_entry => {
            Some(Event::SoftirqBegan { at_ns, cpu, vector: number(record, RAW + 8)? })
        }
        it if it == tracepoints.softirq_exit => {
            Some(Event::SoftirqEnded { at_ns, cpu, vector: number(record, RAW + 8)? })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const POINTS: Tracepoints = Tracepoints { enter: 443, leave: 442, softirq_entry: 223, softirq_exit: 222 };

    fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let size = (Head::BYTES + body.len()) as u16;
        [&kind.to_ne_bytes()[..], &misc.to_ne_bytes(), &size.to_ne_bytes(), body].concat()
    }

    fn trailer() -> Vec<u8> {
        [&5u32.to_ne_bytes()[..], &7u32.to_ne_bytes(), &900u64.to_ne_bytes(), &1u64.to_ne_bytes()].concat()
    }

    #[test]
    fn samples_switches_names_and_losses_are_parsed() {
        let raw =
            [&442u16.to_ne_bytes()[..], &[0; 6], &45i64.to_ne_bytes(), &(-11i64).to_ne_bytes()].concat();
        let body = [trailer(), 28u32.to_ne_bytes().to_vec(), raw].concat();
        let left = Event::Left { at_ns: 900, thread: 7, process: 5, number: 45, returned: -11 };
        assert_eq!(event_of(&record(SAMPLE, 0, &body), &POINTS), Some(left));
        let out = record(SWITCH, MISC_SWITCH_OUT | MISC_SWITCH_OUT_PREEMPTED, &trailer());
        let expected = Event::SwitchedOut { at_ns: 900, thread: 7, process: 5, cpu: 1, preempted: true };
        assert_eq!(event_of(&out, &POINTS), Some(expected));
        let comm = [&5u32.to_ne_bytes()[..], &7u32.to_ne_bytes(), b"nginx\0\0\0", &trailer()].concat();
        let named = Event::Named { at_ns: 900, thread: 7, process: 5, name: "nginx".into(), executed: true };
        assert_eq!(event_of(&record(COMM, MISC_COMM_EXEC, &comm), &POINTS), Some(named));
        let lost = [&3u64.to_ne_bytes()[..], &44u64.to_ne_bytes(), &trailer()].concat();
        let expected = Event::Lost { from_ns: None, to_ns: 900, cpu: 1, events: 44 };
        assert_eq!(event_of(&record(LOST, 0, &lost), &POINTS), Some(expected));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_as_record(
            kind in 0u32..20,
            body in proptest::collection::vec(any::<u8>(), 0..90),
        ) {
            let _ = event_of(&record(kind, 0, &body), &POINTS);
            let _ = event_of(&body, &POINTS);
        }
    }
}
