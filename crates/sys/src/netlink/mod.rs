//! What the kernel reports and changes only over netlink(7): the queue in front of a link ([`Queue`]), the
//! rate at which it is held ([`rate_of`]), the connections of a server ([`Connections`]), what waits in
//! sockets ([`Sockets`], of single ones [`SocketProbe`]), the state of all flows ([`FlowSampler`]), and
//! queueing disciplines.
//!
//! The readers open a socket once, in the network namespace that is asked about, and ask through it as often
//! as they like; nothing is started, and nothing needs root but entering another namespace.

mod by_cookie;
mod connections;
mod flow;
mod flow_sampler;
mod namespace;
mod queue;
mod rate;
mod socket_probe;
mod sockets;
pub(crate) mod traffic_control;

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sched::{CloneFlags, setns};
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket,
};
use nix::sys::time::{TimeVal, TimeValLike};

pub(crate) use by_cookie::ByInode;
pub use by_cookie::{ByCookie, Cookies};
pub use connections::{Connection, Connections};
pub use flow::{Flow, SocketMemory, flows_in};
pub use flow_sampler::FlowSampler;
pub use namespace::{NamespaceId, OpenNamespace};
pub use queue::{Queue, QueueReading};
pub use rate::rate_of;
pub use socket_probe::SocketProbe;
pub use sockets::{SocketState, Sockets, inodes_of};

/// The kernel answers at once; this bounds only unforeseen delays.
const ANSWER_WITHIN_S: i64 = 2;
/// The kernel fills at most this in one message of a list (`NLMSG_GOODSIZE` is a page or two, 32 KiB when
/// room is offered).
const BUFFER_BYTES: usize = 32 << 10;
/// `struct nlmsghdr`: length, type, flags, sequence number, port.
const HEADER_BYTES: usize = 16;
/// `SOCK_DIAG_BY_FAMILY`, for requests and answers (`linux/sock_diag.h`).
const BY_FAMILY: u16 = 20;
/// `INET_DIAG_INFO` (`linux/inet_diag.h`): the attribute that holds `struct tcp_info`.
const DIAG_INFO: u16 = 2;
/// `struct inet_diag_msg`.
const DIAG_MESSAGE_BYTES: usize = 72;

#[derive(Debug)]
struct Netlink {
    socket: OwnedFd,
    sequence: u32,
    /// The request, kept for its room.
    request: Vec<u8>,
    buffer: Vec<u8>,
}

impl Netlink {
    /// A socket of `protocol` in the network namespace of this thread.
    fn open(protocol: SockProtocol) -> io::Result<Self> {
        let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
        setsockopt(&socket, ReceiveTimeout, &TimeVal::seconds(ANSWER_WITHIN_S))?;
        Ok(Self { socket, sequence: 0, request: Vec::new(), buffer: vec![0; BUFFER_BYTES] })
    }

    /// Asks for all objects of a kind with a message of type `kind`, and hands the payload of each answer of
    /// type `answer` to `take`. (The answer to a request for one object goes to every watcher of such
    /// objects.)
    fn dump(
        &mut self,
        (kind, answer): (u16, u16),
        payload: &[u8],
        take: &mut dyn FnMut(&[u8]),
    ) -> io::Result<()> {
        self.send(kind, libc::NLM_F_DUMP, payload)?;
        loop {
            let got = self.receive()?;
            for message in messages(&self.buffer[..got]) {
                // What is left of an earlier request that was given up.
                if message.sequence != self.sequence {
                    continue;
                }
                match i32::from(message.kind) {
                    // A dump that fails says why in its last message.
                    libc::NLMSG_DONE if message.payload.len() >= size_of::<i32>() => {
                        return refused(message.payload);
                    }
                    libc::NLMSG_DONE => return Ok(()),
                    libc::NLMSG_ERROR => return refused(message.payload),
                    kind if kind == i32::from(answer) => take(message.payload),
                    _ => {}
                }
            }
        }
    }

    /// Asks for a change with a message of type `kind`, and waits for the kernel's acknowledgement.
    fn change(&mut self, kind: u16, flags: libc::c_int, payload: &[u8]) -> io::Result<()> {
        self.send(kind, flags | libc::NLM_F_ACK, payload)?;
        for _ in 0..ANSWERS_MOST {
            let got = self.receive()?;
            for message in messages(&self.buffer[..got]) {
                if message.sequence == self.sequence && i32::from(message.kind) == libc::NLMSG_ERROR {
                    return refused(message.payload);
                }
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// Asks for single objects with messages of type `kind` in one call, and hands the place of each in
    /// `payloads` with its answer to `take`; `None`: the kernel has no such object.
    ///
    /// # Errors
    /// Also those of single objects, after all others have been handed over.
    fn ask_each(
        &mut self,
        kind: u16,
        payloads: &[[u8; 56]],
        take: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> io::Result<()> {
        let first = self.sequence.wrapping_add(1);
        self.request.clear();
        payloads.iter().for_each(|payload| self.add(kind, 0, payload));
        send(self.socket.as_raw_fd(), &self.request, MsgFlags::empty())?;
        let mut left = payloads.len();
        let mut failed = Ok(());
        while left > 0 {
            let got = self.receive()?;
            for message in messages(&self.buffer[..got]) {
                let at = message.sequence.wrapping_sub(first) as usize;
                if at >= payloads.len() {
                    continue;
                }
                left = left.saturating_sub(1);
                if i32::from(message.kind) != libc::NLMSG_ERROR {
                    take(at, Some(message.payload));
                    continue;
                }
                match refused(message.payload) {
                    // ESTALE: another object has its place.
                    Err(error) if !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESTALE)) => {
                        failed = Err(error);
                    }
                    _ => take(at, None),
                }
            }
        }
        failed
    }

    fn send(&mut self, kind: u16, flags: libc::c_int, payload: &[u8]) -> io::Result<()> {
        self.request.clear();
        self.add(kind, flags, payload);
        send(self.socket.as_raw_fd(), &self.request, MsgFlags::empty())?;
        Ok(())
    }

    /// Adds a message to the request. Its length must be a multiple of 4 if another one follows.
    fn add(&mut self, kind: u16, flags: libc::c_int, payload: &[u8]) {
        self.sequence = self.sequence.wrapping_add(1);
        let message = &mut self.request;
        message.extend_from_slice(&((HEADER_BYTES + payload.len()) as u32).to_ne_bytes());
        message.extend_from_slice(&kind.to_ne_bytes());
        message.extend_from_slice(&((libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
        message.extend_from_slice(&self.sequence.to_ne_bytes());
        // The kernel's port is 0, and it fills in ours.
        message.extend_from_slice(&[0; 4]);
        message.extend_from_slice(payload);
    }

    fn receive(&mut self) -> io::Result<usize> {
        loop {
            match recv(self.socket.as_raw_fd(), &mut self.buffer, MsgFlags::empty()) {
                Err(nix::errno::Errno::EINTR) => {}
                other => return Ok(other?),
            }
        }
    }
}

/// Answers without an end are given up after this number of messages.
const ANSWERS_MOST: usize = 1000;

/// `struct inet_diag_req_v2` for sockets of `protocol` in the states of a mask (`net/tcp_states.h`), of TCP
/// with their [`DIAG_INFO`]; of one local port unless it is 0.
fn diag_request(family: i32, protocol: i32, states: u32, port: u16) -> [u8; 56] {
    let mut request = [0; 56];
    request[0] = family as u8;
    request[1] = protocol as u8;
    request[2] = if protocol == libc::IPPROTO_TCP { 1 << (DIAG_INFO - 1) } else { 0 };
    request[4..8].copy_from_slice(&states.to_ne_bytes());
    // In network order.
    request[8..10].copy_from_slice(&port.to_be_bytes());
    request
}

/// `struct nlmsgerr` begins with a negative error number; 0 acknowledges.
fn refused(payload: &[u8]) -> io::Result<()> {
    match payload.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(code.saturating_neg())),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

struct Message<'a> {
    kind: u16,
    sequence: u32,
    payload: &'a [u8],
}

fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = u32_at(bytes, 0)? as usize;
        let payload = bytes.get(HEADER_BYTES..length)?;
        let (kind, sequence) = (u16_at(bytes, 4)?, u32_at(bytes, 8)?);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message { kind, sequence, payload })
    })
}

/// The attributes (type, content) behind a message's own structure: length and type of 16 bits each, then the
/// content, filled up to 4 bytes (rtnetlink(7)).
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let content = bytes.get(4..length)?;
        // The two upper bits say how the content is encoded.
        let kind = u16_at(bytes, 2)? & 0x3fff;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, content))
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// What `work` returns in the network namespace that process `pid` lives in, in this one for `None`. A thread
/// of its own enters it and ends; sockets opened there stay there.
fn in_namespace_of<T: Send>(pid: Option<i32>, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let Some(pid) = pid else { return work() };
    let namespace = File::open(format!("/proc/{pid}/ns/net"))?;
    let enter = || {
        setns(&namespace, CloneFlags::CLONE_NEWNET)?;
        work()
    };
    crate::thread::on_own_thread(enter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arbitrary_answers_never_panic(bytes: Vec<u8>) {
            for message in messages(&bytes) {
                let _ = refused(message.payload);
            }
            for (_, content) in attributes(&bytes) {
                attributes(content).for_each(drop);
            }
            queue::parse(&bytes, 0);
            rate::of_bucket(&bytes, 0);
            rate::of_class(&bytes, 0);
            connections::parse(&bytes);
            Flow::parse(&bytes).and_then(|flow| flow.in_flight_bytes());
            flows_in(&bytes, &mut |_| {});
            traffic_control::parse_class(&bytes, 0);
            traffic_control::parse_root(&bytes, 0);
        }
    }

    #[test]
    fn refusal_is_the_kernels_error() {
        let payload = (-libc::ENOENT).to_ne_bytes();
        assert_eq!(refused(&payload).unwrap_err().raw_os_error(), Some(libc::ENOENT));
        assert!(refused(&0i32.to_ne_bytes()).is_ok());
    }
}
