//! Input and output of the law.

use crate::allocate::USABLE;
use crate::need::message_need_bit_per_s;
use crate::policy::{Capacity, Class, Policy};

/// Aggregate rate of bulk at the start, and below which growth does not depend on what was delivered, bit/s.
pub const START_BIT_PER_S: f64 = 5e6;
/// Payload of a full segment of TCP over Ethernet, of its bytes on the link: 1448 of 1514.
pub const PAYLOAD_SHARE: f64 = 1448.0 / 1514.0;
/// Share of the target that is left at least for the transfer, however long the overhead.
const TRANSFER_SHARE_MIN: f64 = 0.1;
/// How often watched sockets are looked at between ticks, in seconds.
pub const WATCH_S: f64 = 0.005;
/// Smaller changes of a rate are not worth a system call.
pub const CHANGE_MIN: f64 = 0.02;
/// A target for a policy without urgent classes: queues stay below 20 ms.
const TARGET_DEFAULT_S: f64 = 0.1;

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Time between ticks, in seconds.
    pub period_s: f64,
    /// Time by which rates act later than the samples that they follow from, in seconds: 0 on one host.
    pub delay_s: f64,
    /// Aggregate rate of bulk at the start, in bit/s.
    pub start_bit_per_s: f64,
    /// Payload that this host may allocate, in bit/s, if the policy gives the capacity; `None`: estimated.
    pub given_bit_per_s: Option<f64>,
    /// As in the policy.
    pub classes: Vec<ClassSettings>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ClassSettings {
    Urgent {
        /// Longest time of a message, in seconds, without the time that the policy says is spent elsewhere.
        target_s: f64,
        /// 0: not learned yet.
        message_bytes: f64,
        rank: Rank,
    },
    /// Rates in bit/s; the ceiling is infinite without a limit.
    Bulk { weight: f64, floor: f64, ceiling: f64 },
    /// A program of an urgent class that states its own target and size.
    Program {
        /// Index of its class in the policy.
        class: usize,
        target_s: f64,
        message_bytes: f64,
    },
}

/// What an urgent class has of the capacity beside others. Rates in bit/s; the ceiling is infinite without a
/// limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rank {
    /// 1 is the most urgent.
    pub priority: u8,
    pub weight: f64,
    pub floor: f64,
    pub ceiling: f64,
    /// Messages that may be on their way at the same time.
    pub clients: f64,
}

impl Default for Rank {
    fn default() -> Self {
        Self { priority: 1, weight: 1.0, floor: 0.0, ceiling: f64::INFINITY, clients: 1.0 }
    }
}

impl ClassSettings {
    /// Target in seconds and size in bytes of an urgent message.
    pub fn message(&self) -> Option<(f64, f64)> {
        match *self {
            Self::Urgent { target_s, message_bytes, .. } | Self::Program { target_s, message_bytes, .. } => {
                Some((target_s, message_bytes))
            }
            Self::Bulk { .. } => None,
        }
    }

    /// What one message needs to a peer that is `base_s` seconds away, in bit/s; 0: bulk, or not known.
    ///
    /// No rate meets a target that is shorter than the way to the peer: then the need is as if it were near,
    /// and others are not starved in vain. A connection whose first segment was lost seems a second away.
    pub fn message_need(&self, base_s: f64) -> f64 {
        self.message().map_or(0.0, |(target_s, bytes)| {
            let left_s = target_s - base_s;
            let is_near = left_s >= TRANSFER_SHARE_MIN * target_s;
            message_need_bit_per_s(bytes, if is_near { left_s } else { target_s })
        })
    }
}

/// What the overhead leaves of a target for the transfer, in seconds.
pub fn transfer_s(target_s: f64, overhead_s: f64) -> f64 {
    (target_s - overhead_s).max(TRANSFER_SHARE_MIN * target_s)
}

impl Settings {
    /// The period that the law was measured with. At 0.1 s it loses two points of messages in time; at 0.5 s
    /// it fails.
    pub const PERIOD_S: f64 = 0.05;

    pub fn from_policy(policy: &Policy) -> Self {
        let class = |class: &Class| match class.target {
            Some(target) => ClassSettings::Urgent {
                target_s: transfer_s(target.s(), class.overhead.s()),
                message_bytes: class.size.map_or(0.0, |size| size.bytes() as f64),
                rank: Rank {
                    priority: class.priority,
                    weight: class.weight,
                    floor: class.floor.bit_per_s() as f64,
                    ceiling: class.ceiling.map_or(f64::INFINITY, |rate| rate.bit_per_s() as f64),
                    clients: f64::from(class.clients),
                },
            },
            None => ClassSettings::Bulk {
                weight: class.weight,
                floor: class.floor.bit_per_s() as f64,
                ceiling: class.ceiling.map_or(f64::INFINITY, |rate| rate.bit_per_s() as f64),
            },
        };
        let given_bit_per_s = match policy.bottleneck.capacity {
            Capacity::Given(capacity) => Some(USABLE * PAYLOAD_SHARE * capacity.bit_per_s() as f64),
            Capacity::Estimate => None,
        };
        Self {
            period_s: Self::PERIOD_S,
            delay_s: 0.0,
            start_bit_per_s: given_bit_per_s.unwrap_or(START_BIT_PER_S),
            given_bit_per_s,
            classes: policy.classes.iter().map(class).collect(),
        }
    }

    pub fn has_urgent(&self) -> bool {
        self.classes.iter().any(|class| matches!(class, ClassSettings::Urgent { .. }))
    }

    /// What the largest message of all classes needs beside an empty network, in bit/s; 0: not known.
    pub fn message_need(&self) -> f64 {
        self.classes.iter().map(|class| class.message_need(0.0)).fold(0.0, f64::max)
    }

    /// The shortest target, in seconds.
    pub fn target_s(&self) -> f64 {
        let targets = self.classes.iter().filter_map(ClassSettings::message).map(|(target_s, _)| target_s);
        targets.reduce(f64::min).unwrap_or(TARGET_DEFAULT_S)
    }

    /// Index in the policy of a class of the law.
    pub fn policy_class(&self, class: usize) -> usize {
        match self.classes.get(class) {
            Some(ClassSettings::Program { class, .. }) => *class,
            _ => class,
        }
    }

    /// Floor and ceiling of all bulk together, in bit/s.
    pub fn bulk_bounds(&self) -> (f64, f64) {
        let bounds = self.classes.iter().filter_map(|class| match class {
            ClassSettings::Bulk { floor, ceiling, .. } => Some((*floor, *ceiling)),
            ClassSettings::Urgent { .. } | ClassSettings::Program { .. } => None,
        });
        bounds.reduce(|a, b| (a.0 + b.0, a.1 + b.1)).unwrap_or((0.0, f64::INFINITY))
    }
}

/// The rate at which a socket is to be paced.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SocketRate {
    pub id: u64,
    /// At least [`crate::SOCKET_RATE_MIN`].
    pub bit_per_s: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// No round-trip time says whether there is a queue.
    Blind,
    /// No queue: bulk grows as far as it uses its rate.
    Growing,
    /// The queue is short: bulk grows slowly.
    Holding,
    /// A queue stands: bulk makes room.
    Draining,
    /// A queue stands that bulk does not cause: unmanaged traffic shares the bottleneck.
    Foreign,
    /// No bulk data.
    Idle,
    /// The tick came so late that its samples say nothing.
    Late,
    /// The coordinator of several hosts sets the rate.
    Leased,
    /// The capacity is given: bulk gets what urgent messages leave.
    Given,
}

impl State {
    /// In the words of the program's answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Blind => "no time yet",
            Self::Growing => "no queue",
            Self::Holding => "short queue",
            Self::Draining => "queue drains",
            Self::Foreign => "queue of others",
            Self::Idle => "no bulk data",
            Self::Late => "measured late",
            Self::Leased => "rate leased",
            Self::Given => "capacity given",
        }
    }
}

/// Result of a tick. Rates in bit/s.
#[derive(Debug, Clone, PartialEq)]
pub struct Control {
    pub state: State,
    /// Aggregate rate of bulk.
    pub bulk_bit_per_s: f64,
    /// The same while a queue drains: lower for a moment.
    pub applied_bit_per_s: f64,
    /// Estimate of what the bottleneck carries of managed traffic.
    pub capacity_bit_per_s: f64,
    /// Whether a queue has shown the capacity, or the policy gives it. Before, it may be any that is greater.
    pub is_known: bool,
    /// Delay by the queue, in seconds.
    pub queue_s: Option<f64>,
    /// Sockets whose rate changes.
    pub rates: Vec<SocketRate>,
    /// Rate of each socket that begins to send, of new ones too, by class, in bit/s; `None`: sockets of the
    /// class are not paced.
    pub class_rates: Vec<Option<f64>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn need_for_a_peer_that_is_too_far_away_is_as_if_it_were_near() {
        let alarm = ClassSettings::Urgent { target_s: 0.08, message_bytes: 50e3, rank: Rank::default() };
        let [near, far, too_far] = [0.0, 0.06, 1.02].map(|base_s| alarm.message_need(base_s));
        assert!(far > 3.9 * near && far < 4.1 * near, "{near} {far}");
        assert_eq!(too_far, near);
    }
}
