//! Congestion controls of sockets: what the policy says, and what urgent sockets get in place of bbr while
//! UDP of bulk classes is held to a rate.
//!
//! bbr sends at the rate at which its own data was delivered lately. Beside UDP that fills what the policy
//! leaves it, this is what was left before the policy made room for the message, and bbr looks for more too
//! slowly for one message (docs/qos.md, "bbr").

use std::path::Path;
use std::time::Duration;

use sys::clock::Deadline;
use sys::net::CongestionControl;

use crate::policy::Class;

/// The first of these that this host has.
const IN_PLACE: [&str; 2] = ["cubic", "reno"];
/// UDP counts if it sends this share of what bulk may send.
const SHARE_MIN: f64 = 0.05;
/// How long after UDP has sent less.
const KEEP_FOR: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Congestion {
    in_place: Option<CongestionControl>,
    /// Until when UDP of bulk counts; `None`: it has not sent.
    beside: Option<Deadline>,
}

impl Congestion {
    /// Of this host.
    pub fn new() -> Self {
        let available = sys::environment::describe(Path::new("/")).congestion_controls;
        let is_there = |name: &&&str| available.iter().any(|other| other == **name);
        let in_place = IN_PLACE.iter().find(is_there).and_then(|name| CongestionControl::from_name(name));
        Self { in_place, beside: None }
    }

    /// Takes what UDP of bulk classes sends, and what bulk may send, in bit/s.
    pub fn observe(&mut self, datagrams: f64, bulk: f64) {
        if datagrams > SHARE_MIN * bulk {
            self.beside = Some(Deadline::after(KEEP_FOR));
        }
    }

    /// The congestion control that a TCP socket of a class is to have; `None`: its own. `now`: what it has.
    /// `is_ours`: that was set here.
    pub fn wanted(
        &self,
        class: &Class,
        now: Option<CongestionControl>,
        is_ours: bool,
    ) -> Option<CongestionControl> {
        let is_hindered = class.is_urgent() && self.is_beside_datagrams();
        let in_place = self.in_place.filter(|_| is_hindered && (is_ours || now.is_some_and(is_bbr)));
        class.congestion_control.or(in_place)
    }

    /// Whether a socket of the class may be too slow, because it uses bbr and keeps it.
    pub fn is_hindered(&self, class: &Class, now: Option<CongestionControl>) -> bool {
        let keeps = self.wanted(class, now, false).is_none_or(is_bbr);
        class.is_urgent() && self.is_beside_datagrams() && now.is_some_and(is_bbr) && keeps
    }

    fn is_beside_datagrams(&self) -> bool {
        self.beside.as_ref().is_some_and(|until| !until.passed())
    }
}

/// Of any version.
fn is_bbr(control: CongestionControl) -> bool {
    control.name().starts_with("bbr")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    fn classes(more: &str) -> Vec<Class> {
        let text = format!(
            "[bottleneck]\ninterface = 'eth0'\ncapacity = '20Mbit/s'\n[[class]]\nname = 'alarm'\n\
             match = {{ port = 1 }}\npriority = 1\ntarget = '100ms'\n{more}\n[[class]]\nname = 'bulk'\n\
             match = {{ port = 2 }}\npriority = 5\n"
        );
        Policy::parse(&text).unwrap().classes
    }

    #[test]
    fn urgent_bbr_is_replaced_while_datagrams_are_held_unless_the_policy_says_otherwise() {
        let of = CongestionControl::from_name;
        let (bbr, cubic) = (of("bbr"), of("cubic"));
        let mut congestion = Congestion { in_place: cubic, beside: None };
        let plain = classes("");
        let (alarm, bulk) = (&plain[0], &plain[1]);
        assert_eq!(congestion.wanted(alarm, bbr, false), None, "no UDP");
        congestion.observe(0.4e6, 10e6);
        assert_eq!(congestion.wanted(alarm, bbr, false), None, "little UDP");
        congestion.observe(4e6, 10e6);
        assert_eq!(congestion.wanted(alarm, bbr, false), cubic);
        assert_eq!(congestion.wanted(alarm, cubic, true), cubic, "it stays");
        assert_eq!(congestion.wanted(alarm, of("reno"), false), None, "its own");
        assert_eq!(congestion.wanted(bulk, bbr, false), None);
        assert!(!congestion.is_hindered(alarm, bbr) && !congestion.is_hindered(bulk, bbr));
        let keeps = &classes("congestion_control = 'bbr'")[0];
        assert_eq!(congestion.wanted(keeps, bbr, false), bbr);
        assert!(congestion.is_hindered(keeps, bbr) && !congestion.is_hindered(keeps, cubic));
        let none = Congestion { in_place: None, ..congestion };
        assert_eq!(none.wanted(alarm, bbr, false), None);
        assert!(none.is_hindered(alarm, bbr));
    }
}
