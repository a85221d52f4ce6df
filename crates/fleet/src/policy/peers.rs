//! Addresses with which a part may exchange traffic.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};

/// Metadata services of clouds, which give a host's secrets to any process on it: most clouds, AWS over
/// IPv6, ECS tasks, EKS pods (AWS user guides).
const CLOUD_METADATA: [IpAddr; 5] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PeerRange {
    Any,
    /// 127.0.0.0/8 and ::1.
    Loopback,
    /// The announced addresses of the fleet's hosts.
    Fleet,
    /// Never an IPv4-mapped range.
    Net(IpNet),
}

impl PeerRange {
    pub fn new(text: &str) -> Result<Self, String> {
        match text {
            "any" => return Ok(Self::Any),
            "loopback" => return Ok(Self::Loopback),
            "fleet" => return Ok(Self::Fleet),
            _ => {}
        }
        let net = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
        let net = net.ok_or_else(|| {
            format!(
                "'{text}' is no peer: write a range such as 10.0.0.0/8 or fd00::/8, an address, \
                     loopback, fleet or any"
            )
        })?;
        if net.trunc() != net {
            return Err(format!(
                "'{text}' has bits beyond its prefix: write {}, or the address alone",
                net.trunc()
            ));
        }
        Ok(Self::Net(canonical_net(net)))
    }

    /// Whether the range contains an address. A special address must be listed explicitly.
    pub fn contains(&self, ip: IpAddr, fleet: &[IpAddr]) -> bool {
        let ip = ip.to_canonical();
        let special = special(ip).is_some();
        match self {
            Self::Any => true,
            Self::Loopback => ip.is_loopback(),
            Self::Fleet => !special && fleet.iter().any(|of| of.to_canonical() == ip),
            Self::Net(net) if special => net.contains(&ip) && is_explicit(*net, ip),
            Self::Net(net) => net.contains(&ip),
        }
    }
}

impl fmt::Display for PeerRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Loopback => f.write_str("loopback"),
            Self::Fleet => f.write_str("fleet"),
            Self::Net(net) if net.prefix_len() == net.max_prefix_len() => write!(f, "{}", net.addr()),
            Self::Net(net) => write!(f, "{net}"),
        }
    }
}

/// What is special about an address that reaches many hosts, no host, or more than it seems.
pub(super) fn special(ip: IpAddr) -> Option<&'static str> {
    match ip.to_canonical() {
        ip if CLOUD_METADATA.contains(&ip) => Some("the metadata service of clouds"),
        // "This network" (RFC 791): Linux takes 0.0.0.0 for itself.
        IpAddr::V4(v4) if v4.octets()[0] == 0 => Some("no host's address"),
        IpAddr::V4(v4) if v4.is_multicast() => Some("a multicast address"),
        IpAddr::V4(v4) if v4.is_broadcast() => Some("the broadcast address"),
        IpAddr::V6(v6) if v6.is_unspecified() => Some("no host's address"),
        IpAddr::V6(v6) if v6.is_multicast() => Some("a multicast address"),
        _ => None,
    }
}

/// Why an address is refused on the coordinator's own host too, unless the user asked for it.
pub(super) fn guarded(ip: IpAddr) -> Option<&'static str> {
    let is_link_local = match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let link_local = is_link_local.then_some("a link-local address");
    special(ip).filter(|_| CLOUD_METADATA.contains(&ip)).or(link_local)
}

/// Whether a range means a special address explicitly: it is that address or lies within the multicast
/// range.
fn is_explicit(net: IpNet, ip: IpAddr) -> bool {
    let within = |range: &str| range.parse::<IpNet>().is_ok_and(|range| range.contains(&net));
    net.prefix_len() == net.max_prefix_len() && net.addr() == ip
        || within("224.0.0.0/4")
        || within("ff00::/8")
}

/// Loopback, and ranges that sites route themselves: RFC 1918, RFC 4193. Not link-local ones, as on the
/// coordinator's host: routers, printers and clouds' services answer there on every link.
pub(super) fn private() -> Vec<PeerRange> {
    let ranges = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"];
    let nets = ranges.iter().filter_map(|text| text.parse().ok()).map(PeerRange::Net);
    std::iter::once(PeerRange::Loopback).chain(nets).collect()
}

/// An IPv4-mapped range (RFC 4291, 2.5.5.2) means the IPv4 range.
fn canonical_net(net: IpNet) -> IpNet {
    match (net, net.addr().to_canonical()) {
        (IpNet::V6(v6), IpAddr::V4(v4)) if v6.prefix_len() >= 96 => {
            Ipv4Net::new(v4, v6.prefix_len() - 96).map_or(net, IpNet::V4)
        }
        _ => net,
    }
}
