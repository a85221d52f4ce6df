//! One socket of a class.

use sys::netlink::Flow;
use sys::process::{PacingRate, SocketHolder};

use crate::daemon::Rates;
use crate::law::SocketSample;
use crate::policy::Policy;

/// A socket that has sent nothing for this time is taken to rest.
const RESTS_AFTER_MS: u32 = 1000;

/// A socket of a class.
#[derive(Debug)]
pub struct Found {
    pub flow: Flow,
    /// When it was read, on the monotonic clock.
    pub time_ns: u64,
    pub holder: SocketHolder,
    /// Index in the policy.
    pub class: usize,
    /// It did not exist at the first reading, and has a holder for the first time.
    pub is_new: bool,
    /// What had been asked for and set when it was read; `None`: nothing.
    pub(in crate::daemon) at_reading: Option<Rates>,
    /// The rate that was set since it was read.
    pub set_since: Option<PacingRate>,
    /// Anything was set since it was read.
    pub is_changed_since: bool,
}

impl Found {
    /// Of a socket whose holder and class are to be found.
    pub(super) fn unplaced(flow: Flow, time_ns: u64) -> Self {
        let holder = SocketHolder { pid: 0, fd: -1 };
        Self {
            flow,
            time_ns,
            holder,
            class: 0,
            is_new: false,
            at_reading: None,
            set_since: None,
            is_changed_since: false,
        }
    }

    /// What the same socket is now.
    pub(super) fn update(&mut self, flow: Flow, time_ns: u64) {
        let (holder, class) = (self.holder, self.class);
        *self = Self { holder, class, ..Self::unplaced(flow, time_ns) };
    }

    /// Whether it may have changed within a fraction of a second in a way that matters.
    pub(super) fn is_busy(&self, policy: &Policy) -> bool {
        let rests_ms = self.flow.tcp.as_ref().and_then(|info| info.last_data_sent_ms);
        self.is_changed_since
            || self.flow.unsent_bytes > 0
            || rests_ms.is_none_or(|ms| ms < RESTS_AFTER_MS)
            || policy.classes[self.class].is_urgent()
    }

    /// What the law reads of it; `None` for UDP, and for a kernel that does not report all of it.
    pub fn sample(&self) -> Option<SocketSample> {
        let info = self.flow.tcp.as_ref()?;
        Some(SocketSample {
            id: self.flow.cookie,
            peer: self.flow.peer.ip(),
            class: self.class,
            time_ns: self.time_ns,
            srtt_us: info.rtt_us?,
            min_rtt_us: info.min_rtt_us?,
            segs_in: info.received_segments?,
            delivered: info.delivered_segments?,
            mss: info.send_mss_bytes?,
            unacked: info.unacked_segments?,
            sacked: info.sacked_segments?,
            lost: info.lost_segments?,
            retrans: info.retransmitted_segments?,
            total_retrans: info.retransmits_total?,
            notsent_bytes: info.notsent_bytes?,
        })
    }
}
