//! Which connections had to send again, and at which event: this tells a tail-loss probe (retransmissions without a
//! timeout) from a timeout.
//!
//! Looking at a connection is a system call. So nothing is looked at while the host's counter of retransmissions stands
//! still, and else a few connections at a time.

use std::path::Path;

use sys::proc::TcpCounters;

use super::account::Account;
use super::lane::Lane;

/// How often the host's counter is looked at.
const EVERY_NS: u64 = 100_000_000;
/// How many connections are looked at in one go where there is nothing else to do, and where there is: then a few, for on a
/// busy host that may never end.
const AT_ONCE: [usize; 2] = [32, 4];

/// Looks at connections.
#[derive(Debug)]
pub(super) struct Looks {
    /// `None` where it cannot be read: then every look is worth it.
    counters: Option<TcpCounters>,
    counted: Option<u64>,
    next_ns: u64,
    under_way: Option<Look>,
}

#[derive(Debug)]
struct Look {
    lane: usize,
    place: usize,
    /// Troubles are laid to the last event sent before.
    cutoff_ns: u64,
}

impl Looks {
    /// For the network that this thread is in.
    pub(super) fn new() -> Self {
        let counters = TcpCounters::open_of_thread(Path::new("/")).ok();
        Self { counters, counted: None, next_ns: 0, under_way: None }
    }

    /// Wants a look that lays troubles to events sent before `cutoff_ns`, which is now, if there are any. `lanes`: those on
    /// which something may have happened.
    pub(super) fn ask(&mut self, lanes: &mut [Lane], cutoff_ns: u64) {
        if self.under_way.is_some() {
            return;
        }
        let happened = self.something_happened();
        for lane in lanes {
            // What is seen in this look has happened since the one before, or since there was nothing to look for.
            lane.asked_events = [lane.asked_events[1], lane.last_event];
        }
        self.under_way = happened.then_some(Look { lane: 0, place: 0, cutoff_ns });
    }

    /// When there is something to do here.
    pub(super) fn next_ns(&self) -> u64 {
        if self.under_way.is_some() { 0 } else { self.next_ns }
    }

    /// Goes on, the quicker if there is nothing else to do; asks itself from time to time.
    pub(super) fn go_on(&mut self, lanes: &mut [Lane], account: &mut Account, now_ns: u64, is_idle: bool) {
        if now_ns >= self.next_ns {
            self.next_ns = now_ns + EVERY_NS;
            self.ask(lanes, now_ns);
        }
        let Some(mut look) = self.under_way.take() else { return };
        for _ in 0..AT_ONCE[usize::from(!is_idle)] {
            let Some(lane) = lanes.get_mut(look.lane) else { return };
            let Some(connection) = lane.connections.get_mut(look.place) else {
                (look.lane, look.place) = (look.lane + 1, 0);
                continue;
            };
            look.place += 1;
            let [since_event, asked_event] = lane.asked_events;
            let Some((added, event)) = connection.look(look.cutoff_ns, asked_event) else { continue };
            account.note(look.place - 1, look.lane, &added, (since_event, event));
        }
        self.under_way = Some(look);
    }

    /// Whether anything was sent again since it was last asked.
    fn something_happened(&mut self) -> bool {
        let Some(counters) = &mut self.counters else { return true };
        let Ok(reading) = counters.read() else { return true };
        let Some(retransmitted) = reading.segments_retransmitted else { return true };
        let now = retransmitted + reading.timeouts.unwrap_or(0);
        self.counted.replace(now).is_none_or(|before| before != now)
    }

    /// Looks at all that there are, at the end, and gathers what was seen when connections ended.
    pub(super) fn end(&mut self, lanes: &mut [Lane], account: &mut Account) {
        self.under_way = Some(Look { lane: 0, place: 0, cutoff_ns: u64::MAX });
        while self.under_way.is_some() {
            self.go_on(lanes, account, 0, true);
        }
        for lane in lanes {
            for (place, connection) in lane.connections.iter_mut().enumerate() {
                if let Some((added, event)) = connection.last_seen.take() {
                    account.note(place, lane.index, &added, (lane.asked_events[0], event));
                }
            }
        }
    }
}
