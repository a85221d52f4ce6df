//! How the connections of one of kagiri's own sessions are named: by cookies that contain the session and the
//! place.

use crate::control::{COOKIE_BYTES, Cookie};

/// How every cookie of ours begins.
const HEAD: &str = "kagiri1-";
/// Letters that name a session.
const SESSION_BYTES: usize = 20;
/// Hexadecimal digits of a flow's number.
const FLOW_BYTES: usize = 8;
/// What stands for a flow's number in the control connection's cookie.
const CONTROL: &str = "--------";

/// Whether a connection with this cookie speaks kagiri's protocol; iperf3's cookies are random letters and
/// digits.
pub fn is_kagiri(cookie: &Cookie) -> bool {
    cookie.text().starts_with(HEAD)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId([u8; SESSION_BYTES]);

/// What a connection is to its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It carries orders and reports.
    Control,
    Flow(u32),
}

impl SessionId {
    /// A new one: no foreign connection can be taken for this session's.
    pub fn random() -> Self {
        let mut name = [0; SESSION_BYTES];
        let text = Cookie::random_with(HEAD);
        name.copy_from_slice(&text.bytes()[HEAD.len()..HEAD.len() + SESSION_BYTES]);
        Self(name)
    }

    pub fn cookie(&self, role: Role) -> Cookie {
        let mut bytes = [0; COOKIE_BYTES];
        let place = match role {
            Role::Control => CONTROL.to_owned(),
            Role::Flow(number) => format!("{number:0FLOW_BYTES$x}"),
        };
        let parts = [HEAD.as_bytes(), &self.0, place.as_bytes()];
        bytes[..COOKIE_BYTES - 1].copy_from_slice(&parts.concat());
        Cookie::read(&bytes).expect("visible ASCII of the right length, closed by NUL")
    }

    /// Reads a cookie; `None` for one that is not of kagiri's own protocol.
    pub fn read(cookie: &Cookie) -> Option<(Self, Role)> {
        let rest = cookie.text().strip_prefix(HEAD)?;
        let (name, place) = rest.as_bytes().split_at_checked(SESSION_BYTES)?;
        let place = std::str::from_utf8(place).ok().filter(|place| place.len() == FLOW_BYTES)?;
        let role = if place == CONTROL { Role::Control } else { Role::Flow(flow_number(place)?) };
        Some((Self(name.try_into().ok()?), role))
    }
}

/// Only the digits that [`SessionId::cookie`] writes: one flow has one name.
fn flow_number(digits: &str) -> Option<u32> {
    let written = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    digits.bytes().all(written).then(|| u32::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn session_id_round_trips() {
        let session = SessionId::random();
        for role in [Role::Control, Role::Flow(0), Role::Flow(59_999), Role::Flow(u32::MAX)] {
            let cookie = session.cookie(role);
            assert!(is_kagiri(&cookie), "{cookie}");
            assert_eq!(SessionId::read(&cookie), Some((session, role)));
        }
        assert_ne!(session, SessionId::random());
    }

    #[test]
    fn foreign_cookies_are_refused() {
        assert_eq!(SessionId::read(&Cookie::random()), None, "iperf3's");
        for place in ["+1234567", "0000000G", "ABCDEF00"] {
            let mut bytes = *SessionId::random().cookie(Role::Control).bytes();
            bytes[COOKIE_BYTES - 1 - FLOW_BYTES..COOKIE_BYTES - 1].copy_from_slice(place.as_bytes());
            assert_eq!(SessionId::read(&Cookie::read(&bytes).unwrap()), None, "{place}");
        }
    }

    proptest! {
        #[test]
        fn read_never_panics(bytes: [u8; 32], tail: [u8; 4]) {
            let mut whole = [0; COOKIE_BYTES];
            whole[..32].copy_from_slice(&bytes);
            whole[32..36].copy_from_slice(&tail);
            whole[..HEAD.len()].copy_from_slice(HEAD.as_bytes());
            if let Some((session, role)) = Cookie::read(&whole).as_ref().and_then(SessionId::read) {
                let written = session.cookie(role);
                prop_assert_eq!(written.bytes(), &whole);
            }
        }
    }
}
