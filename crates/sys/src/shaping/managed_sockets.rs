//! Sockets of other programs with a pacing rate, a priority or a congestion control of ours, and what they
//! had before.

use std::collections::HashSet;

use crate::Result;
use crate::journal::network::OWN_RATES;
use crate::journal::{EntryId, Journal, SocketId, Undo, UndoResult};
use crate::netlink::{ByCookie, Cookies};
use crate::process::{ForeignProcess, ForeignSocketError, PacingRate, SocketChange};

/// A change to one socket.
#[derive(Debug, Clone, Copy)]
pub struct SocketTarget<'a> {
    pub process: &'a ForeignProcess,
    pub fd: i32,
    pub inode: u64,
    pub cookie: u64,
    pub change: SocketChange,
}

#[derive(Debug)]
struct Managed {
    entry: EntryId,
    socket: SocketId,
    /// What it had before, of what is changed.
    original: SocketChange,
    /// What was set last.
    ours: SocketChange,
}

/// Sets pacing rates and priorities of sockets, and restores what those had before.
#[derive(Debug)]
pub struct ManagedSockets {
    journal: Journal,
    sockets: ByCookie<Managed>,
    /// The lowest bits of pacing rates, and the priorities, that new sockets have from us ([`NewSockets`]).
    ///
    /// [`NewSockets`]: crate::shaping::NewSockets
    marks: HashSet<u64>,
    new_priorities: HashSet<u32>,
}

type Changed = std::result::Result<(), ForeignSocketError>;

impl ManagedSockets {
    pub fn new(journal: &Journal) -> Self {
        Self {
            journal: journal.clone(),
            sockets: ByCookie::default(),
            marks: HashSet::new(),
            new_priorities: HashSet::new(),
        }
    }

    /// A socket with a pacing rate of these lowest 8 bits, or with this priority, that was not set here has
    /// it from `NewSockets`: it gets back no rate and priority 0.
    pub fn assume_new_sockets_have(&mut self, change: SocketChange) {
        self.marks.extend(change.pacing.map(|rate| rate.bytes_per_s() % OWN_RATES));
        self.new_priorities.extend(change.priority);
    }

    /// Changes sockets; the results are in the order of `targets`. The originals of all that are new are
    /// written to the journal, with one wait for the disk, before the first is changed. If a program has set
    /// another value itself since the last change, that value is what will be restored.
    /// Errors: the journal cannot be written; then nothing new is changed.
    pub fn apply(&mut self, targets: &[SocketTarget<'_>]) -> Result<Vec<Changed>> {
        let mut results: Vec<Changed> = Vec::with_capacity(targets.len());
        let mut new: Vec<(SocketId, SocketChange)> = Vec::new();
        let mut known = Cookies::default();
        for target in targets {
            let is_new = self
                .sockets
                .get(&target.cookie)
                .is_none_or(|managed| !target.change.is_covered_by(&managed.original));
            let read = match is_new && known.insert(target.cookie) {
                true => self.original(target).map(|original| new.push((target.id(), original))),
                false => Ok(()),
            };
            results.push(read);
        }
        self.record(&new)?;
        for (target, result) in targets.iter().zip(&mut results).filter(|(_, result)| result.is_ok()) {
            *result = self.change(target)?;
        }
        Ok(results)
    }

    /// Forgets the sockets that no longer exist: all but those for which `exists` returns true.
    pub fn retain(&mut self, exists: impl Fn(u64) -> bool) -> Result<()> {
        let mut gone = Vec::new();
        self.sockets.retain(|cookie, managed| {
            let keep = exists(*cookie);
            gone.extend((!keep).then_some(managed.entry));
            keep
        });
        self.journal.done_all(&gone)
    }

    /// Gives one socket back what it had before. `None`: it is not managed.
    pub fn restore(&mut self, cookie: u64) -> Option<UndoResult> {
        self.sockets.remove(&cookie).and_then(|managed| self.journal.undo(managed.entry))
    }

    /// Number of managed sockets.
    pub fn count(&self) -> usize {
        self.sockets.len()
    }

    /// Cookies of the managed sockets, in no order.
    pub fn cookies(&self) -> impl Iterator<Item = u64> {
        self.sockets.keys().copied()
    }

    /// What was set last on a socket: to compare with what the kernel reports.
    pub fn applied(&self, cookie: u64) -> Option<SocketChange> {
        self.sockets.get(&cookie).map(|managed| managed.ours)
    }

    /// The rate that a socket's program has set itself, where the kernel reports the rate `reported`.
    pub fn own_pacing(&self, cookie: u64, reported: PacingRate) -> PacingRate {
        let managed = self.sockets.get(&cookie).and_then(|managed| managed.original.pacing);
        managed.unwrap_or_else(|| self.without_assumed(reported))
    }

    fn without_assumed(&self, pacing: PacingRate) -> PacingRate {
        if self.is_of_new_sockets(pacing) { PacingRate::UNLIMITED } else { pacing }
    }

    fn is_of_new_sockets(&self, pacing: PacingRate) -> bool {
        !pacing.is_unlimited() && self.marks.contains(&(pacing.bytes_per_s() % OWN_RATES))
    }

    /// Whether a program has set the socket itself since the last change: then that stays.
    fn was_set_by_program(&self, managed: &Managed) -> bool {
        let Managed { socket, ours, .. } = managed;
        let process = ForeignProcess::open_started_at(socket.pid, socket.start_ticks);
        let Ok(now) = process.and_then(|process| process.read(socket.fd)) else { return false };
        let is_ours = ours.pacing.is_none_or(|rate| rate == now.pacing || self.is_of_new_sockets(now.pacing))
            && ours.priority.is_none_or(|priority| priority == now.priority)
            && ours.congestion.is_none_or(|congestion| Some(congestion) == now.congestion);
        now.cookie == socket.cookie && !is_ours
    }

    /// What a socket is to get back after this change.
    fn original(&self, target: &SocketTarget<'_>) -> std::result::Result<SocketChange, ForeignSocketError> {
        if let Some(managed) = self.sockets.get(&target.cookie)
            && target.change.is_covered_by(&managed.original)
        {
            return Ok(managed.original);
        }
        let now = target.process.read(target.fd)?;
        let (pid, fd) = (target.process.pid(), target.fd);
        if now.cookie != target.cookie {
            return Err(ForeignSocketError::SocketGone { pid, fd });
        }
        if now.is_listening && target.change.pacing.is_some() {
            return Err(ForeignSocketError::Listening { pid, fd });
        }
        let pacing = self.without_assumed(now.pacing);
        let priority = match self.new_priorities.contains(&now.priority) {
            true => 0,
            false => now.priority,
        };
        let known = self.sockets.get(&target.cookie).map(|managed| managed.original).unwrap_or_default();
        Ok(SocketChange {
            pacing: known.pacing.or(target.change.pacing.map(|_| pacing)),
            priority: known.priority.or(target.change.priority.map(|_| priority)),
            congestion: known.congestion.or(target.change.congestion.and(now.congestion)),
        })
    }

    /// Writes down what sockets have now. An earlier entry of the same socket is then done.
    fn record(&mut self, new: &[(SocketId, SocketChange)]) -> Result<()> {
        if new.is_empty() {
            return Ok(());
        }
        let undo = |(socket, original): &(SocketId, SocketChange)| Undo::RestoreSocket {
            socket: *socket,
            original: *original,
        };
        let entries = self.journal.record_all(new.iter().map(undo).collect())?;
        let mut replaced = Vec::new();
        for ((socket, original), entry) in new.iter().zip(entries) {
            let before = self.sockets.remove(&socket.cookie);
            replaced.extend(before.as_ref().map(|before| before.entry));
            let ours = before.map(|before| before.ours).unwrap_or_default();
            let managed = Managed { entry, socket: *socket, original: *original, ours };
            self.sockets.insert(socket.cookie, managed);
        }
        self.journal.done_all(&replaced)
    }

    fn change(&mut self, target: &SocketTarget<'_>) -> Result<Changed> {
        let Some(managed) = self.sockets.get_mut(&target.cookie) else {
            // It is named twice, and the first failed.
            return Ok(Err(ForeignSocketError::SocketGone { pid: target.process.pid(), fd: target.fd }));
        };
        let before = match target.process.change(target.fd, target.cookie, target.change) {
            Ok(before) => before,
            // It stays managed: a part may have been changed.
            Err(error) => return Ok(Err(error)),
        };
        let last = managed.ours;
        let is_mark = |rate: &PacingRate| self.marks.contains(&(rate.bytes_per_s() % OWN_RATES));
        managed.ours.pacing = target.change.pacing.or(last.pacing);
        managed.ours.priority = target.change.priority.or(last.priority);
        managed.ours.congestion = target.change.congestion.or(last.congestion);
        let own_pacing = before
            .pacing
            .filter(|found| last.pacing.is_some_and(|set| set != *found))
            // The connection is established only now.
            .filter(|found| found.is_unlimited() || !is_mark(found));
        let own_priority = before.priority.filter(|found| last.priority.is_some_and(|set| set != *found));
        let own_congestion =
            before.congestion.filter(|found| last.congestion.is_some_and(|set| set != *found));
        if own_pacing.is_some() || own_priority.is_some() || own_congestion.is_some() {
            let original = SocketChange {
                pacing: own_pacing.or(managed.original.pacing),
                priority: own_priority.or(managed.original.priority),
                congestion: own_congestion.or(managed.original.congestion),
            };
            let socket = managed.socket;
            self.record(&[(socket, original)])?;
        }
        Ok(Ok(()))
    }
}

impl SocketTarget<'_> {
    fn id(&self) -> SocketId {
        SocketId {
            pid: self.process.pid(),
            start_ticks: self.process.start_ticks(),
            fd: self.fd,
            inode: self.inode,
            cookie: self.cookie,
        }
    }
}

impl Drop for ManagedSockets {
    fn drop(&mut self) {
        let all: Vec<Managed> = self.sockets.drain().map(|(_, managed)| managed).collect();
        let (own, ours): (Vec<Managed>, Vec<Managed>) =
            all.into_iter().partition(|managed| self.was_set_by_program(managed));
        let entries = |all: Vec<Managed>| all.iter().map(|managed| managed.entry).collect::<Vec<_>>();
        // What cannot be restored, or marked, stays in the journal, which reports it.
        let _ = self.journal.done_all(&entries(own));
        self.journal.undo_each(&entries(ours));
    }
}
