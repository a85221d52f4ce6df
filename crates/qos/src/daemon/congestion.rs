//! Whether late messages may be due to the congestion control of their sockets.
//!
//! bbr sends at the rate at which its own data was delivered lately. Beside UDP this can be what was left
//! before the policy made room for a message, and bbr looks for more too slowly for one message (docs/qos.md,
//! "bbr").

use sys::net::CongestionControl;

/// UDP counts if it sends this share of what bulk may send.
const SHARE_MIN: f64 = 0.05;
/// Messages are late if fewer than this share are in time, of this number at least.
const IN_TIME_MIN: f64 = 0.9;
const MESSAGES_MIN: u64 = 10;

/// Whether UDP of bulk counts. Rates in bit/s: what it sends, and what bulk may send.
pub fn is_beside_datagrams(datagrams: f64, bulk: f64) -> bool {
    datagrams > SHARE_MIN * bulk
}

/// Whether the messages of an urgent class are late, of which a socket uses `control`, and that is bbr, of
/// any version.
pub fn may_be_late_by(control: Option<CongestionControl>, messages: u64, in_time: u64) -> bool {
    let is_bbr = control.is_some_and(|control| control.name().starts_with("bbr"));
    is_bbr && messages >= MESSAGES_MIN && (in_time as f64) < IN_TIME_MIN * messages as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bbr_is_named_only_if_messages_are_late() {
        let of = CongestionControl::from_name;
        assert!(may_be_late_by(of("bbr"), 20, 17) && may_be_late_by(of("bbr2"), 20, 0));
        assert!(!may_be_late_by(of("bbr"), 20, 18), "in time");
        assert!(!may_be_late_by(of("bbr"), 9, 0), "too few");
        assert!(!may_be_late_by(of("cubic"), 20, 0) && !may_be_late_by(None, 20, 0));
        assert!(is_beside_datagrams(1e6, 10e6) && !is_beside_datagrams(0.4e6, 10e6));
    }
}
