//! The queueing discipline in front of a link: what it sent, dropped and holds. rtnetlink(7), tc(8).

use std::io;

use nix::sys::socket::SockProtocol;

use super::{Netlink, attributes, in_namespace_of, u32_at, u64_at};

/// `struct tcmsg`: family, device, handle, parent, info.
pub(super) const MESSAGE_BYTES: usize = 20;
/// The parent of the root queue (`TC_H_ROOT`, `linux/pkt_sched.h`).
pub(super) const ROOT: u32 = u32::MAX;
/// Attributes within `TCA_STATS2` (`linux/gen_stats.h`).
const STATS_BASIC: u16 = 1;
const STATS_QUEUE: u16 = 3;

/// Counters of a link's root queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueReading {
    pub bytes: Option<u64>,
    /// Packets sent. Wraps at 2^32.
    pub packets: Option<u64>,
    /// Packets dropped: the queue was full, or its discipline kept it short. Wraps at 2^32.
    pub drops: Option<u64>,
    /// Times a packet had to wait for the rate. Wraps at 2^32.
    pub overlimits: Option<u64>,
    pub backlog_bytes: Option<u64>,
}

/// Reads the root queue of a link, with a few system calls.
#[derive(Debug)]
pub struct Queue {
    netlink: Netlink,
    device: u32,
}

impl Queue {
    /// Opens the queue of `link` in the network namespace of process `namespace_of`, or in this process's
    /// own. `None`: by its nature nothing waits in front of this link (`noqueue`), as with loopback.
    /// Errors: There is no such link, its queue is not to be seen, or the namespace cannot be entered.
    pub fn open(link: &str, namespace_of: Option<i32>) -> io::Result<Option<Self>> {
        in_namespace_of(namespace_of, || {
            let device = nix::net::if_::if_nametoindex(link)?;
            let mut this = Self { netlink: Netlink::open(SockProtocol::NetlinkRoute)?, device };
            match this.look()? {
                Some(Front::Queue(_)) => Ok(Some(this)),
                Some(Front::NoQueue) => Ok(None),
                None => Err(not_seen()),
            }
        })
    }

    pub fn read(&mut self) -> io::Result<QueueReading> {
        match self.look()? {
            Some(Front::Queue(reading)) => Ok(reading),
            Some(Front::NoQueue) | None => Err(not_seen()),
        }
    }

    /// `None`: nothing is to be seen.
    fn look(&mut self) -> io::Result<Option<Front>> {
        let mut front = None;
        let kinds = (libc::RTM_GETQDISC, libc::RTM_NEWQDISC);
        // The kernel lists the queues of all links, whichever is asked for.
        let device = self.device;
        self.netlink.dump(kinds, &[0; MESSAGE_BYTES], &mut |payload| {
            front = front.or_else(|| parse(payload, device));
        })?;
        Ok(front)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Front {
    /// By its nature nothing waits there (`noqueue`).
    NoQueue,
    Queue(QueueReading),
}

fn not_seen() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the link's queue is not to be seen")
}

/// `None` when it is another queue than the root of `device`.
pub(super) fn parse(payload: &[u8], device: u32) -> Option<Front> {
    let inside = payload.get(MESSAGE_BYTES..)?;
    if u32_at(payload, 4)? != device || u32_at(payload, 12)? != ROOT {
        return None;
    }
    if attributes(inside).any(|(kind, name)| kind == libc::TCA_KIND && name == b"noqueue\0") {
        return Some(Front::NoQueue);
    }
    let (_, counters) = attributes(inside).find(|(kind, _)| *kind == libc::TCA_STATS2)?;
    let mut reading = QueueReading::default();
    for (kind, content) in attributes(counters) {
        let number = |place: usize| u32_at(content, 4 * place).map(u64::from);
        match kind {
            STATS_BASIC => (reading.bytes, reading.packets) = (u64_at(content, 0), number(2)),
            STATS_QUEUE => {
                // qlen, backlog, drops, requeues, overlimits
                reading.backlog_bytes = number(1);
                reading.drops = number(2);
                reading.overlimits = number(4);
            }
            _ => {}
        }
    }
    Some(Front::Queue(reading))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
        let mut bytes = ((4 + content.len()) as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn token_bucket_answer_is_parsed() {
        let mut basic = 70u64.to_ne_bytes().to_vec();
        basic.extend(3u32.to_ne_bytes());
        let queue: Vec<u8> = [1u32, 1514, 7, 0, 9].into_iter().flat_map(u32::to_ne_bytes).collect();
        let counters = [attribute(STATS_BASIC, &basic), attribute(STATS_QUEUE, &queue)].concat();
        let mut payload = vec![0; MESSAGE_BYTES];
        payload[4..8].copy_from_slice(&5u32.to_ne_bytes());
        payload[12..16].copy_from_slice(&ROOT.to_ne_bytes());
        payload.extend(attribute(libc::TCA_KIND, b"tbf\0"));
        payload.extend(attribute(libc::TCA_STATS2, &counters));
        let expected = QueueReading {
            bytes: Some(70),
            packets: Some(3),
            drops: Some(7),
            overlimits: Some(9),
            backlog_bytes: Some(1514),
        };
        assert_eq!(parse(&payload, 5), Some(Front::Queue(expected)));
        assert_eq!(parse(&payload, 6), None, "another link's");
        assert_eq!(parse(&payload[..MESSAGE_BYTES + 8], 5), None, "a queue without counters");
        payload[12..16].copy_from_slice(&1u32.to_ne_bytes());
        assert_eq!(parse(&payload, 5), None, "a queue within another");
    }

    #[test]
    fn missing_queue_is_none() {
        assert!(Queue::open("no-such-link", None).is_err());
        assert!(Queue::open("lo", None).unwrap().is_none(), "nothing waits in front of loopback");
    }
}
