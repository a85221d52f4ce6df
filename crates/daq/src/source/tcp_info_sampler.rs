//! Finds which connections retransmitted, and at which event; distinguishes timeouts from tail-loss probes
//! (retransmissions without a timeout).
//!
//! TCP_INFO costs a system call per connection: a sweep starts only if the host's counter of retransmissions
//! changed, and takes a few connections at a time.

use std::path::Path;

use reactor::InfoSampler;
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
    passes: InfoSampler,
    /// The sweep under way attributes losses to the last event sent before.
    cutoff_ns: Option<u64>,
}

impl TcpInfoSampler {
    /// Reads the counters of this thread's network namespace.
    pub(super) fn new() -> Self {
        let host_counters = TcpCounters::open_of_thread(Path::new("/")).ok();
        Self { host_counters, counted: None, passes: InfoSampler::new(EVERY_NS), cutoff_ns: None }
    }

    /// Starts a sweep if the host retransmitted; losses are attributed to events sent before `cutoff_ns`.
    /// `links`: those to note.
    pub(super) fn request_sweep(&mut self, links: &mut [BuilderLink], cutoff_ns: u64) {
        if self.cutoff_ns.is_some() {
            return;
        }
        let happened = self.retransmissions_changed();
        for link in links {
            // A sweep finds what happened since the sweep before.
            link.asked_events = [link.asked_events[1], link.last_event];
        }
        if happened {
            self.passes.begin();
            self.cutoff_ns = Some(cutoff_ns);
        }
    }

    pub(super) fn next_ns(&self) -> u64 {
        self.passes.next_ns()
    }

    /// Samples some connections; starts a sweep every [`EVERY_NS`].
    pub(super) fn continue_sweep(
        &mut self,
        links: &mut [BuilderLink],
        counters: &mut Counters,
        now_ns: u64,
        is_idle: bool,
    ) {
        if self.passes.is_due(now_ns) {
            self.request_sweep(links, now_ns);
        }
        let Some(cutoff_ns) = self.cutoff_ns else { return };
        let sources = links.first().map_or(0, |link| link.connections.len());
        for at in self.passes.take(sources * links.len(), AT_ONCE[usize::from(!is_idle)]) {
            sample(&mut links[at / sources], at % sources, cutoff_ns, counters);
        }
        if self.passes.next_ns() > 0 {
            self.cutoff_ns = None;
        }
    }

    fn retransmissions_changed(&mut self) -> bool {
        let Some(counters) = &mut self.host_counters else { return true };
        let Ok(reading) = counters.read() else { return true };
        let Some(retransmitted) = reading.segments_retransmitted else { return true };
        let now = retransmitted + reading.timeouts.unwrap_or(0);
        self.counted.replace(now).is_none_or(|before| before != now)
    }

    /// Samples all connections at the end, and adds what was found when connections closed.
    pub(super) fn sweep_all(&self, links: &mut [BuilderLink], counters: &mut Counters) {
        for link in links {
            for place in 0..link.connections.len() {
                sample(link, place, u64::MAX, counters);
                if let Some((added, event)) = link.connections[place].final_losses.take() {
                    counters.note_losses(place, link.index, &added, (link.asked_events[0], event));
                }
            }
        }
    }
}

fn sample(link: &mut BuilderLink, place: usize, cutoff_ns: u64, counters: &mut Counters) {
    let [since_event, asked_event] = link.asked_events;
    if let Some((added, event)) = link.connections[place].sample_losses(cutoff_ns, asked_event) {
        counters.note_losses(place, link.index, &added, (since_event, event));
    }
}
