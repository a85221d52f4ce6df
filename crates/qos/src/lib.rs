//! Quality of service on one bottleneck: which program's messages arrive in time.
//!
//! A [`policy`] is read from text, [`need`] and [`allocate`] turn it into rates, [`verdict`] says before
//! anything is enforced which targets can be met, [`rank`] holds less urgent classes back, and [`law`]
//! controls the aggregate rate of bulk traffic from samples of sockets. If several [`hosts`] share the
//! bottleneck, a coordinator runs the law for all. All of this is pure. The [`daemon`] reads the sockets and
//! the clock, and sets the rates.

pub mod allocate;
pub mod daemon;
pub mod datagram_share;
pub mod hosts;
pub mod law;
pub mod need;
pub mod part;
pub mod policy;
pub mod rank;
pub mod split;
pub mod verdict;

/// The parts of this crate that a run can place.
pub const PARTS: &[base::part::PartKind] = &[
    workload::part::kind::<part::PolicyPart>(),
    workload::part::kind::<part::coordinator::CoordinatorPart>(),
];

/// Lowest rate that a socket may be paced at, bit/s. Rate 0 means "unlimited" to the kernel (socket(7),
/// `SO_MAX_PACING_RATE`), and a socket sleeps on its pacing timer until its next segment is due.
pub const SOCKET_RATE_MIN: f64 = 64_000.0;
