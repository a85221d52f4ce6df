//! The 37 bytes that name a test: the first thing said on every connection that belongs to it.

use std::fmt;

/// Bytes of a cookie, its closing NUL included.
pub const COOKIE_BYTES: usize = 37;

/// How the cookies of kagiri's own protocol begin; iperf3's are random letters and digits.
const KAGIRI: &str = "kagiri1-";
/// What iperf3 makes its cookies of: RFC 4648's base 32, in small letters.
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// A cookie: up to 36 visible ASCII characters, filled up with NUL.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cookie([u8; COOKIE_BYTES]);

impl Cookie {
    /// A random one, as iperf3 makes them.
    pub fn random() -> Self {
        Self::beginning("")
    }

    /// A random one of kagiri's own protocol.
    pub fn random_kagiri() -> Self {
        Self::beginning(KAGIRI)
    }

    fn beginning(prefix: &str) -> Self {
        let mut bytes = [0; COOKIE_BYTES];
        let (head, tail) = bytes[..COOKIE_BYTES - 1].split_at_mut(prefix.len());
        head.copy_from_slice(prefix.as_bytes());
        let letters = sys::random::letters::<COOKIE_BYTES>(LETTERS);
        tail.copy_from_slice(&letters[..tail.len()]);
        Self(bytes)
    }

    /// Reads what a peer sent; `None` if it is no cookie, so that the peer speaks another protocol.
    ///
    /// Old versions of iperf3 put host names and times into it, so that any visible character is taken.
    pub fn read(bytes: &[u8; COOKIE_BYTES]) -> Option<Self> {
        let text = bytes.iter().position(|&byte| byte == 0)?;
        let visible = bytes[..text].iter().all(u8::is_ascii_graphic);
        let filled = bytes[text..].iter().all(|&byte| byte == 0);
        (text > 0 && visible && filled).then_some(Self(*bytes))
    }

    /// As it is sent.
    pub fn bytes(&self) -> &[u8; COOKIE_BYTES] {
        &self.0
    }

    /// Its characters.
    pub fn text(&self) -> &str {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(COOKIE_BYTES);
        // Visible ASCII by construction.
        std::str::from_utf8(&self.0[..end]).unwrap_or_default()
    }

    /// Whether it opens kagiri's own protocol.
    pub fn is_kagiri(&self) -> bool {
        self.text().starts_with(KAGIRI)
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
    fn made_ones_are_read_and_told_apart() {
        for (cookie, kagiri) in [(Cookie::random(), false), (Cookie::random_kagiri(), true)] {
            assert_eq!(Cookie::read(cookie.bytes()), Some(cookie));
            assert_eq!((cookie.text().len(), cookie.is_kagiri()), (36, kagiri), "{cookie}");
        }
        assert_ne!(Cookie::random(), Cookie::random());
    }

    #[test]
    fn other_protocols_are_none() {
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
        fn what_is_read_is_written(bytes in prop::array::uniform32(any::<u8>()), short in 0_usize..37) {
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
