//! Urgent sockets between two ticks: which of them begin and end to send.

use std::io;
use std::time::{Duration, Instant};

use sys::clock::{Deadline, monotonic_ns};
use sys::netlink::SocketProbe;

use super::discovery::Found;
use super::{Daemon, TickError};
use crate::law::WATCH_S;
use crate::policy::Policy;

/// More sockets are not looked at: the least urgent classes are left out.
const SOCKETS_MAX: usize = 64;
/// A class is left out for this time after a connection of it was closed: its next message may come on a new
/// one, which is found at a tick only.
const LEFT_OUT_FOR: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Watch {
    probe: SocketProbe,
    /// Place in what was found, and whether data was to be sent at the last look.
    sockets: Vec<(usize, bool)>,
    /// Urgent sockets at the last tick, with their class.
    known: Vec<(u64, usize)>,
    /// By class.
    left_out: Vec<Option<Deadline>>,
}

impl Watch {
    pub fn open(policy: &Policy) -> io::Result<Self> {
        Ok(Self {
            probe: SocketProbe::open()?,
            sockets: Vec::new(),
            known: Vec::new(),
            left_out: policy.classes.iter().map(|_| None).collect(),
        })
    }

    /// Chooses what to look at until the next tick. Returns which classes that is.
    pub fn choose(&mut self, policy: &Policy, found: &[Found], exists: impl Fn(u64) -> bool) -> Vec<bool> {
        for (_, class) in self.known.iter().filter(|(cookie, _)| !exists(*cookie)) {
            self.left_out[*class] = Some(Deadline::after(LEFT_OUT_FOR));
        }
        self.known.clear();
        self.sockets.clear();
        if policy.bottleneck.coordinator.is_some() {
            // The others would learn of a message too late.
            return Vec::new();
        }
        let mut sockets = vec![0; policy.classes.len()];
        let mut has_datagrams = vec![false; policy.classes.len()];
        for found in found.iter().filter(|found| policy.classes[found.class].is_urgent()) {
            match found.flow.tcp {
                Some(_) => {
                    sockets[found.class] += 1;
                    self.known.push((found.flow.cookie, found.class));
                }
                None => has_datagrams[found.class] = true,
            }
        }
        let mut by_priority: Vec<usize> = (0..policy.classes.len()).collect();
        by_priority.sort_by_key(|at| policy.classes[*at].priority);
        let mut watched = vec![false; policy.classes.len()];
        let mut room = SOCKETS_MAX;
        for at in by_priority {
            let is_left_out = self.left_out[at].as_ref().is_some_and(|until| !until.passed());
            if (1..=room).contains(&sockets[at]) && !has_datagrams[at] && !is_left_out {
                watched[at] = true;
                room -= sockets[at];
            }
        }
        let first = found.first().map(|found| found.class);
        if found.iter().all(|found| Some(found.class) == first) {
            // There is no other class to make room.
            watched.fill(false);
        }
        let is_watched = |found: &Found| watched[found.class] && found.flow.tcp.is_some();
        let of =
            |(at, found): (usize, &Found)| is_watched(found).then_some((at, found.flow.unsent_bytes > 0));
        self.sockets.extend(found.iter().enumerate().filter_map(of));
        watched
    }

    pub fn is_needed(&self) -> bool {
        !self.sockets.is_empty()
    }

    /// Looks at the sockets. Returns the cookies of those that have begun (`true`) or ended to send.
    pub fn look(&mut self, found: &[Found]) -> io::Result<Vec<(u64, bool)>> {
        let Self { probe, sockets, .. } = self;
        let mut changed = Vec::new();
        let flows: Vec<usize> = sockets.iter().map(|(at, _)| *at).collect();
        probe.unsent_bytes(flows.iter().map(|at| &found[*at].flow), &mut |place, bytes| {
            let (at, was_sending) = &mut sockets[place];
            let is_sending = bytes.is_some_and(|bytes| bytes > 0);
            if std::mem::replace(was_sending, is_sending) != is_sending {
                changed.push((found[*at].flow.cookie, is_sending));
            }
        })?;
        Ok(changed)
    }

    /// Looks at nothing for a while.
    pub fn leave_out_all(&mut self) {
        self.sockets.clear();
        self.left_out.fill_with(|| Some(Deadline::after(LEFT_OUT_FOR)));
    }
}

impl Daemon {
    /// Waits until the next step is due, and makes room for urgent messages that begin meanwhile.
    ///
    /// # Errors
    /// As those of [`Self::tick`].
    pub fn wait(&mut self, until: Instant) -> Result<(), TickError> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let pause = Duration::from_secs_f64(WATCH_S);
            if left <= pause || !self.watch.is_needed() {
                std::thread::sleep(left);
                return Ok(());
            }
            std::thread::sleep(pause);
            self.follow_messages()?;
        }
    }

    fn follow_messages(&mut self) -> Result<(), TickError> {
        let changed = match self.watch.look(&self.found) {
            Ok(changed) => changed,
            Err(error) => {
                self.watch.leave_out_all();
                self.note(Some(format!("Urgent sockets are looked at with each step only: {error}")));
                return Ok(());
            }
        };
        if changed.is_empty() {
            return Ok(());
        }
        let Some(reaction) = self.law.follow_messages(monotonic_ns(), &changed) else { return Ok(()) };
        let problem = self.datagrams.follow(&self.policy, reaction.bulk_factor);
        self.note(problem);
        self.ask(&reaction.rates);
        Ok(self.enforce()?)
    }
}
