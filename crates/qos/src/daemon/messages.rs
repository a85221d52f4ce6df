//! Messages of unmodified programs, by the kernel's counters of their sockets.
//!
//! A message begins when a socket without data has some, and ends when all is acknowledged. The kernel counts
//! the time in between (`tcpi_busy_time`, tcp(7)), so that its length does not depend on how often it is
//! read. Messages that follow each other between two readings count as one; one whose socket is closed
//! before it is read again is not counted.

use std::collections::VecDeque;

use sys::netlink::ByCookie;

use crate::policy::Policy;

use super::discovery::Found;
use super::sizes::RecentSizes;

/// Transfer times that are kept of each class.
const RECENT: usize = 10_000;

/// Messages of one class since the start.
#[derive(Debug, Clone, Default)]
pub struct ClassMessages {
    pub count: u64,
    /// Those whose transfer took no longer than the target less the overhead.
    pub in_time: u64,
    pub acked_bytes: u64,
    /// Transfer times of recent messages, in seconds.
    recent_s: VecDeque<f64>,
    sizes: RecentSizes,
}

impl ClassMessages {
    /// Quantile of the recent transfer times, in seconds; `None` before the first message.
    pub fn transfer_s(&self, q: f64) -> Option<f64> {
        let times: Vec<f64> = self.recent_s.iter().copied().collect();
        base::statistics::quantile(&times, q)
    }

    fn add(&mut self, transfer_s: f64, limit_s: f64, bytes: u64) {
        self.count += 1;
        self.in_time += u64::from(transfer_s <= limit_s);
        if self.recent_s.len() == RECENT {
            self.recent_s.pop_front();
        }
        self.recent_s.push_back(transfer_s);
        self.sizes.add(bytes);
    }
}

/// Counters of a socket.
#[derive(Debug, Clone, Copy)]
struct Counters {
    acked_bytes: u64,
    busy_us: u64,
}

/// Of a connection that was just opened: the kernel counts an acknowledged SYN as a byte.
const OPENED: Counters = Counters { acked_bytes: 1, busy_us: 0 };

#[derive(Debug, Clone, Copy)]
struct Socket {
    last: Counters,
    /// When it had no data; `None`: it was found with some, whose beginning is not known.
    idle: Option<Counters>,
    /// The last observation of it.
    observation: u64,
}

/// A message of a process that has just ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EndedMessage {
    pub pid: i32,
    pub class: usize,
    /// From the first byte in the kernel to the last acknowledgement, in seconds.
    pub transfer_s: f64,
    pub bytes: u64,
}

#[derive(Debug)]
pub struct Messages {
    classes: Vec<ClassMessages>,
    /// Since the observation before.
    ended: Vec<EndedMessage>,
    /// Longest transfer time of a message in time, in seconds; `None`: bulk.
    limits_s: Vec<Option<f64>>,
    is_learned: Vec<bool>,
    sockets: ByCookie<Socket>,
    observations: u64,
}

impl Messages {
    pub fn new(policy: &Policy) -> Self {
        let classes = &policy.classes;
        Self {
            classes: vec![ClassMessages::default(); classes.len()],
            ended: Vec::new(),
            limits_s: classes.iter().map(|class| Some(class.target?.s() - class.overhead.s())).collect(),
            is_learned: classes.iter().map(|class| class.is_urgent() && class.size.is_none()).collect(),
            sockets: ByCookie::default(),
            observations: 0,
        }
    }

    pub fn observe(&mut self, found: &[Found]) {
        self.observations += 1;
        let observation = self.observations;
        let mut count = 0;
        self.ended.clear();
        for found in found {
            let Some(info) = &found.flow.tcp else { continue };
            let (Some(acked_bytes), Some(busy_us)) = (info.acked_bytes, info.busy_us) else { continue };
            let now = Counters { acked_bytes, busy_us };
            let is_idle = info.unacked_segments == Some(0) && info.notsent_bytes == Some(0);
            let idle = |since: Option<Counters>| if is_idle { Some(now) } else { since };
            let class = &mut self.classes[found.class];
            // A new socket has sent nothing before; one that existed may be amid a message.
            let before = if found.is_new {
                Socket { last: OPENED, idle: Some(OPENED), observation: 0 }
            } else {
                Socket { last: now, idle: idle(None), observation: 0 }
            };
            let socket = self.sockets.entry(found.flow.cookie).or_insert(before);
            let known = std::mem::replace(socket, Socket { last: now, idle: idle(socket.idle), observation });
            count += usize::from(known.observation != observation);
            class.acked_bytes += now.acked_bytes.saturating_sub(known.last.acked_bytes);
            if let (true, Some(since), Some(limit_s)) = (is_idle, known.idle, self.limits_s[found.class])
                && now.acked_bytes > since.acked_bytes
            {
                let transfer_s = now.busy_us.saturating_sub(since.busy_us) as f64 * 1e-6;
                let bytes = now.acked_bytes - since.acked_bytes;
                class.add(transfer_s, limit_s, bytes);
                let (pid, class) = (found.holder.pid, found.class);
                self.ended.push(EndedMessage { pid, class, transfer_s, bytes });
            }
        }
        if count < self.sockets.len() {
            self.sockets.retain(|_, socket| socket.observation == observation);
        }
    }

    /// Messages that ended since the observation before.
    pub fn ended(&self) -> &[EndedMessage] {
        &self.ended
    }

    /// Sizes, in bytes, of the messages of classes for which the policy has none.
    pub fn learned(&self) -> impl Iterator<Item = (usize, f64)> {
        let learned = |(at, class): (usize, &ClassMessages)| {
            self.is_learned[at].then(|| class.sizes.message_bytes()).flatten().map(|bytes| (at, bytes))
        };
        self.classes.iter().enumerate().filter_map(learned)
    }

    pub fn of_class(&self, class: usize) -> &ClassMessages {
        &self.classes[class]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::net::TcpInfo;
    use sys::netlink::Flow;
    use sys::process::SocketHolder;

    const POLICY: &str = "[bottleneck]\ninterface = 'eth0'\ncapacity = 'estimate'\n\
        [[class]]\nname = 'alarm'\nmatch = { process = 'alarm' }\npriority = 1\n\
        target = '100ms'\noverhead = '20ms'\n";

    /// A socket of the first class.
    fn found(cookie: u64, is_new: bool, acked_bytes: u64, busy_ms: u64, waiting_bytes: u32) -> Found {
        let tcp = TcpInfo {
            acked_bytes: Some(acked_bytes),
            busy_us: Some(busy_ms * 1000),
            unacked_segments: Some(0),
            notsent_bytes: Some(waiting_bytes),
            ..TcpInfo::default()
        };
        let address = "10.0.0.1:1".parse().unwrap();
        let flow = Flow {
            local: address,
            peer: address,
            interface: 0,
            state: 1,
            cookie,
            inode: 1,
            uid: 0,
            unread_bytes: 0,
            unsent_bytes: 0,
            memory: None,
            priority: None,
            tcp: Some(tcp),
            congestion: None,
        };
        let holder = SocketHolder { pid: 1, fd: 1 };
        Found {
            flow,
            time_ns: 0,
            holder,
            class: 0,
            is_new,
            at_reading: None,
            set_since: None,
            is_changed_since: false,
        }
    }

    fn counted(steps: &[Found]) -> (u64, u64, Option<f64>, Vec<(usize, f64)>) {
        let mut messages = Messages::new(&Policy::parse(POLICY).unwrap());
        steps.iter().for_each(|step| messages.observe(std::slice::from_ref(step)));
        let class = messages.of_class(0);
        (class.count, class.in_time, class.transfer_s(1.0), messages.learned().collect())
    }

    #[test]
    fn message_lasts_from_idle_to_idle() {
        let steps = [
            found(1, true, 1, 0, 0),
            found(1, false, 1001, 30, 4000),
            found(1, false, 5001, 90, 0),
            found(1, false, 10_001, 170, 0),
        ];
        // Of 90 ms and 80 ms: the overhead leaves 80 ms.
        let (count, in_time, longest_s, learned) = counted(&steps);
        assert_eq!((count, in_time, longest_s), (2, 1, Some(0.09)));
        assert_eq!(learned.len(), 1);
        assert!((learned[0].1 - 5000.0).abs() < 1.0, "{learned:?}");
    }

    #[test]
    fn opened_connection_is_no_message_and_what_was_before_is_not_counted() {
        assert_eq!(counted(&[found(1, true, 1, 0, 0), found(1, false, 1, 0, 0)]).0, 0);
        // It came into the class late, or existed at the start: idle, or amid a message.
        assert_eq!(counted(&[found(1, false, 1 << 40, 60_000, 0)]).0, 0);
        let amid =
            [found(1, false, 5000, 60, 100), found(1, false, 9000, 90, 0), found(1, false, 9500, 95, 0)];
        let (count, _, longest_s, _) = counted(&amid);
        assert_eq!((count, longest_s), (1, Some(0.005)));
    }

    #[test]
    fn socket_that_left_the_class_meanwhile_is_found_as_if_for_the_first_time() {
        // Another socket alone is found in between: what the first one sent then is no message of the class.
        let steps = [found(1, true, 1, 0, 0), found(2, true, 1, 0, 0), found(1, false, 9000, 50, 0)];
        assert_eq!(counted(&steps).0, 0);
        let steps = [found(1, true, 1, 0, 0), found(1, false, 1, 0, 0), found(1, false, 9000, 50, 0)];
        assert_eq!(counted(&steps).0, 1);
    }
}
