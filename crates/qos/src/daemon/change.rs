//! Changes to single sockets.

use sys::process::{PacingRate, SocketChange};
use sys::shaping::SocketTarget;

use super::discovery::{Discovery, Found};

/// The rate to set on a TCP socket that is to be paced at `asked` bit/s; `None` if the kernel paces it so
/// already.
pub(super) fn pacing(found: &Found, asked: f64) -> Option<PacingRate> {
    let asked = PacingRate::from_bit_per_s(asked as u64)?;
    let reported = found.flow.tcp.as_ref()?.pacing_max_bytes_per_s?;
    let now = found.set_since.map_or(reported, PacingRate::bytes_per_s);
    (now != asked.bytes_per_s()).then_some(asked)
}

/// The change of a UDP socket that is to have this priority; `None` if it has.
pub(super) fn priority(found: &Found, priority: u32) -> Option<SocketChange> {
    let is_set = found.flow.priority == Some(priority);
    (!is_set).then_some(SocketChange { priority: Some(priority), ..SocketChange::default() })
}

/// Whether a TCP socket is to keep all that was set on it. If not, it gets back everything; what is still
/// wanted is then set again.
pub(super) fn is_wanted(set: SocketChange, is_paced: bool, has_congestion: bool) -> bool {
    (is_paced || set.pacing.is_none()) && (has_congestion || set.congestion.is_none())
}

pub(super) fn target<'a>(
    found: &Found,
    change: SocketChange,
    discovery: &'a Discovery,
) -> Option<SocketTarget<'a>> {
    Some(SocketTarget {
        process: discovery.process(found)?,
        fd: found.holder.fd,
        inode: found.flow.inode,
        cookie: found.flow.cookie,
        change,
    })
}

#[cfg(test)]
mod tests {
    use sys::net::CongestionControl;

    use super::*;

    #[test]
    fn socket_whose_class_is_no_longer_limited_keeps_no_rate() {
        let congestion = CongestionControl::from_name("cubic");
        let rate = SocketChange { pacing: PacingRate::from_bytes_per_s(9), ..SocketChange::default() };
        let both = SocketChange { congestion, ..rate };
        assert!(is_wanted(rate, true, false) && !is_wanted(rate, false, false));
        assert!(
            is_wanted(both, true, true) && !is_wanted(both, false, true) && !is_wanted(both, true, false)
        );
        assert!(is_wanted(SocketChange { pacing: None, ..both }, false, true));
    }
}
