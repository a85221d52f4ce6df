//! The addresses of a link, and reading what `ip` prints as JSON.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::Deserialize;

use super::{IP, TOOL_FOR};
use crate::{Error, Result};

/// An IPv4 network, `10.77.0.0/24`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subnet {
    network: Ipv4Addr,
    prefix_bits: u8,
}

impl Subnet {
    /// The network that holds `address`, of prefix length 8 to 30 (two ends need two addresses).
    pub fn new(address: Ipv4Addr, prefix_bits: u8) -> Result<Self> {
        if !(8..=30).contains(&prefix_bits) {
            return Err(Error::Refused(format!(
                "/{prefix_bits} is no usable network for a link: use /8 to /30"
            )));
        }
        Ok(Self::holding(address, prefix_bits))
    }

    fn holding(address: Ipv4Addr, prefix_bits: u8) -> Self {
        let network = Ipv4Addr::from(u32::from(address) & mask(prefix_bits));
        Self { network, prefix_bits }
    }

    /// Its address number `number`, from 1.
    pub fn host(&self, number: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.network).wrapping_add(number))
    }

    /// How many of its leading bits name the network.
    pub fn prefix_bits(&self) -> u8 {
        self.prefix_bits
    }

    pub fn contains(&self, address: Ipv4Addr) -> bool {
        Self::holding(address, self.prefix_bits) == *self
    }

    /// `address` with this network's prefix length, as `ip address add` wants it.
    pub fn with_prefix(&self, address: Ipv4Addr) -> String {
        format!("{address}/{}", self.prefix_bits)
    }

    /// Whether an address belongs to both.
    pub fn overlaps(&self, other: &Self) -> bool {
        let mask = mask(self.prefix_bits.min(other.prefix_bits));
        u32::from(self.network) & mask == u32::from(other.network) & mask
    }

    /// Errors when this network overlaps an address or a route of the network namespace that this thread is
    /// in.
    pub fn refuse_if_used(&self) -> Result<()> {
        self.refuse_if_in(&IP.run(&["-j", "-4", "route", "show", "table", "all"], None, TOOL_FOR)?)
    }

    /// Errors when one of the routes that `ip -j route` printed leads into this network. Addresses are not
    /// checked separately: each has a route in the table `local`.
    fn refuse_if_in(&self, routes: &[u8]) -> Result<()> {
        let routes: Vec<Route> = serde_json::from_slice(routes)
            .map_err(|error| Error::Refused(format!("cannot read what `ip -j route` prints: {error}")))?;
        for route in routes {
            // The default route conflicts with no network.
            let Ok(used) = route.dst.parse::<Self>() else { continue };
            if self.overlaps(&used) {
                return Err(Error::Refused(format!(
                    "{self} overlaps {} ({}) of this host; choose another network",
                    route.dst,
                    route.dev.as_deref().unwrap_or("no interface")
                )));
            }
        }
        Ok(())
    }
}

fn mask(prefix_bits: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix_bits.min(32))).unwrap_or(0)
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix_bits)
    }
}

impl FromStr for Subnet {
    type Err = Error;

    /// Reads `10.77.0.0/24`, and a lone address as a network of one. Any prefix length; see [`Subnet::new`].
    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::Refused(format!("`{text}` is not a network like 10.77.0.0/24"));
        let (address, prefix) = text.split_once('/').unwrap_or((text, "32"));
        let prefix_bits: u8 = prefix.parse().ok().filter(|bits| *bits <= 32).ok_or_else(wrong)?;
        Ok(Self::holding(address.parse().map_err(|_| wrong())?, prefix_bits))
    }
}

#[derive(Deserialize)]
struct Route {
    #[serde(default)]
    dst: String,
    dev: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ROUTES: &[u8] = br#"[{"dst":"default","gateway":"192.0.2.1","dev":"eth0","flags":[]},
        {"dst":"192.0.2.0/24","dev":"eth0","protocol":"kernel","scope":"link",
         "prefsrc":"192.0.2.2","flags":[]},
        {"type":"local","dst":"10.1.2.3","dev":"dummy0","table":"local","flags":[]},
        {"type":"unreachable","dst":"10.9.0.0/16","flags":[]}]"#;

    #[test]
    fn overlapping_networks_are_refused() {
        let check = |text: &str| text.parse::<Subnet>().unwrap().refuse_if_in(ROUTES);
        assert!(check("10.77.0.0/24").is_ok());
        for used in ["10.1.2.0/24", "10.0.0.0/8", "10.9.4.0/30", "192.0.2.128/25"] {
            let said = check(used).unwrap_err().to_string();
            assert!(said.contains("overlaps"), "{used}: {said}");
        }
        assert!("10.77.0.0/24".parse::<Subnet>().unwrap().refuse_if_in(b"Error: no").is_err());
    }

    #[test]
    fn subnet_addresses_are_computed() {
        let subnet = Subnet::new(Ipv4Addr::new(10, 77, 3, 9), 24).unwrap();
        assert_eq!(subnet.to_string(), "10.77.3.0/24");
        assert_eq!(subnet.with_prefix(subnet.host(2)), "10.77.3.2/24");
        assert!(Subnet::new(Ipv4Addr::LOCALHOST, 31).is_err());
        for wrong in ["", "10.0.0.0/33", "10.0.0/8", "default", "::/0"] {
            assert!(wrong.parse::<Subnet>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn overlap_is_sharing_an_address(a: u32, b: u32, wide in 0u8..=32, narrow in 0u8..=32) {
            let one = Subnet::holding(a.into(), wide);
            let other = Subnet::holding(b.into(), narrow);
            prop_assert_eq!(one.overlaps(&other), one.contains(other.network) || other.contains(one.network));
            prop_assert_eq!(one.overlaps(&other), other.overlaps(&one));
            prop_assert!(one.overlaps(&one));
        }
    }
}
