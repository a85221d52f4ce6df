//! The interface that carries traffic to an address, and how fast its link is.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;

/// The name of the interface that traffic to `target` leaves by; `lo` when the address is this host's own.
///
/// Nothing is sent: a UDP socket is connected, which makes the kernel choose a route and a source address
/// (udp(7)). Errors: no route, or an address that no interface has.
pub fn interface_to(target: SocketAddr) -> io::Result<String> {
    let any: SocketAddr = if target.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = UdpSocket::bind(any)?;
    // Port 0 cannot be connected to; the route does not depend on the port.
    let mut probe = target;
    if probe.port() == 0 {
        probe.set_port(9);
    }
    socket.connect(probe)?;
    let source = socket.local_addr()?.ip().to_canonical();
    if source.is_loopback() || source == target.ip().to_canonical() {
        return Ok("lo".to_owned());
    }
    interface_with(source)
}

/// The name of the interface that has this address.
/// Errors: none has it.
pub fn interface_with(address: IpAddr) -> io::Result<String> {
    let address = address.to_canonical();
    getifaddrs()?
        .find(|interface| interface.address.as_ref().and_then(ip_of) == Some(address))
        .map(|interface| interface.interface_name)
        .ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("no interface has the address {address}"))
        })
}

/// Name of the interface of this number in this network namespace (netdevice(7), `SIOCGIFNAME`); `None`:
/// there is none.
pub fn interface_name(number: u32) -> Option<String> {
    nix::net::if_::if_indextoname(number).ok()?.into_string().ok()
}

/// Number of the interface of this name, or alternative name, in this network namespace (netdevice(7),
/// `SIOCGIFINDEX`); `None`: there is none.
pub fn interface_number(name: &str) -> Option<u32> {
    nix::net::if_::if_nametoindex(name).ok()
}

fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    address
        .as_sockaddr_in()
        .map(|v4| IpAddr::V4(v4.ip()))
        .or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip()).to_canonical()))
}

/// The speed the driver of `interface` reports, bit/s (`/sys/class/net/X/speed`, in Mbit/s).
///
/// `None` where there is no link to have a speed (loopback, veth, most virtual machines): not known is not
/// unlimited.
pub fn link_speed_bit_per_s(root: &Path, interface: &str) -> Option<u64> {
    let text = std::fs::read_to_string(root.join("sys/class/net").join(interface).join("speed")).ok()?;
    // -1 (or its unsigned reading) means unknown.
    let mbit: i64 = text.trim().parse().ok()?;
    let known = mbit > 0 && mbit != i64::from(u32::MAX);
    known.then(|| u64::try_from(mbit).ok()?.checked_mul(1_000_000)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_route_over_loopback() {
        assert_eq!(interface_to("127.0.0.1:80".parse().unwrap()).unwrap(), "lo");
        assert_eq!(interface_with("127.0.0.1".parse().unwrap()).unwrap(), "lo");
        assert!(
            interface_with("192.0.2.1".parse().unwrap()).is_err(),
            "reserved for documentation (RFC 5737)"
        );
        for interface in getifaddrs().unwrap() {
            if let Some(ip @ IpAddr::V4(_)) = interface.address.as_ref().and_then(ip_of) {
                assert_eq!(interface_to(SocketAddr::new(ip, 0)).unwrap(), "lo", "{ip} is this host's own");
            }
        }
    }

    #[test]
    fn default_route_interface_is_found() {
        let table = std::fs::read_to_string("/proc/net/route").unwrap();
        let default = table
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .find(|words| words.get(1) == Some(&"00000000"));
        match default {
            // 198.51.100.0/24 is reserved for documentation (RFC 5737); nothing is sent to it.
            Some(words) => assert_eq!(interface_to("198.51.100.1:9".parse().unwrap()).unwrap(), words[0]),
            None => eprintln!("skipped: no default route"),
        }
    }

    #[test]
    fn link_speed_is_read_or_unknown() {
        let root = tempfile::tempdir().unwrap();
        for (name, text, expected) in [
            ("eth0", "1000\n", Some(1_000_000_000)),
            ("eth1", "-1\n", None),
            ("eth2", "4294967295\n", None),
            ("eth3", "", None),
            ("eth4", "0\n", None),
        ] {
            let folder = root.path().join("sys/class/net").join(name);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("speed"), text).unwrap();
            assert_eq!(link_speed_bit_per_s(root.path(), name), expected, "{name}");
        }
        assert_eq!(link_speed_bit_per_s(root.path(), "missing"), None);
        assert_eq!(link_speed_bit_per_s(Path::new("/"), "lo"), None);
    }
}
