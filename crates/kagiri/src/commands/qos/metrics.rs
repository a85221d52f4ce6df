//! Numbers of a policy in force for Prometheus (text format 0.0.4): a file that the content server serves.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use httpd::{Server, ServerConfig};
use qos::daemon::{ClassStatus, LeaseState, SocketStatus, Status};

use super::record::{Record, is_same_rate};
use crate::atomic_file::write_atomically;
use crate::exit::Failure;

/// Connections at a time: scrapers are few.
const CONNECTIONS_MAX: usize = 64;

/// One of a socket's rates.
type RateOf = fn(&SocketStatus) -> Option<f64>;

/// A listener whose page `/metrics` is written anew with every record.
pub struct Metrics {
    server: Server,
    folder: PathBuf,
}

impl Metrics {
    /// Errors: the address is not loopback and `is_open` was not given, or cannot be listened on.
    pub fn start(listen: SocketAddr, is_open: bool, record: &Record) -> Result<Self, Failure> {
        if !listen.ip().is_loopback() && !is_open {
            return Err(Failure::usage(format!(
                "--metrics {listen} is reachable from other hosts without authentication; add --open to \
                 allow that"
            )));
        }
        let folder = record.metrics_folder();
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        write(&folder, record)?;
        let mut config = ServerConfig::new(&folder, listen);
        config.limits.connections_max = CONNECTIONS_MAX;
        let server = Server::start(config).with_context(|| format!("cannot serve metrics at {listen}"))?;
        Ok(Self { server, folder })
    }

    pub fn address(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Errors: the file cannot be written.
    pub fn update(&self, record: &Record) -> anyhow::Result<()> {
        write(&self.folder, record)
    }
}

fn write(folder: &Path, record: &Record) -> anyhow::Result<()> {
    write_atomically(&folder.join("metrics"), text(record).as_bytes())
}

/// The page as it grows. All samples have the labels.
struct Page {
    text: String,
    labels: String,
}

/// One family of samples.
struct Family<'a> {
    page: &'a mut Page,
    name: &'static str,
}

impl Page {
    fn family(&mut self, name: &'static str, kind: &str, help: &str) -> Family<'_> {
        // Writing into a string cannot fail.
        let _ = writeln!(self.text, "# HELP kagiri_qos_{name} {help}\n# TYPE kagiri_qos_{name} {kind}");
        Family { page: self, name }
    }
}

impl Family<'_> {
    /// Nothing is known: no sample.
    fn add(&mut self, labels: &[(&str, &str)], value: Option<f64>) {
        let Some(value) = value else { return };
        let mut all = self.page.labels.clone();
        for (name, value) in labels {
            let _ = write!(all, ",{name}=\"{}\"", escaped(value));
        }
        let _ = writeln!(self.page.text, "kagiri_qos_{}{{{all}}} {value}", self.name);
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn text(record: &Record) -> String {
    let status = &record.status;
    let labels = format!("interface=\"{}\"", escaped(&status.interface));
    let mut page = Page { text: String::new(), labels };
    page.family("in_force_seconds", "gauge", "Time that the policy has been in force.")
        .add(&[], Some(record.age_s));
    let help = "Payload that the bottleneck carries: given, or shown by a queue.";
    page.family("capacity_bits_per_second", "gauge", help).add(&[], status.capacity_bit_per_s);
    let help = "What all bulk classes together may send.";
    page.family("bulk_bits_per_second", "gauge", help).add(&[], status.bulk_bit_per_s);
    let help = "Delay by the queue at the bottleneck.";
    page.family("queue_seconds", "gauge", help).add(&[], status.queue_ms.map(|ms| ms / 1e3));
    let state = status.state.as_deref().unwrap_or("no step yet");
    page.family("state", "gauge", "State of the law, by its name.").add(&[("state", state)], Some(1.0));
    of_hosts(&mut page, status);
    let problems = Some(status.problems.len() as f64);
    page.family("problems", "gauge", "Different problems, at most the last 8.").add(&[], problems);

    let mut of_classes =
        |name: &'static str, kind: &str, help: &str, value: &dyn Fn(&ClassStatus) -> Option<f64>| {
            let mut family = page.family(name, kind, help);
            for class in &status.classes {
                family.add(&[("class", &class.name)], value(class));
            }
        };
    let of_urgent = |class: &ClassStatus, value: u64| class.target_ms.map(|_| value as f64);
    of_classes("target_seconds", "gauge", "Longest response time of a message.", &|class| {
        class.target_ms.map(|ms| ms / 1e3)
    });
    of_classes("messages_total", "counter", "Messages of urgent classes.", &|class| {
        of_urgent(class, class.messages)
    });
    let help = "Messages that were transferred within the target less the overhead.";
    of_classes("messages_in_time_total", "counter", help, &|class| of_urgent(class, class.in_time));
    let help = "What new connections of programs in the class's control group are paced at.";
    of_classes("new_sockets_bits_per_second", "gauge", help, &|class| class.new_sockets_bit_per_s);
    by_protocol(&mut page, status);
    page.text
}

/// This host's place among others at the bottleneck.
fn of_hosts(page: &mut Page, status: &Status) {
    let Some(hosts) = &status.hosts else { return };
    let labels: [(&str, &str); 1] = [("coordinator", &hosts.coordinator)];
    let is_leased = hosts.state == LeaseState::Leased;
    let help = "1 while the coordinator sets the rates, 0 while this host is on its own.";
    page.family("lease_valid", "gauge", help).add(&labels, Some(f64::from(u8::from(is_leased))));
    let help = "Time since the lease began to hold, or ended.";
    page.family("lease_state_seconds", "gauge", help).add(&labels, Some(hosts.since_s));
    let help = "Hosts that share the bottleneck, by the last lease.";
    page.family("hosts", "gauge", help).add(&labels, Some(f64::from(hosts.hosts)));
    let help = "From the sending of a report to the grant that answers it.";
    page.family("control_delay_seconds", "gauge", help).add(&labels, hosts.delay_ms.map(|ms| ms / 1e3));
}

/// Numbers that TCP and UDP of a class have each.
fn by_protocol(page: &mut Page, status: &Status) {
    let help = "Transfer time of recent messages, as the kernel counts it.";
    let mut family = page.family("transfer_seconds", "gauge", help);
    for class in &status.classes {
        for (quantile, ms) in [("0.5", class.transfer_p50_ms), ("0.99", class.transfer_p99_ms)] {
            family.add(&[("class", &class.name), ("quantile", quantile)], ms.map(|ms| ms / 1e3));
        }
    }
    let help = "Acknowledged payload of TCP, or bytes of UDP on the link.";
    let mut family = page.family("sent_bytes_total", "counter", help);
    for class in &status.classes {
        family.add(&[("class", &class.name), ("protocol", "tcp")], Some(class.acked_bytes as f64));
        let udp = class.udp.as_ref().map(|udp| udp.sent_bytes as f64);
        family.add(&[("class", &class.name), ("protocol", "udp")], udp);
    }
    let mut family = page.family("sockets", "gauge", "Sockets now.");
    for class in &status.classes {
        family.add(&[("class", &class.name), ("protocol", "tcp")], Some(class.sockets as f64));
        family.add(&[("class", &class.name), ("protocol", "udp")], Some(class.udp_sockets as f64));
    }
    let help = "Sockets that the kernel paces as asked, or whose packets it puts into the class.";
    let mut family = page.family("sockets_verified", "gauge", help);
    for class in status.classes.iter().filter(|class| has_rates(status, class)) {
        let verified = of_class(status, class).filter(|socket| is_same_rate(socket)).count();
        family.add(&[("class", &class.name), ("protocol", "tcp")], Some(verified as f64));
        let udp = class.udp.as_ref().map(|udp| udp.sockets_in_class as f64);
        family.add(&[("class", &class.name), ("protocol", "udp")], udp);
    }
    let help =
        "Rate of all sockets of a class that are limited: as the law asks, as set, as the kernel says.";
    let mut family = page.family("rate_bits_per_second", "gauge", help);
    for class in status.classes.iter().filter(|class| has_rates(status, class)) {
        let rates: [(&str, RateOf); 3] = [
            ("asked", |socket| socket.asked_bit_per_s),
            ("enforced", |socket| socket.enforced_bit_per_s),
            ("verified", |socket| socket.verified_bit_per_s),
        ];
        for (stage, rate) in rates {
            // Unknown if one is: it has no limit, or is new.
            let sum = of_class(status, class).map(rate).sum();
            family.add(&[("class", &class.name), ("protocol", "tcp"), ("stage", stage)], sum);
        }
        let Some(udp) = &class.udp else { continue };
        let rates = [
            ("asked", udp.asked_bit_per_s),
            ("enforced", udp.enforced_bit_per_s),
            ("verified", udp.verified_bit_per_s),
        ];
        for (stage, rate) in rates {
            family.add(&[("class", &class.name), ("protocol", "udp"), ("stage", stage)], rate);
        }
    }
}

/// Whether sockets of the class can have a rate: of urgent classes, only those that are held have one.
fn has_rates(status: &Status, class: &ClassStatus) -> bool {
    class.target_ms.is_none() || class.udp.is_some() || of_class(status, class).next().is_some()
}

fn of_class<'a>(status: &'a Status, class: &'a ClassStatus) -> impl Iterator<Item = &'a SocketStatus> {
    status.sockets.iter().filter(|socket| socket.class == class.name)
}
