//! What the messages of a class on one thread came to. Pure.

use std::collections::BTreeMap;

use base::histogram::Histogram;
use sys::net::TcpInfo;

use crate::report::{ClassReport, ClientMemory, MemorySample, Slot, Waits};

/// With more slots, each two become one: a trial of counted messages has no end that is known.
const SLOTS_MAX: u64 = 400;
/// Error messages that are kept word by word.
const MESSAGES_MAX: usize = 3;

/// The moments of a message, ns of the monotonic clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Moments {
    pub(super) intended: u64,
    pub(super) started: u64,
    /// The connection stood.
    pub(super) connected: u64,
    /// The kernel had accepted the last byte.
    pub(super) written: u64,
}

/// Why a message got no good reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Timeout,
    Connect,
    Broken,
    /// A stream of HTTP/2 alone.
    Reset,
    Status,
    Malformed,
}

impl Fault {
    const fn word(self) -> &'static str {
        match self {
            Self::Timeout => "no reply in time",
            Self::Connect => "connect failed",
            Self::Broken => "connection broke",
            Self::Reset => "request reset by the server",
            Self::Status => "status of 400 or above",
            Self::Malformed => "malformed reply",
        }
    }
}

#[derive(Debug)]
pub(super) struct ClassStats {
    /// Messages that are intended before this moment are left out.
    begin_ns: u64,
    start_ns: u64,
    slot_ns: u64,
    /// Looks at the memory of the sockets, and every how many of them is kept.
    looks: u64,
    kept_each: u64,
    target_ns: Option<u64>,
    report: ClassReport,
}

impl ClassStats {
    pub(super) fn new(name: &str, target_ns: Option<u64>, slot_ns: u64) -> Self {
        let report = ClassReport { name: name.to_owned(), ..ClassReport::default() };
        Self { begin_ns: 0, start_ns: 0, slot_ns: slot_ns.max(1), looks: 0, kept_each: 1, target_ns, report }
    }

    pub(super) fn begin(&mut self, start_ns: u64, begin_ns: u64) {
        (self.start_ns, self.begin_ns) = (start_ns, begin_ns);
    }

    fn slot(&mut self, now_ns: u64) -> &mut Slot {
        let elapsed_ns = now_ns.saturating_sub(self.start_ns);
        self.lengthen_slots(elapsed_ns / SLOTS_MAX);
        let slot = (elapsed_ns / self.slot_ns) as usize;
        if slot >= self.report.slots.len() {
            self.report.slots.resize(slot + 1, Slot::default());
        }
        &mut self.report.slots[slot]
    }

    pub(super) const fn slot_ns(&self) -> u64 {
        self.slot_ns
    }

    /// Makes slots longer than this.
    fn lengthen_slots(&mut self, than_ns: u64) {
        while self.slot_ns <= than_ns {
            self.slot_ns *= 2;
            self.kept_each *= 2;
            self.report.halve_resolution();
        }
    }

    /// A message was sent later than it could have been, by this.
    pub(super) fn late(&mut self, intended_ns: u64, late_ns: u64) {
        if intended_ns >= self.begin_ns {
            self.report.late += 1;
            self.report.late_ns_max = self.report.late_ns_max.max(late_ns);
        }
    }

    /// The last byte of a reply came now.
    pub(super) fn answered(&mut self, at: Moments, server_ns: Option<u64>, bytes: u64, now_ns: u64) {
        let response_ns = now_ns.saturating_sub(at.intended);
        let is_in_time = self.target_ns.is_none_or(|target_ns| response_ns <= target_ns);
        let slot = self.slot(now_ns);
        slot.answered += 1;
        slot.in_time += u64::from(is_in_time);
        slot.response_ns_sum += response_ns;
        slot.response_ns_max = slot.response_ns_max.max(response_ns);
        if at.intended < self.begin_ns {
            return;
        }
        let report = &mut self.report;
        report.answered += 1;
        report.in_time += u64::from(is_in_time);
        report.bytes += bytes;
        // A reply that overtakes the end of its message leaves nothing for the network.
        let after_ns = now_ns.saturating_sub(at.written.min(now_ns));
        report.response.record_ns(response_ns);
        report.wait_ns += at.started.saturating_sub(at.intended);
        report.connect_ns += at.connected.saturating_sub(at.started);
        report.write.record_ns(at.written.min(now_ns).saturating_sub(at.connected));
        report.write_ns += at.written.min(now_ns).saturating_sub(at.connected);
        match server_ns {
            Some(server_ns) => {
                let server_ns = server_ns.min(after_ns);
                report.server.get_or_insert_with(Histogram::default).record_ns(server_ns);
                report.server_ns += server_ns;
                report.network.record_ns(after_ns - server_ns);
                report.network_ns += after_ns - server_ns;
            }
            None => {
                report.network.record_ns(after_ns);
                report.network_ns += after_ns;
            }
        }
        let (first_ns, last_ns) = report.span_ns.unwrap_or((at.intended, now_ns));
        report.span_ns = Some((first_ns.min(at.intended), last_ns.max(now_ns)));
    }

    /// A message got no good reply; `why` is asked only if it is kept.
    pub(super) fn failed(
        &mut self,
        intended_ns: u64,
        fault: Fault,
        now_ns: u64,
        why: impl FnOnce() -> String,
    ) {
        self.slot(now_ns).errors += 1;
        if intended_ns < self.begin_ns {
            return;
        }
        let report = &mut self.report;
        report.errors += 1;
        *count_of(&mut report.faults, fault.word()) += 1;
        if report.messages.len() < MESSAGES_MAX && fault != Fault::Timeout {
            let why = why();
            if !report.messages.contains(&why) {
                report.messages.push(why);
            }
        }
    }

    /// Adds what a connection waited for since `base`.
    pub(super) fn waited(&mut self, info: &TcpInfo, base: Waits) {
        self.report.waits.add(&Waits::of(info).since(&base));
        self.report.connections += 1;
    }

    /// A connection of HTTP/2 had `in_use` streams at most at a time, of the `allowed` ones.
    pub(super) fn streams(&mut self, in_use: usize, allowed: Option<usize>) {
        self.report.streams = self.report.streams.max(Some(in_use as u64));
        let allowed = allowed.filter(|allowed| *allowed != usize::MAX).map(|allowed| allowed as u64);
        self.report.streams_allowed = self.report.streams_allowed.into_iter().chain(allowed).min();
    }

    /// The memory of all sockets of the class on this thread, and of the largest; ends a look.
    pub(super) fn memory(&mut self, now_ns: u64, total_bytes: u64, max_bytes: u64) {
        let is_kept = self.keeps_look(now_ns);
        self.looks += 1;
        if is_kept {
            let at_s = now_ns.saturating_sub(self.start_ns) as f64 / 1e9;
            self.report.memory.push(MemorySample { at_s, total_bytes, max_bytes });
        }
    }

    pub(super) fn memory_of(&mut self, client: u32, now_ns: u64, bytes: u64) {
        if !self.keeps_look(now_ns) {
            return;
        }
        let at_s = now_ns.saturating_sub(self.start_ns) as f64 / 1e9;
        let found = self.report.clients_memory.iter_mut().find(|one| one.client == client);
        match found {
            Some(one) => one.samples.push((at_s, bytes)),
            None => self.report.clients_memory.push(ClientMemory { client, samples: vec![(at_s, bytes)] }),
        }
    }

    fn keeps_look(&mut self, now_ns: u64) -> bool {
        self.lengthen_slots(now_ns.saturating_sub(self.start_ns) / SLOTS_MAX);
        self.looks.is_multiple_of(self.kept_each)
    }

    /// With slots of this length.
    pub(super) fn into_report(mut self, clients: u64, slot_ns: u64) -> ClassReport {
        self.lengthen_slots(slot_ns - 1);
        ClassReport { clients, ..self.report }
    }
}

/// The count of a name, which is allocated only once.
fn count_of<'a>(counts: &'a mut BTreeMap<String, u64>, name: &str) -> &'a mut u64 {
    if !counts.contains_key(name) {
        counts.insert(name.to_owned(), 0);
    }
    counts.get_mut(name).expect("it was just inserted")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_is_split_into_its_parts() {
        let mut stats = ClassStats::new("alarm", Some(1000), 100);
        stats.begin(0, 50);
        let at = Moments { intended: 100, started: 110, connected: 130, written: 200 };
        stats.answered(at, Some(300), 9, 1100);
        stats.answered(Moments { intended: 100, ..at }, None, 9, 1101);
        // Before the hold.
        stats.answered(Moments { intended: 49, ..at }, None, 9, 60);
        stats.failed(100, Fault::Timeout, 1200, || unreachable!());
        stats.failed(49, Fault::Broken, 1200, || unreachable!());
        stats.failed(100, Fault::Broken, 1200, || "reset".to_owned());
        let report = stats.into_report(1, 100);
        assert_eq!((report.answered, report.in_time, report.errors, report.bytes), (2, 1, 2, 18));
        let parts = [report.wait_ns, report.connect_ns, report.write_ns, report.network_ns, report.server_ns];
        assert_eq!(parts, [20, 40, 140, 600 + 901, 300]);
        assert_eq!(parts.iter().sum::<u64>(), 1000 + 1001, "the parts add up to the response times");
        assert_eq!(
            report.slots[11],
            Slot { answered: 2, in_time: 1, errors: 0, response_ns_sum: 2001, response_ns_max: 1001 }
        );
        assert_eq!(report.messages, ["reset"]);
    }

    #[test]
    fn long_trial_has_longer_slots_and_keeps_fewer_samples() {
        let run = |slots: u64| {
            let mut stats = ClassStats::new("alarm", None, 100);
            stats.begin(0, 0);
            for now_ns in (0..slots).map(|slot| slot * 100) {
                stats.answered(Moments::default(), None, 1, now_ns);
                stats.memory_of(7, now_ns, 1);
                stats.memory(now_ns, 1, 1);
            }
            stats
        };
        let long = run(3000);
        assert_eq!(long.slot_ns(), 800);
        let long = long.into_report(1, 800);
        let lengths = [long.slots.len(), long.memory.len(), long.clients_memory[0].samples.len()];
        assert_eq!((lengths, long.slots[0].answered), ([375; 3], 8));
        // The other ended earlier.
        let mut all = run(200).into_report(1, 800);
        assert_eq!([all.slots.len(), all.memory.len()], [25; 2]);
        all.add(long);
        assert_eq!((all.slots.len(), all.slots[0].answered, all.memory[24].total_bytes), (375, 16, 2));
    }
}
