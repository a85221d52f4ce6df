//! What held a transfer back. Pure: from the reports of both ends to a word and its evidence.

use super::flow::ThreadReport;
use super::report::{EndReport, Waits, WayReport};

/// A thread that worked for this share of its time had none to spare.
const CPU_SHARE_FULL: f64 = 0.9;
/// A thread that waited for a CPU for this share of its time was held back by it, however little it used.
const READY_SHARE_FULL: f64 = 0.5;
/// A connection that waited for one thing for this share of its busy time was held back by it.
const WAIT_SHARE: f64 = 0.2;
/// A sender that had data under way for less than this share of its time was not asked for more.
const BUSY_SHARE: f64 = 0.5;

/// Fewer looks at the buffers than this say nothing.
const LOOKS_MIN: u32 = 3;

/// A link that carries this share of what it can at best is full.
const LINK_SHARE_FULL: f64 = 0.97;

/// What held a group of flows back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Held {
    /// The sending end's CPU.
    SenderCpu,
    /// The receiving end's CPU.
    ReceiverCpu,
    /// The receiver's window: more was allowed neither by its buffer nor by what it had read.
    Window,
    /// The sender's buffer is smaller than what the path could hold.
    SendBuffer,
    /// The path: its rate, or its losses.
    Path,
    /// Nothing: the flows were paced, or had nothing more to send.
    Offered,
}

impl Held {
    /// As it stands in JSON and on the screen.
    pub const fn word(self) -> &'static str {
        match self {
            Self::SenderCpu => "sender CPU",
            Self::ReceiverCpu => "receiver CPU",
            Self::Window => "window",
            Self::SendBuffer => "send buffer",
            Self::Path => "path",
            Self::Offered => "rate asked for",
        }
    }
}

/// What held one way back, with the evidence as sentences; `None` where neither end can tell. `link_share`: how much of
/// what the link can carry arrived, where that is known.
pub fn of(way: &WayReport, paced: bool, link_share: Option<f64>) -> Option<(Held, Vec<String>)> {
    let (sender, receiver) = (way.sender.as_ref(), way.receiver.as_ref());
    let signs = Signs {
        paced,
        link_is_full: link_share.is_some_and(|share| share >= LINK_SHARE_FULL),
        sender_is_full: sender.is_some_and(is_out_of_cpu),
        receiver_is_full: receiver.is_some_and(is_out_of_cpu),
    };
    let waits = sender.and_then(|sender| Waiting::of(&sender.waits, sender.elapsed_s()?));
    let link = link_share.filter(|_| signs.link_is_full);
    let evidence = [
        link.map(|share| format!("{:.1} % of what the link can carry arrived", 100.0 * share)),
        sender.and_then(|end| cpu_sentence(end, "sending")),
        receiver.and_then(|end| cpu_sentence(end, "receiving")),
        waits.as_ref().map(Waiting::sentence),
    ];
    Some((signs.held(waits.as_ref())?, evidence.into_iter().flatten().collect()))
}

/// What held each flow of a way back, by its own connection, and by its own threads where it has some for itself.
pub fn of_each(way: &WayReport, paced: bool, link_share: Option<f64>) -> Vec<Option<Held>> {
    let flows = way.receiver.as_ref().or(way.sender.as_ref()).map_or(0, |end| end.flows.len());
    let link_is_full = link_share.is_some_and(|share| share >= LINK_SHARE_FULL);
    let one = |index: usize| {
        let is_full = |end: &Option<EndReport>| {
            let Some(end) = end else { return false };
            let own = end.threads.get(index..=index).filter(|_| end.threads.len() == end.flows.len());
            have_no_time(own.unwrap_or(&end.threads))
        };
        let waits = way.sender.as_ref().and_then(|sender| {
            let (first_ns, last_ns) = sender.flows.get(index)?.moved_ns?;
            let own = sender.waits.get(index..=index).filter(|_| sender.waits.len() == sender.flows.len())?;
            Waiting::of(own, last_ns.saturating_sub(first_ns) as f64 / 1e9)
        });
        let (sender_is_full, receiver_is_full) = (is_full(&way.sender), is_full(&way.receiver));
        Signs { paced, link_is_full, sender_is_full, receiver_is_full }.held(waits.as_ref())
    };
    (0..flows).map(one).collect()
}

/// What speaks for one cause or another, beside what connections waited for.
#[derive(Debug, Clone, Copy)]
struct Signs {
    paced: bool,
    link_is_full: bool,
    sender_is_full: bool,
    receiver_is_full: bool,
}

impl Signs {
    /// A full receiver closes its window: its CPU is the cause, the window only the sign. A full sender waits for
    /// nothing else.
    fn held(self, waits: Option<&Waiting>) -> Option<Held> {
        let Self { paced, link_is_full, sender_is_full, receiver_is_full } = self;
        Some(match waits {
            _ if link_is_full && !paced => Held::Path,
            _ if receiver_is_full && !sender_is_full => Held::ReceiverCpu,
            Some(waits) if receiver_is_full && waits.rwnd >= WAIT_SHARE => Held::ReceiverCpu,
            _ if sender_is_full => Held::SenderCpu,
            Some(waits) if waits.rwnd >= WAIT_SHARE && waits.rwnd >= waits.sndbuf => Held::Window,
            _ if paced => Held::Offered,
            Some(waits)
                if waits.sndbuf >= WAIT_SHARE || waits.drained.is_some_and(|share| share >= WAIT_SHARE) =>
            {
                Held::SendBuffer
            }
            Some(waits) if waits.busy >= BUSY_SHARE => Held::Path,
            Some(_) => Held::Offered,
            None => return None,
        })
    }
}

/// Whether the threads of an end had no time to spare: all that carried bytes, since one slow flow of many holds
/// only itself back.
pub fn is_out_of_cpu(end: &EndReport) -> bool {
    have_no_time(&end.threads)
}

/// The share of its time for which a thread was ready to run and others had its CPU.
fn ready_share(thread: &ThreadReport) -> f64 {
    thread.ready_ns.unwrap_or(0) as f64 / thread.wall_ns.max(1) as f64
}

fn have_no_time(threads: &[ThreadReport]) -> bool {
    // A thread that others kept from its CPU had none to spare either.
    let share =
        |thread: &ThreadReport| thread.cpu_ns as f64 / thread.wall_ns.max(1) as f64 + ready_share(thread);
    let is_full = |thread: &ThreadReport| share(thread) >= CPU_SHARE_FULL;
    !threads.is_empty()
        && (threads.iter().all(is_full)
            || threads.iter().all(|thread| ready_share(thread) >= READY_SHARE_FULL))
}

fn cpu_sentence(end: &EndReport, word: &str) -> Option<String> {
    let most = end.busiest_percent()?;
    let waited = 100.0 * end.threads.iter().map(ready_share).fold(0.0, f64::max);
    let waited =
        if waited >= 1.0 { format!(" and waited {waited:.0} % of the time for one") } else { String::new() };
    Some(format!("the busiest {word} thread used {most:.0} % of a core{waited}"))
}

/// What the senders' connections waited for, shares of the time that they were busy (of the wall for `busy`).
struct Waiting {
    busy: f64,
    rwnd: f64,
    sndbuf: f64,
    /// How often all that the buffers held was under way, share of the looks at them.
    drained: Option<f64>,
    retransmits: u64,
}

impl Waiting {
    /// Of connections that moved bytes for so long.
    fn of(waits: &[Waits], elapsed_s: f64) -> Option<Self> {
        let sum = |of: fn(&Waits) -> Option<u64>| -> Option<u64> {
            let known: Vec<u64> = waits.iter().filter_map(of).collect();
            (!known.is_empty()).then(|| known.iter().copied().fold(0, u64::saturating_add))
        };
        let busy_us = sum(|waits| waits.busy_us)? as f64;
        let wall_us = elapsed_s * 1e6 * waits.len() as f64;
        let share = |us: Option<u64>| us.unwrap_or(0) as f64 / busy_us.max(1.0);
        Some(Self {
            busy: (busy_us / wall_us.max(1.0)).min(1.0),
            rwnd: share(sum(|waits| waits.rwnd_limited_us)),
            sndbuf: share(sum(|waits| waits.sndbuf_limited_us)),
            drained: Self::drained(waits),
            retransmits: sum(|waits| waits.retransmits).unwrap_or(0),
        })
    }

    fn drained(waits: &[Waits]) -> Option<f64> {
        let (all, drained) = waits.iter().fold((0u32, 0u32), |(all, drained), waits| {
            (all.saturating_add(waits.looks), drained.saturating_add(waits.drained))
        });
        (all >= LOOKS_MIN).then(|| f64::from(drained) / f64::from(all))
    }

    fn sentence(&self) -> String {
        let drained = self.drained.filter(|share| *share >= WAIT_SHARE).map_or(String::new(), |share| {
            format!(
                "; in {:.0} % of the looks at it all that the send buffer held was under way",
                100.0 * share
            )
        });
        format!(
            "its connections had data under way for {:.0} % of the time, of it {:.0} % waiting for the receiver's \
             window and {:.0} % for room in the send buffer; {} segments were sent again{drained}",
            100.0 * self.busy,
            100.0 * self.rwnd,
            100.0 * self.sndbuf,
            self.retransmits
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::flow::{Ended, FlowCount, FlowReport};
    use super::super::report::Way;
    use super::*;

    fn end(cpu_share: f64, waits: Option<(u64, u64, u64)>) -> EndReport {
        let flow = FlowReport {
            count: FlowCount { bytes: 1000, ..FlowCount::default() },
            moved_ns: Some((0, 1_000_000_000)),
            ..FlowReport::new(Ended::Done)
        };
        let waits = waits.map(|(busy, rwnd, sndbuf)| Waits {
            busy_us: Some(busy),
            rwnd_limited_us: Some(rwnd),
            sndbuf_limited_us: Some(sndbuf),
            ..Waits::default()
        });
        EndReport {
            flows: vec![flow],
            waits: waits.into_iter().collect(),
            threads: vec![ThreadReport {
                cpu_ns: (cpu_share * 1e9) as u64,
                ready_ns: None,
                wall_ns: 1_000_000_000,
            }],
            ..EndReport::default()
        }
    }

    #[test]
    fn each_cause_by_its_signs() {
        let all = 1_000_000;
        for (sender, receiver, waits, paced, held) in [
            (0.98, 0.5, Some((all, 0, 0)), false, Some(Held::SenderCpu)),
            (0.5, 0.97, Some((all, 900_000, 0)), false, Some(Held::ReceiverCpu)),
            (0.97, 0.97, Some((all, 900_000, 0)), false, Some(Held::ReceiverCpu)),
            (0.2, 0.2, Some((all, 900_000, 0)), false, Some(Held::Window)),
            (0.2, 0.2, Some((all, 0, 800_000)), false, Some(Held::SendBuffer)),
            (0.2, 0.2, Some((all, 100_000, 0)), false, Some(Held::Path)),
            (0.2, 0.2, Some((300_000, 0, 0)), false, Some(Held::Offered)),
            (0.2, 0.2, Some((all, 0, 0)), true, Some(Held::Offered)),
            // Datagrams: only CPU is known.
            (0.98, 0.2, None, false, Some(Held::SenderCpu)),
            (0.2, 0.2, None, false, None),
        ] {
            let way = WayReport {
                way: Way::Up,
                sender: Some(end(sender, waits)),
                receiver: Some(end(receiver, None)),
            };
            assert_eq!(
                of(&way, paced, None).map(|(held, _)| held),
                held,
                "{sender} {receiver} {waits:?} {paced}"
            );
        }
    }

    #[test]
    fn one_idle_thread_of_many_means_that_the_others_are_no_limit() {
        let mut sender = end(0.98, Some((1_000_000, 0, 0)));
        sender.threads.push(ThreadReport { cpu_ns: 10, ready_ns: None, wall_ns: 1_000_000_000 });
        let way = WayReport { way: Way::Down, sender: Some(sender), receiver: None };
        assert_eq!(of(&way, false, Some(0.5)).map(|(held, _)| held), Some(Held::Path));
    }

    #[test]
    fn each_flow_has_a_cause_of_its_own() {
        let all = 1_000_000;
        let mut sender = end(0.2, Some((all, 900_000, 0)));
        let other = end(0.97, Some((all, 0, 0)));
        sender.flows.extend(other.flows.clone());
        sender.waits.extend(other.waits.clone());
        let mut way = WayReport { way: Way::Up, sender: Some(sender), receiver: None };
        assert_eq!(of_each(&way, false, None), [Some(Held::Window), Some(Held::Path)], "one thread has both");
        way.sender.as_mut().unwrap().threads.extend(other.threads);
        assert_eq!(of_each(&way, false, None), [Some(Held::Window), Some(Held::SenderCpu)]);
        assert_eq!(of_each(&way, false, Some(0.99)), [Some(Held::Path); 2]);
        way.sender.as_mut().unwrap().waits.truncate(1);
        assert_eq!(
            of_each(&way, false, None),
            [None, Some(Held::SenderCpu)],
            "whose waits they are is not known"
        );
    }

    #[test]
    fn a_link_that_carries_what_it_can_is_the_limit_whatever_the_threads_do() {
        let way = WayReport {
            way: Way::Up,
            sender: Some(end(0.98, Some((1_000_000, 0, 0)))),
            receiver: Some(end(0.98, None)),
        };
        assert_eq!(of(&way, false, Some(0.985)).map(|(held, _)| held), Some(Held::Path));
        assert_eq!(of(&way, true, Some(0.985)).map(|(held, _)| held), Some(Held::SenderCpu));
    }

    #[test]
    fn a_buffer_with_nothing_unsent_holds_less_than_the_path() {
        let mut sender = end(0.1, Some((1_000_000, 0, 0)));
        (sender.waits[0].looks, sender.waits[0].drained) = (10, 9);
        let mut way = WayReport { way: Way::Up, sender: Some(sender), receiver: None };
        let (held, evidence) = of(&way, false, None).unwrap();
        assert_eq!(held, Held::SendBuffer);
        assert!(evidence.iter().any(|line| line.contains("90 %")), "{evidence:?}");
        // Two looks say nothing.
        way.sender.as_mut().unwrap().waits[0].looks = 2;
        assert_eq!(of(&way, false, None).map(|(held, _)| held), Some(Held::Path));
    }

    #[test]
    fn a_thread_that_waits_for_a_cpu_has_none_to_spare() {
        let mut receiver = end(0.08, None);
        receiver.threads[0].ready_ns = Some(600_000_000);
        let way = WayReport {
            way: Way::Up,
            sender: Some(end(0.2, Some((1_000_000, 0, 0)))),
            receiver: Some(receiver),
        };
        assert_eq!(of(&way, false, None).map(|(held, _)| held), Some(Held::ReceiverCpu));
    }
}
