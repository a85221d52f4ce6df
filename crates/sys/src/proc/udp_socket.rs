//! What the kernel counts of a connected UDP socket, also of another program's: `/proc/net/udp` and
//! `/proc/net/udp6`, proc_net(5).

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;

use super::listener::parse_address;
use super::parse::{decimal, hexadecimal, lines, words};
use super::process::set::all_pids;

/// The two ends of a connected socket: its own address, and its peer's.
pub type UdpEnds = (SocketAddr, SocketAddr);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpSocketReading {
    /// What it has received and its program has not read, with the kernel's own needs.
    pub queued_bytes: u64,
    /// Datagrams that it dropped, nearly always because its receive buffer was full.
    pub drops: u64,
}

/// Looks for each of `wanted` in this thread's network namespace, and then in those of all processes that
/// this user may look into. `None` for a socket that is not found, such as one of another host, and for one
/// that is found twice.
pub fn udp_sockets(root: &Path, wanted: &[UdpEnds]) -> Vec<Option<UdpSocketReading>> {
    let canonical = |(own, peer): &UdpEnds| (canonical(*own), canonical(*peer));
    let mut found: BTreeMap<UdpEnds, Vec<UdpSocketReading>> =
        wanted.iter().map(|ends| (canonical(ends), Vec::new())).collect();
    read_tables(&root.join("proc/thread-self/net"), &mut found);
    if found.values().any(Vec::is_empty) {
        let namespace = |process: &Path| std::fs::read_link(process.join("ns/net")).ok();
        let mut seen: BTreeSet<_> = namespace(&root.join("proc/thread-self")).into_iter().collect();
        for pid in all_pids(root) {
            let process = root.join("proc").join(pid.to_string());
            if namespace(&process).is_some_and(|namespace| seen.insert(namespace)) {
                read_tables(&process.join("net"), &mut found);
            }
        }
    }
    let one = |ends: &UdpEnds| match found.get(&canonical(ends)).map(Vec::as_slice) {
        Some([reading]) => Some(*reading),
        _ => None,
    };
    wanted.iter().map(one).collect()
}

/// A dual-stack socket shows IPv4 addresses as IPv6.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn read_tables(net: &Path, found: &mut BTreeMap<UdpEnds, Vec<UdpSocketReading>>) {
    for table in ["udp", "udp6"] {
        // A kernel without IPv6 has no such file, and a process may end at any time.
        let text = std::fs::read(net.join(table)).unwrap_or_default();
        for (ends, reading) in lines(&text).filter_map(parse_line) {
            if let Some(readings) = found.get_mut(&ends) {
                readings.push(reading);
            }
        }
    }
}

/// `sl local rem st tx:rx tr:when retrnsmt uid timeout inode ref pointer drops`
pub(super) fn parse_line(line: &[u8]) -> Option<(UdpEnds, UdpSocketReading)> {
    let mut words = words(line);
    let own = parse_ends(words.nth(1)?)?;
    let peer = parse_ends(words.next()?)?;
    let queues = words.nth(1)?;
    let colon = queues.iter().position(|byte| *byte == b':')?;
    let queued_bytes = hexadecimal(&queues[colon + 1..])?;
    let drops = words.nth(7).and_then(decimal)?;
    Some(((own, peer), UdpSocketReading { queued_bytes, drops }))
}

fn parse_ends(text: &[u8]) -> Option<SocketAddr> {
    let colon = text.iter().position(|byte| *byte == b':')?;
    let port = u16::try_from(hexadecimal(&text[colon + 1..])?).ok()?;
    Some(canonical(SocketAddr::new(parse_address(&text[..colon])?, port)))
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn drops_are_those_that_the_receiver_never_reads() {
        let receiver = UdpSocket::bind("[::1]:0").unwrap();
        let sender = UdpSocket::bind("[::1]:0").unwrap();
        receiver.connect(sender.local_addr().unwrap()).unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let ends = (receiver.local_addr().unwrap(), sender.local_addr().unwrap());
        let read = || udp_sockets(Path::new("/"), &[ends])[0].unwrap();
        assert_eq!(read(), UdpSocketReading { queued_bytes: 0, drops: 0 });
        for _ in 0..1000 {
            sender.send(&[0; 1400]).unwrap();
        }
        let full = read();
        receiver.set_nonblocking(true).unwrap();
        let came = std::iter::from_fn(|| receiver.recv(&mut [0; 2000]).ok()).count() as u64;
        assert!(full.queued_bytes > 0 && came > 0 && came < 1000, "{full:?} {came}");
        assert_eq!(full.drops, 1000 - came);
        assert_eq!(read().drops, full.drops);
        // Both ends the other way round are the sender.
        assert_eq!(udp_sockets(Path::new("/"), &[(ends.1, ends.0)])[0].unwrap().drops, 0);
    }

    #[test]
    fn socket_is_found_in_a_namespace_of_another_process_unless_there_are_two() {
        let root = tempfile::tempdir().unwrap();
        let header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  \
                      timeout inode ref pointer drops\n";
        let line = " 2906: 0000000000000000FFFF00000100007F:1451 0000000000000000FFFF00000100007F:C000 01 \
                    00000000:00000A00 00:00000000 00000000     0        0 40716 2 00000000abcdef01 965185\n";
        let process = |name: &str, namespace: &str, table: &str| {
            let net = root.path().join("proc").join(name).join("net");
            std::fs::create_dir_all(&net).unwrap();
            std::fs::create_dir_all(net.with_file_name("ns")).unwrap();
            std::os::unix::fs::symlink(namespace, net.with_file_name("ns/net")).unwrap();
            std::fs::write(net.join("udp"), header).unwrap();
            std::fs::write(net.join("udp6"), format!("{header}{table}")).unwrap();
        };
        process("thread-self", "net:[1]", "");
        process("7", "net:[1]", "");
        process("8", "net:[2]", line);
        process("9", "net:[2]", line);
        let ends = ("127.0.0.1:5201".parse().unwrap(), "127.0.0.1:49152".parse().unwrap());
        let read = || udp_sockets(root.path(), &[ends])[0];
        assert_eq!(read(), Some(UdpSocketReading { queued_bytes: 0xa00, drops: 965_185 }));
        process("10", "net:[3]", line);
        assert_eq!(read(), None, "either may be meant");
    }
}
