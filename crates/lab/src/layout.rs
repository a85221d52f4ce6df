//! Assigns namespaces, interfaces and addresses to the hosts and links of a lab file. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use sys::netns::Subnet;

use crate::error::{Error, Result};
use crate::file::{Lab, Link};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// Name of the host or switch.
    pub place: String,
    /// The switch to plug this end into; `None` for a host.
    pub switch: Option<String>,
    pub namespace: String,
    pub device: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Wire {
    /// From 1, in the order of the file.
    pub number: usize,
    pub link: Link,
    pub ends: [End; 2],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    pub device: String,
    pub address: Ipv4Addr,
    pub subnet: Subnet,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostNetwork {
    pub namespace: String,
    /// In the order of the links.
    pub interfaces: Vec<Interface>,
    pub gateway: Option<Ipv4Addr>,
    pub forwards: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    pub switches: String,
    /// In the order of the lab's hosts.
    pub host_networks: Vec<HostNetwork>,
    /// In the order of the lab's links.
    pub wires: Vec<Wire>,
}

impl Layout {
    /// Switches that are linked are one network, and so is a link from host to host. Networks get their
    /// addresses from the lab's subnet in the order of the file, a /24 each, or more where there are more
    /// hosts; hosts count from 1.
    /// Errors: The subnet is too small, or an address is given twice or lies in another network.
    pub fn of(lab: &Lab) -> Result<Self> {
        let switches = format!("kagiri-{}-switches", lab.name);
        let namespace = |host: &str| format!("kagiri-{}-{host}", lab.name);
        let wires = wires(lab, &switches, namespace);
        let networks = Networks::of(lab, &wires);
        let mut given = Addresses::new(lab, &networks)?;
        let mut host_networks: Vec<HostNetwork> = Vec::new();
        for host in &lab.hosts {
            let mut interfaces = Vec::new();
            for (wire, end) in ends_of(&wires, &host.name) {
                let network = networks.of_wire[wire.number - 1];
                let wanted = host.address.filter(|_| interfaces.is_empty());
                let (address, subnet) = given.take(network, wanted, &host.name)?;
                interfaces.push(Interface { device: end.device.clone(), address, subnet });
            }
            let forwards = lab.router.as_ref() == Some(&host.name);
            host_networks.push(HostNetwork {
                namespace: namespace(&host.name),
                interfaces,
                gateway: None,
                forwards,
            });
        }
        if let Some(router) = host_networks.iter().find(|place| place.forwards).cloned() {
            for place in host_networks.iter_mut().filter(|place| !place.forwards) {
                place.gateway = router.interfaces.iter().find_map(|way| {
                    place.interfaces.iter().any(|own| own.subnet == way.subnet).then_some(way.address)
                });
            }
        }
        Ok(Self { switches, host_networks, wires })
    }
}

fn ends_of<'a>(wires: &'a [Wire], host: &'a str) -> impl Iterator<Item = (&'a Wire, &'a End)> {
    let at = move |wire: &'a Wire| wire.ends.iter().find(|end| end.place == host).map(|end| (wire, end));
    wires.iter().filter_map(at)
}

fn wires(lab: &Lab, switches: &str, namespace: impl Fn(&str) -> String) -> Vec<Wire> {
    let is_switch: BTreeSet<&str> = lab.switches.iter().map(String::as_str).collect();
    let mut used: BTreeMap<&str, usize> = BTreeMap::new();
    let mut wires = Vec::new();
    for (index, link) in lab.links.iter().enumerate() {
        let number = index + 1;
        let mut end = |place: &'_ str, side: &str| match is_switch.get(place) {
            Some(switch) => End {
                place: place.to_owned(),
                switch: Some((*switch).to_owned()),
                namespace: switches.to_owned(),
                device: format!("port{number}{side}"),
            },
            None => {
                let key = lab.hosts.iter().map(|host| host.name.as_str()).find(|name| *name == place);
                let count = used.entry(key.unwrap_or_default()).or_default();
                let device = format!("eth{count}");
                *count += 1;
                End { place: place.to_owned(), switch: None, namespace: namespace(place), device }
            }
        };
        let ends = [end(&link.first, ""), end(&link.second, "b")];
        wires.push(Wire { number, link: link.clone(), ends });
    }
    wires
}

struct Networks {
    of_wire: Vec<usize>,
    hosts: Vec<usize>,
}

impl Networks {
    fn of(lab: &Lab, wires: &[Wire]) -> Self {
        // Each switch starts as its own network; linked switches take the smaller number until nothing
        // changes.
        let mut of_switch: BTreeMap<&str, usize> =
            lab.switches.iter().enumerate().map(|(number, name)| (name.as_str(), number)).collect();
        let joined = |wire: &Wire, of: &BTreeMap<&str, usize>| {
            let [a, b] = &wire.ends;
            Some((*of.get(a.switch.as_deref()?)?, *of.get(b.switch.as_deref()?)?))
        };
        for wire in wires {
            if let Some((a, b)) = joined(wire, &of_switch) {
                let (keep, lose) = (a.min(b), a.max(b));
                of_switch.values_mut().filter(|number| **number == lose).for_each(|number| *number = keep);
            }
        }
        let mut of_wire: Vec<usize> = Vec::new();
        let mut next = lab.switches.len();
        for wire in wires {
            let switch = wire.ends.iter().find_map(|end| of_switch.get(end.switch.as_deref()?).copied());
            of_wire.push(switch.unwrap_or_else(|| {
                next += 1;
                next - 1
            }));
        }
        let mut hosts = vec![0; next];
        for (wire, network) in wires.iter().zip(&of_wire) {
            hosts[*network] += wire.ends.iter().filter(|end| end.switch.is_none()).count();
        }
        Self { of_wire, hosts }
    }
}

struct Addresses {
    subnets: Vec<Subnet>,
    taken: BTreeSet<Ipv4Addr>,
    reserved: BTreeSet<Ipv4Addr>,
}

impl Addresses {
    fn new(lab: &Lab, networks: &Networks) -> Result<Self> {
        let too_small = || {
            let hosts: usize = networks.hosts.iter().sum();
            Error::Layout(format!(
                "the subnet {} is too small for {} networks with {hosts} interfaces; give a larger one",
                lab.subnet,
                networks.hosts.len()
            ))
        };
        let mut subnets = Vec::new();
        let mut at = u64::from(u32::from(lab.subnet.host(0)));
        let end = at + (1 << (32 - lab.subnet.prefix_bits()));
        for hosts in &networks.hosts {
            // Without network and broadcast address.
            let size = (*hosts as u64 + 2).next_power_of_two().max(256);
            at = at.next_multiple_of(size);
            let prefix = u8::try_from(32 - size.trailing_zeros()).unwrap_or(8);
            if at + size > end {
                return Err(too_small());
            }
            let first = u32::try_from(at).map_err(|_| too_small())?;
            subnets.push(Subnet::new(Ipv4Addr::from(first), prefix)?);
            at += size;
        }
        let reserved = lab.hosts.iter().filter_map(|host| host.address).collect();
        Ok(Self { subnets, taken: BTreeSet::new(), reserved })
    }

    fn take(&mut self, network: usize, wanted: Option<Ipv4Addr>, host: &str) -> Result<(Ipv4Addr, Subnet)> {
        let subnet = self.subnets[network];
        let size = 1 << (32 - subnet.prefix_bits());
        let address = match wanted {
            Some(address) if !subnet.contains(address) => {
                return Err(Error::Layout(format!(
                    "host {host}: the address {address} is not in its first link's network, which is {subnet}"
                )));
            }
            // Network and broadcast address (RFC 1122, 3.2.1.3).
            Some(address) if [0, size - 1].map(|number| subnet.host(number)).contains(&address) => {
                return Err(Error::Layout(format!(
                    "host {host}: {address} is the first or the last address of its network {subnet}, which \
                     no host can have; choose one in between"
                )));
            }
            Some(address) => address,
            None => {
                let free =
                    |address: &Ipv4Addr| !self.taken.contains(address) && !self.reserved.contains(address);
                let found = (1..size - 1).map(|number| subnet.host(number)).find(free);
                found
                    .ok_or_else(|| Error::Layout(format!("no address of {subnet} is left for host {host}")))?
            }
        };
        if !self.taken.insert(address) {
            return Err(Error::Layout(format!("host {host}: another host has the address {address}")));
        }
        Ok((address, subnet))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(text: &str) -> Result<Layout> {
        Layout::of(&Lab::read(text).unwrap())
    }

    fn addresses(layout: &Layout) -> Vec<Vec<String>> {
        let of = |place: &HostNetwork| place.interfaces.iter().map(|way| way.address.to_string()).collect();
        layout.host_networks.iter().map(of).collect()
    }

    #[test]
    fn linked_switches_are_one_network_and_each_direct_link_its_own() {
        let text = "name = 'x'\nrouter = \
                    'c'\n[host.a]\n[host.b]\n[host.c]\n[host.d]\n[switch.s]\n[switch.t]\n[switch.u]\n\
                    [[link]]\nbetween = ['a', 's']\n[[link]]\nbetween = ['b', 't']\n[[link]]\nbetween = \
                    ['t', 's']\n\
                    [[link]]\nbetween = ['c', 's']\n[[link]]\nfrom = 'c'\nto = 'd'\n";
        let layout = layout(text).unwrap();
        let expected =
            [vec!["10.77.0.1"], vec!["10.77.0.2"], vec!["10.77.0.3", "10.77.3.1"], vec!["10.77.3.2"]];
        assert_eq!(addresses(&layout), expected);
        let gateways: Vec<_> =
            layout.host_networks.iter().map(|place| place.gateway.map(|g| g.to_string())).collect();
        assert_eq!(gateways[..2], [Some("10.77.0.3".to_owned()), Some("10.77.0.3".to_owned())]);
        assert_eq!((&gateways[2], gateways[3].as_deref()), (&None, Some("10.77.3.1")));
        let devices: Vec<_> =
            layout.wires.iter().map(|w| w.ends.clone().map(|end| end.device).join(" ")).collect();
        assert_eq!(devices, ["eth0 port1b", "eth0 port2b", "port3 port3b", "eth0 port4b", "eth1 eth0"]);
    }

    #[test]
    fn fixed_addresses_are_kept_and_checked() {
        let text = |address: &str| {
            format!("name = 'x'\n[host.a]\n[host.b]\naddress = '{address}'\n[[link]]\nbetween = ['a', 'b']\n")
        };
        let taken = layout(&text("10.77.0.1")).unwrap();
        assert_eq!(addresses(&taken), [["10.77.0.2"], ["10.77.0.1"]]);
        let elsewhere = layout(&text("10.77.9.1")).unwrap_err().to_string();
        assert!(elsewhere.contains("10.77.0.0/24"), "{elsewhere}");
        for no_host in ["10.77.0.0", "10.77.0.255"] {
            let refused = layout(&text(no_host)).unwrap_err().to_string();
            assert!(refused.contains("in between"), "{refused}");
        }
        assert_eq!(addresses(&layout(&text("10.77.0.254")).unwrap()), [["10.77.0.1"], ["10.77.0.254"]]);
    }

    #[test]
    fn network_and_broadcast_addresses_are_not_assigned() {
        let text = "name = 'x'\n[host.a]\ncount = 254\n[switch.s]\n[[link]]\nbetween = ['a-*', 's']\n";
        let layout = layout(text).unwrap();
        assert_eq!(layout.host_networks[0].interfaces[0].subnet.to_string(), "10.77.0.0/24");
        let given: BTreeSet<String> = addresses(&layout).concat().into_iter().collect();
        let all: BTreeSet<String> = (1..255).map(|last| format!("10.77.0.{last}")).collect();
        assert_eq!(given, all);
    }

    #[test]
    fn large_networks_fit_and_small_subnets_are_rejected() {
        let text = |subnet: &str| {
            format!(
                "name = 'x'\nsubnet = '{subnet}'\n[host.a]\ncount = 300\n[switch.s]\n[[link]]\nbetween = \
                 ['a-*', 's']\n"
            )
        };
        let wide = layout(&text("10.77.0.0/16")).unwrap();
        assert_eq!(wide.host_networks[299].interfaces[0].address.to_string(), "10.77.1.44");
        assert_eq!(wide.host_networks[299].interfaces[0].subnet.prefix_bits(), 23);
        let narrow = layout(&text("10.77.0.0/24")).unwrap_err().to_string();
        assert!(narrow.contains("too small"), "{narrow}");
    }
}
