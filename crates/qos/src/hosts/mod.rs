//! Several hosts on one bottleneck. Controllers side by side starve each other, so that one [`Coordinator`]
//! runs the law on what all hosts report, and grants each its rates with a lease. A host whose lease ends
//! continues on its own ([`crate::law::Law::set_lease`]).
//!
//! No clock of one host is compared with that of another. A host counts its lease from the moment at which
//! it sent the report that the grant answers; the coordinator counts it from when the report came. That is
//! later: a share is given to others only after its host has stopped to use it. The time that a report and
//! its grant took is a difference of two times of the coordinator, less the time that the host says it kept
//! the grant before.

mod coordinator;
mod member;
mod share;
mod urgent_share;
pub mod wire;

use std::time::Duration;

pub use coordinator::{Coordinator, CoordinatorView, HostId, HostSeen};
pub use member::{Member, MemberState};
pub use share::{HostUse, Shares, shares};
pub use urgent_share::{UrgentUse, urgent_shares};

use crate::law::Observation;
use crate::policy::Policy;

/// Name of the protocol (ALPN, RFC 7301).
pub const PROTOCOL: &[u8] = b"kagiri-qos-hosts/1";
/// How long a grant holds. Ten reports may be lost.
pub const LEASE: Duration = Duration::from_millis(500);
/// A report whose way and whose answer's way took longer says nothing of now. It gets no grant.
pub const STALE: Duration = Duration::from_millis(300);
/// Hosts that one coordinator serves.
pub const HOSTS_MAX: usize = 256;

/// What a host reports, besides what is read from its sockets. Rates in bit/s.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostFacts {
    pub observation: Observation,
    /// What its bulk may send now.
    pub bulk_bit_per_s: f64,
    /// What its UDP sockets send, by class of the policy.
    pub datagrams: Vec<f64>,
    /// The largest rate that one of its messages needs.
    pub message_need_bit_per_s: f64,
    /// Its shortest target, in seconds; 0: none of its classes is urgent.
    pub target_s: f64,
    /// Its step came so late that the observation says nothing.
    pub is_late: bool,
}

/// Identifies what hosts have to agree on: the capacity and the classes. The interface and the way to the
/// coordinator may differ.
pub fn digest(policy: &Policy) -> [u8; 16] {
    use std::hash::Hasher;

    use siphasher::sip128::{Hasher128, SipHasher24};
    let mut hasher = SipHasher24::new();
    // Another version may print it in another way: it is refused, too.
    hasher.write(format!("{:?} {:?}", policy.bottleneck.capacity, policy.classes).as_bytes());
    hasher.finish128().as_bytes()
}

#[cfg(test)]
mod tests;
