//! Which program holds which socket: from the tables of open files of all processes.

use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::fd_table::FdTableReader;
use super::{ForeignProcess, Program};
use crate::clock::Deadline;
use crate::netlink::ByInode;
use crate::proc::process::set::all_pids;

/// How often all processes are read even if every socket's holder is known: a socket may have been handed to
/// another process.
const FULL_EVERY: Duration = Duration::from_secs(5);
/// How often the programs of holders are read: a process may have executed another.
const PROGRAMS_EVERY: Duration = Duration::from_secs(1);

/// A descriptor of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketHolder {
    pub pid: i32,
    pub fd: i32,
}

#[derive(Debug, Default)]
struct Socket {
    holder: Option<SocketHolder>,
    /// It existed when the running search began.
    is_searched: bool,
    /// The running search has seen the holder's descriptor again.
    confirmed: bool,
    /// Another process that the running search has seen to hold it.
    other: Option<SocketHolder>,
    /// The last update at which it existed.
    seen: u64,
    /// A full search has found no holder: a further one is not begun for this socket.
    is_missing: bool,
}

impl Socket {
    /// Whether its holder is to be searched for.
    fn is_unknown(&self) -> bool {
        self.holder.is_none() && !self.is_missing
    }
}

#[derive(Debug)]
struct Holder {
    process: ForeignProcess,
    program: Program,
}

/// Holders of sockets, kept up to date. A table of descriptors is read only when there is a socket whose
/// holder is not known, and all of them every 5 s; programs every second.
#[derive(Debug)]
pub struct SocketOwners {
    reader: FdTableReader,
    sockets: ByInode<Socket>,
    processes: HashMap<i32, Holder>,
    /// Processes that the running full search has not read yet, in descending order.
    waiting: Vec<i32>,
    /// Processes whose program has to be read again.
    changed: HashSet<i32>,
    is_full: bool,
    full_due: Deadline,
    programs_due: Deadline,
    updates: u64,
    programs_version: u64,
}

impl Default for SocketOwners {
    fn default() -> Self {
        Self::new()
    }
}

impl SocketOwners {
    pub fn new() -> Self {
        Self {
            reader: FdTableReader::new(),
            sockets: ByInode::default(),
            processes: HashMap::new(),
            waiting: Vec::new(),
            changed: HashSet::new(),
            is_full: false,
            full_due: Deadline::after(Duration::ZERO),
            programs_due: Deadline::after(PROGRAMS_EVERY),
            updates: 0,
            programs_version: 0,
        }
    }

    /// Finds the holders of the sockets of these inodes, which are all that exist (inode 0 has no holder);
    /// forgets all others. Returns whether it came to an end within the time `within` and one process more;
    /// if not, the next update continues.
    pub fn update(&mut self, inodes: impl IntoIterator<Item = u64>, within: Duration) -> bool {
        let deadline = Deadline::after(within);
        self.drop_ended();
        self.updates += 1;
        let now = self.updates;
        let (mut existing, mut has_unknown) = (0, false);
        for inode in inodes.into_iter().filter(|inode| *inode != 0) {
            let socket = self.sockets.entry(inode).or_default();
            has_unknown |= socket.is_unknown();
            existing += usize::from(socket.seen != now);
            socket.seen = now;
        }
        if existing < self.sockets.len() {
            self.sockets.retain(|_, socket| socket.seen == now);
        }
        if has_unknown && !self.is_full {
            // Most likely, a program that has sockets has opened another.
            let known: Vec<i32> = self.processes.keys().copied().collect();
            for pid in known {
                self.read_process(pid);
                if deadline.passed() {
                    break;
                }
            }
            has_unknown = self.sockets.values().any(Socket::is_unknown);
        }
        if !self.is_full && (has_unknown || self.full_due.passed()) {
            self.begin_full();
        }
        if self.is_full {
            self.continue_full(deadline);
        }
        if self.programs_due.passed() {
            self.programs_due = Deadline::after(PROGRAMS_EVERY);
            self.changed.extend(self.processes.keys());
        }
        self.read_programs();
        !self.is_full
    }

    pub fn holder(&self, inode: u64) -> Option<SocketHolder> {
        self.sockets.get(&inode).and_then(|socket| socket.holder)
    }

    /// All sockets with their holders, in no order.
    pub fn holders(&self) -> impl Iterator<Item = (u64, SocketHolder)> {
        self.sockets.iter().filter_map(|(inode, socket)| Some((*inode, socket.holder?)))
    }

    /// The program of a holder, as it was at most about a second ago.
    pub fn program(&self, pid: i32) -> Option<&Program> {
        self.processes.get(&pid).map(|holder| &holder.program)
    }

    pub fn process(&self, pid: i32) -> Option<&ForeignProcess> {
        self.processes.get(&pid).map(|holder| &holder.process)
    }

    /// Changes whenever the program of a holder does. As long as it is the same, [`Self::program`] returns
    /// the same for each process.
    pub fn programs_version(&self) -> u64 {
        self.programs_version
    }

    /// Forgets the holder of a socket that turned out not to hold it; the next update looks for another.
    pub fn forget(&mut self, inode: u64) {
        self.sockets.remove(&inode);
    }

    /// Asks for all ends with one system call.
    fn drop_ended(&mut self) {
        let (pids, mut fds): (Vec<i32>, Vec<PollFd<'_>>) = self
            .processes
            .iter()
            .map(|(pid, holder)| (*pid, PollFd::new(holder.process.handle().as_fd(), PollFlags::POLLIN)))
            .unzip();
        if fds.is_empty() || !poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ended| ended > 0) {
            return;
        }
        let has_ended = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
        let ended: HashSet<i32> =
            pids.into_iter().zip(&fds).filter(|(_, fd)| has_ended(fd)).map(|(pid, _)| pid).collect();
        self.processes.retain(|pid, _| !ended.contains(pid));
        self.programs_version += 1;
        for socket in self.sockets.values_mut() {
            if socket.holder.is_some_and(|holder| ended.contains(&holder.pid)) {
                *socket = Socket { seen: socket.seen, ..Socket::default() };
            }
        }
    }

    /// Takes the sockets without a holder that process `pid` holds.
    fn read_process(&mut self, pid: i32) {
        let sockets = &mut self.sockets;
        let mut has_new = false;
        // One that has ended meanwhile, or is another user's, holds none that could be changed.
        let _ = self.reader.read(pid, &mut |fd, inode| {
            if let Some(socket) = sockets.get_mut(&inode)
                && socket.holder.is_none()
            {
                socket.holder = Some(SocketHolder { pid, fd });
                has_new = true;
            }
        });
        if has_new {
            self.changed.insert(pid);
        }
    }

    fn begin_full(&mut self) {
        self.is_full = true;
        self.full_due = Deadline::after(FULL_EVERY);
        self.waiting = all_pids(Path::new("/"));
        self.waiting.reverse();
        for socket in self.sockets.values_mut() {
            *socket =
                Socket { holder: socket.holder, seen: socket.seen, is_searched: true, ..Socket::default() };
        }
    }

    fn continue_full(&mut self, deadline: Deadline) {
        while let Some(pid) = self.waiting.pop() {
            self.confirm_process(pid);
            if deadline.passed() && !self.waiting.is_empty() {
                return;
            }
        }
        self.is_full = false;
        // One that came during the search may be held by a process that had been read before.
        for socket in self.sockets.values_mut().filter(|socket| socket.is_searched && !socket.confirmed) {
            socket.holder = socket.other;
            socket.is_missing = socket.other.is_none();
            self.changed.extend(socket.other.map(|holder| holder.pid));
        }
    }

    fn confirm_process(&mut self, pid: i32) {
        let sockets = &mut self.sockets;
        let _ = self.reader.read(pid, &mut |fd, inode| {
            let Some(socket) = sockets.get_mut(&inode) else { return };
            let found = SocketHolder { pid, fd };
            match socket.holder {
                Some(holder) if holder == found => socket.confirmed = true,
                // Its holder has another descriptor of it.
                Some(holder) if holder.pid == pid => socket.other = Some(found),
                _ if socket.other.is_none() => socket.other = Some(found),
                _ => {}
            }
        });
    }

    /// Reads the programs of new holders and of those that may have executed another.
    fn read_programs(&mut self) {
        if self.changed.is_empty() {
            return;
        }
        let held: HashSet<i32> =
            self.sockets.values().filter_map(|socket| Some(socket.holder?.pid)).collect();
        for pid in std::mem::take(&mut self.changed) {
            let program = held.contains(&pid).then(|| Program::read(pid).ok()).flatten();
            match (program, self.processes.get_mut(&pid)) {
                (Some(program), Some(holder)) if holder.program == program => continue,
                (Some(program), Some(holder)) => holder.program = program,
                (Some(program), None) => {
                    if let Ok(process) = ForeignProcess::open(pid) {
                        self.processes.insert(pid, Holder { process, program });
                    }
                }
                // It holds no socket any more, or has ended.
                (None, _) => drop(self.processes.remove(&pid)),
            }
            self.programs_version += 1;
        }
        let processes = &self.processes;
        for socket in self.sockets.values_mut() {
            if socket.holder.is_some_and(|holder| !processes.contains_key(&holder.pid)) {
                // It ended just now, or this process may open no more files.
                (socket.holder, socket.is_missing) = (None, true);
            }
        }
    }
}

/// The holders of the sockets of these inodes, found in one search of all processes. A socket that several
/// processes share has several.
pub fn find_holders(inodes: &HashSet<u64>) -> Vec<(u64, SocketHolder)> {
    let mut reader = FdTableReader::new();
    let mut found = Vec::new();
    for pid in all_pids(Path::new("/")) {
        let _ = reader.read(pid, &mut |fd, inode| {
            if inodes.contains(&inode) {
                found.push((inode, SocketHolder { pid, fd }));
            }
        });
    }
    found
}
