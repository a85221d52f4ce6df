//! The 37 bytes that name a test and open each of its connections.

use std::fmt;

/// Bytes of a cookie, its closing NUL included.
pub const COOKIE_BYTES: usize = 37;

/// The characters of iperf3's cookies: base 32 (RFC 4648) in lower case.
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Up to 36 visible ASCII characters, filled up with NUL.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cookie([u8; COOKIE_BYTES]);

impl Cookie {
    /// A random one, as iperf3 makes them.
    pub fn random() -> Self {
        Self::random_with("")
    }

    /// A random one that begins with `prefix`, of at most 36 visible ASCII characters: for protocols that
    /// share the port with iperf3's.
    pub fn random_with(prefix: &str) -> Self {
        let mut bytes = [0; COOKIE_BYTES];
        let (head, tail) = bytes[..COOKIE_BYTES - 1].split_at_mut(prefix.len());
        head.copy_from_slice(prefix.as_bytes());
        let letters = sys::random::letters::<COOKIE_BYTES>(LETTERS);
        tail.copy_from_slice(&letters[..tail.len()]);
        Self(bytes)
    }

    /// Reads a cookie; `None`: the peer speaks another protocol. Old versions of iperf3 put host names and
    /// times into it, so that any visible character is accepted.
    pub fn read(bytes: &[u8; COOKIE_BYTES]) -> Option<Self> {
        let text = bytes.iter().position(|&byte| byte == 0)?;
        let visible = bytes[..text].iter().all(u8::is_ascii_graphic);
        let filled = bytes[text..].iter().all(|&byte| byte == 0);
        (text > 0 && visible && filled).then_some(Self(*bytes))
    }

    pub fn bytes(&self) -> &[u8; COOKIE_BYTES] {
        &self.0
    }

    pub fn text(&self) -> &str {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(COOKIE_BYTES);
        // Visible ASCII by construction.
        std::str::from_utf8(&self.0[..end]).unwrap_or_default()
    }
}

impl fmt::Display for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cookie({})", self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn random_cookies_are_read_back() {
        for (cookie, prefix) in [(Cookie::random(), ""), (Cookie::random_with("other1-"), "other1-")] {
            assert_eq!(Cookie::read(cookie.bytes()), Some(cookie));
            assert!(cookie.text().len() == 36 && cookie.text().starts_with(prefix), "{cookie}");
        }
        assert_ne!(Cookie::random(), Cookie::random());
    }

    #[test]
    fn other_protocols_are_refused() {
        for text in
            ["GET / HTTP/1.1\r\nHost: localhost\r\n\r\nxx", "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n", ""]
        {
            let mut bytes = [0; COOKIE_BYTES];
            let len = text.len().min(COOKIE_BYTES);
            bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
            assert_eq!(Cookie::read(&bytes), None, "{text:?}");
        }
        assert_eq!(Cookie::read(&[b'a'; COOKIE_BYTES]), None, "not closed");
    }

    proptest! {
        #[test]
        fn read_cookies_are_written_back(bytes in prop::array::uniform32(any::<u8>()), short in 0_usize..37) {
            let mut raw = [0; COOKIE_BYTES];
            raw[..32].copy_from_slice(&bytes);
            raw[short..].fill(0);
            if let Some(cookie) = Cookie::read(&raw) {
                prop_assert_eq!(cookie.bytes(), &raw);
                prop_assert!(!cookie.text().contains(char::is_whitespace) && !cookie.text().is_empty());
            }
        }
    }
}
