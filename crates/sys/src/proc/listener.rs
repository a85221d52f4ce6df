//! Which processes listen on a TCP port: `/proc/net/tcp`, `/proc/net/tcp6` and `/proc/PID/fd`, proc_net(5).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::Duration;

use super::parse::{decimal, hexadecimal, lines, words};
use super::proc_file::with_path;
use super::process::set::all_pids;

/// Longer than the usual time from fork to exec.
const FORK_TO_EXEC: Duration = Duration::from_millis(2);
/// The state number of a listening socket.
const LISTEN: u64 = 0x0A;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listening {
    pub port: u16,
    /// Only sockets that take connections to this address: bound to it or to all addresses.
    pub address: Option<IpAddr>,
    /// A process in the network namespace to look in; this process's own when `None`.
    pub namespace_of: Option<i32>,
}

impl Listening {
    /// The processes that share such a socket, in ascending order; for a server with a master and workers all
    /// of them. Empty when nothing listens there.
    ///
    /// A process that is being started has all sockets of the one that starts it, until it executes its
    /// program. So where there are several, only those count that are found again a moment later.
    /// Errors: `PermissionDenied` when something listens but its processes belong to another user.
    pub fn pids(&self, root: &Path) -> io::Result<Vec<i32>> {
        found_twice(|| self.pids_now(root))
    }

    fn pids_now(&self, root: &Path) -> io::Result<Vec<i32>> {
        let inodes = self.inodes(root)?;
        if inodes.is_empty() {
            return Ok(Vec::new());
        }
        let mut denied = false;
        let mut found = Vec::new();
        for pid in all_pids(root) {
            match holds_socket(root, pid, &inodes) {
                Ok(true) => found.push(pid),
                Ok(false) => {}
                Err(error) => denied |= error.kind() == io::ErrorKind::PermissionDenied,
            }
        }
        if found.is_empty() && denied {
            let what = format!(
                "something listens on port {}, but only its owner or root may see which process",
                self.port
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        Ok(found)
    }

    fn inodes(&self, root: &Path) -> io::Result<Vec<u64>> {
        let net = match self.namespace_of {
            Some(pid) => root.join("proc").join(pid.to_string()).join("net"),
            None => root.join("proc/net"),
        };
        let mut inodes = Vec::new();
        let path = net.join("tcp");
        let text = std::fs::read(&path).map_err(|error| with_path(&path, &error))?;
        self.parse(&text, &mut inodes);
        // A kernel without IPv6 has no such file.
        if let Ok(text) = std::fs::read(net.join("tcp6")) {
            self.parse(&text, &mut inodes);
        }
        Ok(inodes)
    }

    pub(super) fn parse(&self, text: &[u8], inodes: &mut Vec<u64>) {
        inodes.extend(lines(text).filter_map(|line| self.inode_if_meant(line)));
    }

    /// `sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode ...`
    fn inode_if_meant(&self, line: &[u8]) -> Option<u64> {
        let mut words = words(line);
        let local = words.nth(1)?;
        let state = words.nth(1).and_then(hexadecimal)?;
        let inode = words.nth(5).and_then(decimal)?;
        let colon = local.iter().position(|byte| *byte == b':')?;
        let port = hexadecimal(&local[colon + 1..])?;
        let meant = state == LISTEN
            && port == u64::from(self.port)
            && self
                .address
                .is_none_or(|wanted| parse_address(&local[..colon]).is_some_and(|a| takes(a, wanted)));
        (meant && inode != 0).then_some(inode)
    }
}

fn takes(bound: IpAddr, wanted: IpAddr) -> bool {
    let (bound, wanted) = (bound.to_canonical(), wanted.to_canonical());
    match bound {
        IpAddr::V4(any) if any.is_unspecified() => wanted.is_ipv4(),
        // A socket on `::` usually takes IPv4 as well.
        IpAddr::V6(any) if any.is_unspecified() => true,
        _ => bound == wanted,
    }
}

/// The kernel prints addresses as 32-bit words in the machine's own byte order.
pub(super) fn parse_address(text: &[u8]) -> Option<IpAddr> {
    let word = |part: &[u8]| Some(u32::try_from(hexadecimal(part)?).ok()?.to_ne_bytes());
    match text.len() {
        8 => Some(IpAddr::V4(Ipv4Addr::from(word(text)?))),
        32 => {
            let mut bytes = [0; 16];
            for (into, part) in bytes.chunks_exact_mut(4).zip(text.chunks_exact(8)) {
                into.copy_from_slice(&word(part)?);
            }
            Some(IpAddr::V6(Ipv6Addr::from(bytes)))
        }
        _ => None,
    }
}

/// The pids found by two scans; a single pid needs no second scan.
fn found_twice(mut look: impl FnMut() -> io::Result<Vec<i32>>) -> io::Result<Vec<i32>> {
    let mut found = look()?;
    if found.len() > 1 {
        std::thread::sleep(FORK_TO_EXEC);
        let again = look()?;
        found.retain(|pid| again.contains(pid));
    }
    Ok(found)
}

fn holds_socket(root: &Path, pid: i32, inodes: &[u64]) -> io::Result<bool> {
    for entry in std::fs::read_dir(root.join("proc").join(pid.to_string()).join("fd"))? {
        let Ok(target) = std::fs::read_link(entry?.path()) else { continue };
        let inode =
            target.to_str().and_then(|name| name.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
        if inode.is_some_and(|inode: u64| inodes.contains(&inode)) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Deadline;
    use std::net::TcpListener;

    const TCP: &[u8] = b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when \
        retrnsmt   uid  timeout inode\n   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 \
        00000000     0        0 632 1 000000006a6c8d27 100 0 0 10 0\n   1: 00000000:1F90 00000000:0000 0A \
        00000000:00000000 00:00000000 00000000     0        0 633 1 0 100 0 0 10 0\n   2: 0100007F:1F90 \
        0100007F:8000 01 00000000:00000000 00:00000000 00000000     0        0 634 1 0 100 0 0 10 0\n";
    const TCP6: &[u8] =
        b"   0: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A \
        00000000:00000000 00:00000000 00000000     0        0 700 1 0 100 0 0 10 0\n";

    fn inodes(address: Option<&str>) -> Vec<u64> {
        let address = address.map(|text| text.parse().unwrap());
        let meant = Listening { port: 8080, address, namespace_of: None };
        let mut inodes = Vec::new();
        meant.parse(TCP, &mut inodes);
        meant.parse(TCP6, &mut inodes);
        inodes
    }

    /// Waits until just these share the socket: a child that another test starts has it too until it runs its
    /// program.
    fn await_pids(port: u16, mut expected: Vec<i32>) {
        expected.sort_unstable();
        let pids = || Listening { port, address: None, namespace_of: None }.pids(Path::new("/")).unwrap();
        let deadline = Deadline::after(Duration::from_secs(20));
        loop {
            let found = pids();
            if found == expected {
                return;
            }
            assert!(!deadline.passed(), "{found:?} share it, not {expected:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn pids_found_only_once_are_dropped() {
        let mut looks = [vec![7, 8, 9], vec![7, 9, 10]].into_iter();
        assert_eq!(found_twice(|| Ok(looks.next().unwrap())).unwrap(), [7, 9]);
        // A single pid cannot be a child between fork and exec.
        for alone in [vec![7], vec![]] {
            let mut looks = [alone.clone()].into_iter();
            assert_eq!(found_twice(|| Ok(looks.next().unwrap())).unwrap(), alone);
        }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn real_sample_is_parsed() {
        assert_eq!(inodes(None), [632, 633, 700], "the established connection is not among them");
        assert_eq!(inodes(Some("127.0.0.1")), [632, 633]);
        assert_eq!(inodes(Some("192.0.2.1")), [633]);
        assert_eq!(inodes(Some("::1")), [700]);
        assert_eq!(inodes(Some("::ffff:127.0.0.1")), [632, 633]);
    }

    /// A child that no failed assertion leaves behind.
    struct Ended(std::process::Child);

    impl Drop for Ended {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    #[test]
    fn listeners_include_children_that_share_the_socket() {
        use std::os::fd::AsRawFd;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let own = i32::try_from(std::process::id()).unwrap();
        await_pids(port, vec![own]);

        // A child that inherits the socket as its input, as a server's worker does.
        let inherited = listener.try_clone().unwrap();
        let child = std::process::Command::new("sleep")
            .arg("30")
            .stdin(std::os::fd::OwnedFd::from(inherited))
            .spawn()
            .unwrap();
        let child = Ended(child);
        await_pids(port, vec![own, i32::try_from(child.0.id()).unwrap()]);
        drop(child);
        assert!(listener.as_raw_fd() >= 0);
        drop(listener);
        await_pids(port, Vec::new());
    }
}
