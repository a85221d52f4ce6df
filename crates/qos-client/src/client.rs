//! The client: connects when it must, states, asks, and waits no longer than its deadline.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::socket;
use crate::wire::{self, Kind, Outcome, REPLY_BYTES, Reply, Request, UNLIMITED};

/// Folder of the sockets of all policies in force. Only root can write to it.
pub const FOLDER: &str = "/run/kagiri-qos";
/// A policy answers at its next step, after 50 ms.
const DEADLINE: Duration = Duration::from_millis(250);
/// Between two tries while the backlog of a policy is full.
const RETRY: Duration = Duration::from_millis(5);

/// What a program states of itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statement<'a> {
    /// A class with `join = true`; empty: the one whose conditions the program matches.
    pub class: &'a str,
    /// Size of one message.
    pub size_bytes: Option<u64>,
    /// Longest response time of one message.
    pub target: Option<Duration>,
}

/// What is in force for the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Class of its sockets; empty: none of them leaves through the bottleneck, or matches a class.
    pub class: String,
    /// TCP sockets through the bottleneck, and those of them whose rate is limited.
    pub sockets: u32,
    pub paced: u32,
    /// Sum of the limits that the kernel reports, in bit/s; `None` unless all sockets have one.
    pub rate_bit_per_s: Option<u64>,
    /// Rate at which one message arrives within its target, in bit/s; `None`: bulk, or the size is not known.
    pub need_bit_per_s: Option<u64>,
    /// Size and target in force: what was stated, within the bounds of the policy.
    pub size_bytes: Option<u64>,
    pub target: Option<Duration>,
    /// Messages since the client connected, and those that arrived in time.
    pub messages: u64,
    pub in_time: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// No policy is in force in this network namespace.
    NoPolicy,
    /// The policy did not answer within the deadline. What was stated may hold, and is stated again if the
    /// connection breaks.
    Late,
    /// The policy closed the connection: it serves as many programs as it can, or ends.
    Closed,
    /// The policy has no class of this name.
    UnknownClass,
    /// The class does not have `join = true`.
    NotPermitted,
    /// The class is no name, or a number is out of range.
    Invalid,
}

impl Error {
    pub const ALL: [Self; 6] =
        [Self::NoPolicy, Self::Late, Self::Closed, Self::UnknownClass, Self::NotPermitted, Self::Invalid];

    pub fn text(self) -> &'static str {
        match self {
            Self::NoPolicy => "no policy is in force",
            Self::Late => "the policy did not answer within the deadline",
            Self::Closed => "the policy closed the connection",
            Self::UnknownClass => "the policy has no class of this name",
            Self::NotPermitted => "the class does not permit it: it needs join = true in the policy",
            Self::Invalid => "the class is no name, or a number is out of range",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for Error {}

/// A program's connection to the policy in force. What it stated ends when it is dropped.
#[derive(Debug)]
pub struct Client {
    folder: PathBuf,
    deadline: Duration,
    connection: Option<Connection>,
    /// Stated last; a new connection states it again.
    stated: Option<Request>,
    sequence: u32,
}

#[derive(Debug)]
struct Connection {
    socket: UnixDatagram,
    /// The policy knows the process that connected: a forked child connects anew.
    pid: u32,
}

impl Client {
    /// Never fails: each call connects if no connection stands. Waits up to 250 ms for an answer.
    pub fn connect() -> Self {
        Self::with(Path::new(FOLDER), DEADLINE)
    }

    /// With another folder of sockets, and another deadline of each call.
    pub fn with(folder: &Path, deadline: Duration) -> Self {
        let folder = folder.to_owned();
        Self { folder, deadline, connection: None, stated: None, sequence: 0 }
    }

    /// States class, size and target of this process; replaces what it stated before.
    ///
    /// # Errors
    /// [`Error`]; after an error nothing is stated, except [`Error::Late`] and [`Error::NoPolicy`]: it is
    /// stated as soon as a policy can be asked.
    pub fn state(&mut self, stated: &Statement<'_>) -> Result<Report, Error> {
        let target_us = stated.target.map(|target| u64::try_from(target.as_micros()).unwrap_or(u64::MAX));
        if !wire::is_name(stated.class) || stated.size_bytes == Some(0) || target_us == Some(0) {
            return Err(Error::Invalid);
        }
        let request = Request {
            kind: Kind::State,
            sequence: 0,
            class: stated.class.to_owned(),
            size_bytes: stated.size_bytes.unwrap_or(0),
            target_us: target_us.unwrap_or(0),
        };
        self.stated = Some(request.clone());
        let answer = self.ask(request);
        if matches!(answer, Err(Error::UnknownClass | Error::NotPermitted)) {
            self.stated = None;
        }
        answer
    }

    /// What is in force now.
    ///
    /// # Errors
    /// [`Error`]
    pub fn rate(&mut self) -> Result<Report, Error> {
        self.ask(plain(Kind::Ask))
    }

    /// Takes back what was stated.
    ///
    /// # Errors
    /// [`Error`]
    pub fn withdraw(&mut self) -> Result<Report, Error> {
        self.stated = None;
        self.ask(plain(Kind::Withdraw))
    }

    fn ask(&mut self, mut request: Request) -> Result<Report, Error> {
        let until = Instant::now() + self.deadline;
        if self.connection.as_ref().is_some_and(|connection| connection.pid != std::process::id()) {
            self.connection = None;
        }
        // An ended policy may have been followed by another: one new connection is tried.
        let mut is_new = self.connection.is_none();
        loop {
            if is_new {
                self.connection = Some(open(&self.folder, until)?);
                if let Some(stated) = self.stated.clone().filter(|_| request.kind == Kind::Ask) {
                    self.exchange(stated, until).ok();
                }
            }
            self.sequence = self.sequence.wrapping_add(1);
            request.sequence = self.sequence;
            match self.exchange(request.clone(), until) {
                Err(Error::Closed) if !std::mem::replace(&mut is_new, true) => {}
                answer => return answer,
            }
        }
    }

    /// Sends a request and waits for its answer; earlier ones, which came too late, are passed over.
    fn exchange(&mut self, request: Request, until: Instant) -> Result<Report, Error> {
        let answer = match &self.connection {
            Some(connection) => exchange(&connection.socket, &request, until),
            None => Err(Error::Closed),
        };
        if answer == Err(Error::Closed) {
            self.connection = None;
        }
        answer
    }
}

fn plain(kind: Kind) -> Request {
    Request { kind, sequence: 0, class: String::new(), size_bytes: 0, target_us: 0 }
}

fn exchange(socket: &UnixDatagram, request: &Request, until: Instant) -> Result<Report, Error> {
    attempt(socket, until, UnixDatagram::set_write_timeout, || socket.send(&request.encode()))?;
    loop {
        // One byte more than the longest: what is longer is no reply.
        let mut bytes = [0; REPLY_BYTES + 1];
        let length = attempt(socket, until, UnixDatagram::set_read_timeout, || socket.recv(&mut bytes))?;
        let reply = bytes.get(..length).and_then(Reply::decode).ok_or(Error::Closed)?;
        if reply.sequence == request.sequence {
            return report(reply);
        }
    }
}

/// One call of a socket that may be repeated until the time is over.
fn attempt(
    socket: &UnixDatagram,
    until: Instant,
    set_timeout: impl Fn(&UnixDatagram, Option<Duration>) -> io::Result<()>,
    mut call: impl FnMut() -> io::Result<usize>,
) -> Result<usize, Error> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        // A timeout of zero is refused: it would mean no timeout.
        let is_set = match left.is_zero() {
            true => socket.set_nonblocking(true),
            false => socket.set_nonblocking(false).and_then(|()| set_timeout(socket, Some(left))),
        };
        is_set.map_err(|_| Error::Closed)?;
        match call() {
            Ok(length) => return Ok(length),
            Err(error) if error.kind() == io::ErrorKind::Interrupted && !left.is_zero() => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Err(Error::Late);
            }
            Err(_) => return Err(Error::Closed),
        }
    }
}

/// Connects to the first policy of this network namespace, in the order of the interfaces' names.
fn open(folder: &Path, until: Instant) -> Result<Connection, Error> {
    for path in sockets(folder) {
        loop {
            match socket::connect(&path) {
                Ok(socket) => return Ok(Connection { socket, pid: std::process::id() }),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => break,
                Err(_) if Instant::now() + RETRY >= until => return Err(Error::Late),
                Err(_) => std::thread::sleep(RETRY),
            }
        }
    }
    Err(Error::NoPolicy)
}

/// Sockets of the policies of this process's network namespace: `NAMESPACE-INTERFACE`.
fn sockets(folder: &Path) -> Vec<PathBuf> {
    let Ok(namespace) = std::fs::metadata("/proc/self/ns/net") else { return Vec::new() };
    let prefix = format!("{}-", namespace.ino());
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
    let mut names: Vec<_> =
        names.filter(|name| name.to_str().is_some_and(|name| name.starts_with(&prefix))).collect();
    names.sort();
    names.into_iter().map(|name| folder.join(name)).collect()
}

fn report(reply: Reply) -> Result<Report, Error> {
    let number = |number: u64| (number > 0).then_some(number);
    match reply.outcome {
        Outcome::UnknownClass => Err(Error::UnknownClass),
        Outcome::NotPermitted => Err(Error::NotPermitted),
        Outcome::Done => Ok(Report {
            class: reply.class,
            sockets: reply.sockets,
            paced: reply.paced,
            rate_bit_per_s: (reply.rate_bit_per_s != UNLIMITED).then_some(reply.rate_bit_per_s),
            need_bit_per_s: number(reply.need_bit_per_s),
            size_bytes: number(reply.size_bytes),
            target: number(reply.target_us).map(Duration::from_micros),
            messages: reply.messages,
            in_time: reply.in_time,
        }),
    }
}
