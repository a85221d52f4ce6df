//! Makes a lab's network: namespaces, bridges, links, addresses, rates.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use sys::journal::Journal;
use sys::netns::Namespace;

use crate::error::{Error, Result};
use crate::file::{Lab, Queue};
use crate::layout::{Layout, Wire};

/// Burst of a link: this time at its rate, at most a quarter of its buffer, at least two packets. A smaller
/// burst loses rate when a timer is late; a larger one sends bursts that no wire produces.
const BURST_US: u64 = 500;
/// A full packet with its Ethernet header.
const PACKET_BYTES: u64 = 1514;
/// Longest transmission time of a GSO unit on the slowest link.
const GSO_US: u64 = 100;
/// The kernel's limit of 64 KiB.
const GSO_PACKETS_MAX: u64 = 44;
const PARALLEL_DELETES_MAX: usize = 8;

#[derive(Debug)]
pub(super) struct Network {
    namespaces: BTreeMap<String, Namespace>,
}

impl Network {
    pub(super) fn create(journal: &Journal, lab: &Lab, layout: &Layout) -> Result<Self> {
        let mut namespaces = BTreeMap::new();
        let names = layout.host_networks.iter().map(|place| &place.namespace).chain([&layout.switches]);
        for name in names {
            namespaces.insert(name.clone(), Namespace::create(journal, name)?);
        }
        let this = Self { namespaces };
        for (host, place) in lab.hosts.iter().zip(&layout.host_networks) {
            let mut settings = host.settings.clone();
            if place.forwards {
                settings.insert("ipv4.ip_forward".to_owned(), "1".to_owned());
            }
            let set = this.of(&place.namespace)?.within(|| set_all(&settings))?;
            set.map_err(|problem| Error::Layout(format!("host {}: {problem}", host.name)))?;
        }
        // Bridged packets need not pass the machine's firewall.
        this.of(&layout.switches)?.within(|| set_all(&BTreeMap::new()))?.map_err(Error::Layout)?;
        Ok(this)
    }

    pub(super) fn of(&self, name: &str) -> Result<&Namespace> {
        self.namespaces.get(name).ok_or_else(|| Error::Layout(format!("there is no namespace {name}")))
    }

    pub(super) fn link(&self, lab: &Lab, layout: &Layout) -> Result<()> {
        let mut batches = Batches::default();
        for switch in &lab.switches {
            let batch = batches.of(&layout.switches);
            // No spanning tree, so that ports forward at once; no snooping, so that no membership queries
            // are sent.
            let _ = writeln!(batch, "link add {switch} type bridge stp_state 0 mcast_snooping 0");
        }
        for wire in layout.wires.iter().filter(|wire| !wire.link.has_line()) {
            let [a, b] = &wire.ends;
            let batch = batches.of(&a.namespace);
            let _ = writeln!(
                batch,
                "link add {} type veth peer name {} netns {}",
                a.device, b.device, b.namespace
            );
        }
        batches.run(|name, commands| Ok(self.of(name)?.ip(commands)?))
    }

    /// Configures and enables all interfaces. Delay lines must exist.
    pub(super) fn configure(&self, lab: &Lab, layout: &Layout) -> Result<()> {
        let unit = gso_packets(lab).map(|packets| format!(" gso_max_segs {packets}")).unwrap_or_default();
        let mut batches = Batches::default();
        for wire in &layout.wires {
            for end in &wire.ends {
                let batch = batches.of(&end.namespace);
                let plug = end.switch.as_ref().map(|switch| format!(" master {switch}")).unwrap_or_default();
                let _ = writeln!(batch, "link set dev {}{unit}{plug} up", end.device);
            }
        }
        for switch in &lab.switches {
            let _ = writeln!(batches.of(&layout.switches), "link set dev {switch} up");
        }
        for place in &layout.host_networks {
            let batch = batches.of(&place.namespace);
            let _ = writeln!(batch, "link set dev lo up");
            for way in &place.interfaces {
                let (address, device) = (way.subnet.with_prefix(way.address), &way.device);
                let _ = writeln!(batch, "address add {address} broadcast + dev {device}");
            }
            if let Some(gateway) = place.gateway {
                let _ = writeln!(batch, "route add default via {gateway}");
            }
        }
        batches.run(|name, commands| Ok(self.of(name)?.ip(commands)?))
    }

    pub(super) fn shape(&self, layout: &Layout) -> Result<()> {
        let mut batches = Batches::default();
        for wire in &layout.wires {
            let rates = [wire.link.rate_up, wire.link.rate_down];
            for (end, rate) in wire.ends.iter().zip(rates) {
                if let Some(rate) = rate {
                    shape(batches.of(&end.namespace), &end.device, wire, rate.bit_per_s());
                }
            }
        }
        batches.run(|name, commands| Ok(self.of(name)?.tc(commands)?))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The kernel takes tens of milliseconds per namespace, but deletes several in parallel.
        let left = Mutex::new(std::mem::take(&mut self.namespaces));
        let next = || left.lock().unwrap_or_else(PoisonError::into_inner).pop_last();
        std::thread::scope(|scope| {
            for _ in 0..PARALLEL_DELETES_MAX {
                scope.spawn(|| while next().is_some() {});
            }
        });
    }
}

fn shape(batch: &mut String, device: &str, wire: &Wire, rate: u64) {
    let limit = wire.link.buffer_bytes(base::units::BitRate::from_bit_per_s(rate));
    let burst = burst_bytes(rate, limit);
    // Writing to a string cannot fail.
    let _ = match wire.link.queue {
        Queue::Tbf => writeln!(
            batch,
            "qdisc add dev {device} root handle 1: tbf rate {rate}bit burst {burst}b limit {limit}b"
        ),
        Queue::Htb => writeln!(
            batch,
            "qdisc add dev {device} root handle 1: htb default 1\n\
             class add dev {device} parent 1: classid 1:1 htb rate {rate}bit ceil {rate}bit burst {burst}b \
             cburst {burst}b quantum {PACKET_BYTES}\n\
             qdisc add dev {device} parent 1:1 handle 10: bfifo limit {limit}b"
        ),
    };
}

pub(super) fn burst_bytes(rate: u64, buffer_bytes: u64) -> u64 {
    let wanted = (rate / 8).saturating_mul(BURST_US).div_ceil(1_000_000);
    wanted.min(buffer_bytes / 4).max(2 * PACKET_BYTES)
}

/// Packets per GSO unit, so that a unit does not occupy the slowest link for long; `None` without rates.
fn gso_packets(lab: &Lab) -> Option<u64> {
    let steps = lab.links.iter().flat_map(|link| link.steps.iter().map(|step| step.rate));
    let rates = lab.links.iter().flat_map(|link| [link.rate_up, link.rate_down]).flatten().chain(steps);
    let slowest = rates.min()?.byte_per_s();
    Some((slowest.saturating_mul(GSO_US) / 1_000_000 / PACKET_BYTES).clamp(1, GSO_PACKETS_MAX))
}

/// Applies settings below `/proc/sys/net` in this thread's namespace. Disables IPv6 first, whose background
/// traffic would be measured.
fn set_all(settings: &BTreeMap<String, String>) -> std::result::Result<(), String> {
    let net = Path::new("/proc/sys/net");
    for scope in ["all", "default"] {
        let file = net.join("ipv6/conf").join(scope).join("disable_ipv6");
        // A kernel without IPv6 has no such file.
        let _ = std::fs::write(file, "1");
    }
    let _ = std::fs::write(net.join("bridge/bridge-nf-call-iptables"), "0");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (name, value) in settings {
        let file = net.join(name.replace('.', "/"));
        std::fs::write(&file, value).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => format!(
                "settings: net.{name} does not exist in a network namespace of this kernel (is it one of the \
                 whole machine?)"
            ),
            std::io::ErrorKind::PermissionDenied => {
                format!("settings: a network namespace may not set net.{name} to '{value}' on this kernel")
            }
            _ => format!("settings: net.{name} cannot be '{value}': {error}"),
        })?;
        let now = std::fs::read_to_string(&file).map_err(|error| format!("settings: net.{name}: {error}"))?;
        if words(&now) != words(value) {
            return Err(format!("settings: net.{name} became '{}' instead of '{value}'", words(&now)));
        }
    }
    Ok(())
}

#[derive(Default)]
struct Batches(BTreeMap<String, String>);

impl Batches {
    fn of(&mut self, namespace: &str) -> &mut String {
        self.0.entry(namespace.to_owned()).or_default()
    }

    fn run(self, run: impl Fn(&str, &str) -> Result<()>) -> Result<()> {
        self.0.iter().try_for_each(|(namespace, commands)| run(namespace, commands))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_and_gso_size_fit_rate_and_buffer() {
        assert_eq!(burst_bytes(1_000_000_000, 1_250_000), 62_500);
        assert_eq!(burst_bytes(1_000_000_000, 65_536), 16_384);
        assert_eq!(burst_bytes(8_000, 2_000), 2 * PACKET_BYTES);
        let units = |rate: &str| {
            let text = format!("name='x'\n[host.a]\n[host.b]\n[[link]]\nbetween=['a','b']\n{rate}\n");
            gso_packets(&Lab::read(&text).unwrap())
        };
        assert_eq!(units(""), None);
        assert_eq!([units("rate='50Mbit/s'"), units("rate='1Gbit/s'")], [Some(1), Some(8)]);
        assert_eq!(units("rate_up='100Gbit/s'"), Some(GSO_PACKETS_MAX));
    }
}
