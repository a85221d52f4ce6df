//! Finds which connections retransmitted, and at which event; timeouts and tail-loss probes (retransmissions
//! without a timeout) are told apart.
//!
//! TCP_INFO costs a system call per connection: a sweep starts only if the host's counter of retransmissions
//! changed, and takes a few connections at a time.

use std::path::Path;

use sys::proc::TcpCounters;

use super::builder_link::BuilderLink;
use super::counters::Counters;

/// Interval of reading the host's counter.
const EVERY_NS: u64 = 100_000_000;
/// Connections per step if the thread is idle, and if it is busy: a busy host may never be idle.
const AT_ONCE: [usize; 2] = [32, 4];

#[derive(Debug)]
pub(super) struct TcpInfoSampler {
    /// `None`: the counter cannot be read; then every sweep runs.
    host_counters: Option<TcpCounters>,
    counted: Option<u64>,
    next_ns: u64,
    under_way: Option<Sweep>,
}

#[derive(Debug)]
struct Sweep {
    link: usize,
    place: usize,
    /// Losses are attributed to the last event sent before.
    cutoff_ns: u64,
}

impl TcpInfoSampler {
    /// Reads the counters of this thread's network namespace.
    pub(super) fn new() -> Self {
        let host_counters = TcpCounters::open_of_thread(Path::new("/")).ok();
        Self { host_counters, counted: None, next_ns: 0, under_way: None }
    }

    /// Starts a sweep if the host retransmitted; losses are attributed to events sent before `cutoff_ns`.
    /// `links`: those to note.
    pub(super) fn request_sweep(&mut self, links: &mut [BuilderLink], cutoff_ns: u64) {
        if self.under_way.is_some() {
            return;
        }
        let happened = self.retransmissions_changed();
        for link in links {
            // A sweep finds what happened since the sweep before.
            link.asked_events = [link.asked_events[1], link.last_event];
        }
        self.under_way = happened.then_some(Sweep { link: 0, place: 0, cutoff_ns });
    }

    pub(super) fn next_ns(&self) -> u64 {
        if self.under_way.is_some() { 0 } else { self.next_ns }
    }

    /// Samples some connections; starts a sweep every [`EVERY_NS`].
    pub(super) fn continue_sweep(
        &mut self,
        links: &mut [BuilderLink],
        counters: &mut Counters,
        now_ns: u64,
        is_idle: bool,
    ) {
        if now_ns >= self.next_ns {
            self.next_ns = now_ns + EVERY_NS;
            self.request_sweep(links, now_ns);
        }
        let Some(mut look) = self.under_way.take() else { return };
        for _ in 0..AT_ONCE[usize::from(!is_idle)] {
            let Some(link) = links.get_mut(look.link) else { return };
            let Some(connection) = link.connections.get_mut(look.place) else {
                (look.link, look.place) = (look.link + 1, 0);
                continue;
            };
            look.place += 1;
            let [since_event, asked_event] = link.asked_events;
            let Some((added, event)) = connection.sample_losses(look.cutoff_ns, asked_event) else {
                continue;
            };
            counters.note_losses(look.place - 1, look.link, &added, (since_event, event));
        }
        self.under_way = Some(look);
    }

    fn retransmissions_changed(&mut self) -> bool {
        let Some(counters) = &mut self.host_counters else { return true };
        let Ok(reading) = counters.read() else { return true };
        let Some(retransmitted) = reading.segments_retransmitted else { return true };
        let now = retransmitted + reading.timeouts.unwrap_or(0);
        self.counted.replace(now).is_none_or(|before| before != now)
    }

    /// Samples all connections at the end, and adds what was found when connections closed.
    pub(super) fn sweep_all(&mut self, links: &mut [BuilderLink], counters: &mut Counters) {
        self.under_way = Some(Sweep { link: 0, place: 0, cutoff_ns: u64::MAX });
        while self.under_way.is_some() {
            self.continue_sweep(links, counters, 0, true);
        }
        for link in links {
            for (place, connection) in link.connections.iter_mut().enumerate() {
                if let Some((added, event)) = connection.final_losses.take() {
                    counters.note_losses(place, link.index, &added, (link.asked_events[0], event));
                }
            }
        }
    }
}
