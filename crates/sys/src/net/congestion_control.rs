//! Names of congestion controls.

use std::os::fd::{AsFd, BorrowedFd};
use std::{fmt, io};

use serde::{Deserialize, Serialize};
use socket2::{Domain, Socket, Type};

use super::{NetError, socket_option};

/// `TCP_CA_NAME_MAX` (net/tcp.h), with the final NUL.
const NAME_BYTES: usize = 16;

/// Name of a congestion control of TCP, such as `bbr` (`TCP_CONGESTION`, tcp(7)).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CongestionControl([u8; NAME_BYTES]);

impl CongestionControl {
    /// `None`: no congestion control can have this name: it is empty, longer than 15 bytes, or has other
    /// characters than letters, digits, `-` and `_`.
    pub fn from_name(name: &str) -> Option<Self> {
        let is_plain = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
        let fits = !name.is_empty() && name.len() < NAME_BYTES && name.bytes().all(is_plain);
        fits.then(|| {
            let mut bytes = [0; NAME_BYTES];
            bytes[..name.len()].copy_from_slice(name.as_bytes());
            Self(bytes)
        })
    }

    /// The kernel's text, up to a NUL or its end.
    pub(crate) fn from_kernel(bytes: &[u8]) -> Option<Self> {
        let name = bytes.split(|byte| *byte == 0).next()?;
        Self::from_name(std::str::from_utf8(name).ok()?)
    }

    /// Sets it on a socket of this process, which makes the kernel load its module.
    /// Errors: the kernel does not know it, or it is not allowed here.
    pub fn check_available(self) -> Result<(), NetError> {
        let set = || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            self.set_on(socket.as_fd())
        };
        set().map_err(|error| {
            NetError::new("set the congestion control to", asked(self.name(), &error), error)
        })
    }

    /// Errors: the kernel does not know it (ENOENT), it is not allowed (EPERM), or this is no TCP socket.
    pub(crate) fn set_on(self, socket: BorrowedFd<'_>) -> io::Result<()> {
        socket_option::set(socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, self.0)
    }

    pub fn name(&self) -> &str {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
        // It was made of ASCII.
        std::str::from_utf8(&self.0[..end]).unwrap_or_default()
    }
}

/// The name that was asked for; if the kernel does not know it, also those that it knows.
pub(crate) fn asked(name: &str, error: &io::Error) -> String {
    let offered = || std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").ok();
    match (error.kind(), offered()) {
        (io::ErrorKind::NotFound, Some(offered)) => {
            let offered: Vec<&str> = offered.split_whitespace().collect();
            format!("{name} (this host offers {})", offered.join(", "))
        }
        _ => name.to_owned(),
    }
}

impl TryFrom<String> for CongestionControl {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Self::from_name(&name).ok_or_else(|| format!("'{name}' is no name of a congestion control"))
    }
}

impl From<CongestionControl> for String {
    fn from(control: CongestionControl) -> Self {
        control.name().to_owned()
    }
}

impl fmt::Debug for CongestionControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_kept_as_the_kernel_has_it() {
        let bbr = CongestionControl::from_kernel(b"bbr\0\0").unwrap();
        assert_eq!((bbr.name(), &bbr.0[..4]), ("bbr", &b"bbr\0"[..]));
        assert_eq!(Some(bbr), CongestionControl::from_name("bbr"));
        for wrong in ["", "sixteen_letters_", "a b", "\u{e4}"] {
            assert_eq!(CongestionControl::from_name(wrong), None, "{wrong}");
        }
        let text = serde_json::to_string(&bbr).unwrap();
        assert_eq!(serde_json::from_str::<CongestionControl>(&text).unwrap(), bbr);
    }
}
