//! Prints the state of a lab.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use base::format::quantity;
use base::units::{BitRate, ByteSize, Span, spaced};

use lab::line::{DirectionCounters, LineCounters};
use lab::state::{DiskCounters, LinkCounters, LinkEndCounters, LinkState, State, Status};

use crate::placement_check::{self, Places};

pub fn up(state: &State) -> String {
    let mut text = format!(
        "Lab {} is up: {} and {}, in {:.2} s.\n",
        state.lab,
        counted(state.hosts.len(), "host"),
        counted(state.links.len(), "link"),
        state.up_s
    );
    for host in state.hosts.iter().take(HOSTS_SHOWN) {
        let _ = writeln!(text, "  {}", host_line(state, host));
    }
    if state.hosts.len() > HOSTS_SHOWN {
        let _ = writeln!(text, "  and {} more", state.hosts.len() - HOSTS_SHOWN);
    }
    let first = state.hosts.first().map_or("HOST", |host| host.name.as_str());
    let lab = &state.lab;
    let names: Vec<String> = state.hosts.iter().map(|host| host.name.clone()).collect();
    // Parts need agents.
    if state.hosts.iter().any(|host| host.agent_pid.is_some()) {
        let command = |workload: &&dyn workload::AnyWorkload| {
            let places = placement_check::example(workload.roles(), &names, Places::Options);
            format!("  kagiri {} --lab {lab} {places}\n", workload.command())
        };
        let commands: String = run::registry::BUILT_IN.workloads().iter().map(command).collect();
        let _ = write!(text, "To measure on it:\n{commands}");
    }
    let _ = writeln!(
        text,
        "Run a program on it with 'kagiri lab exec {first} -- CMD'; remove it with 'kagiri lab down {lab}'."
    );
    text
}

/// Hosts that `up` lists at most.
const HOSTS_SHOWN: usize = 20;

fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn host_line(state: &State, host: &lab::state::HostState) -> String {
    let width = state.hosts.iter().map(|host| host.name.len()).max().unwrap_or_default();
    let addresses: Vec<String> =
        host.interfaces.iter().map(|way| format!("{}/{}", way.address, way.prefix_bits)).collect();
    let mut line = format!("{:width$}  {}", host.name, addresses.join(" "));
    if let Some(quota) = host.cpu_quota_percent {
        let _ = write!(line, "  CPU {quota} %");
    }
    if let Some(disk) = &host.disk {
        let _ = write!(line, "  disk {}", disk.display());
    }
    if let Some(mount) = &host.mount {
        let _ = write!(line, "  mount {}", mount.display());
    }
    line
}

pub fn status(status: &Status) -> String {
    let state = &status.state;
    let mut text = format!(
        "Lab {} ({}), supervised by process {}\n\nHosts\n",
        state.lab,
        state.file.display(),
        state.supervisor.pid
    );
    for host in &state.hosts {
        let _ = writeln!(text, "  {}", host_line(state, host));
    }
    let is_host = |place: &&str| state.hosts.iter().any(|host| host.name == **place);
    let places = state.links.iter().flat_map(|link| link.ends.iter().map(|end| end.place.as_str()));
    let switches: BTreeSet<&str> = places.filter(|place| !is_host(place)).collect();
    if !switches.is_empty() {
        let _ = writeln!(text, "\nSwitches: {}", Vec::from_iter(switches).join(", "));
    }
    if !state.links.is_empty() {
        text.push_str("\nLinks\n");
    }
    let mut links = state.links.as_slice();
    while let Some(first) = links.first() {
        // Links that differ only in their first end share one line.
        let alike = links.iter().take_while(|link| is_alike(first, link)).count();
        let (group, rest) = links.split_at(alike);
        let more = group.last().filter(|_| alike > 1);
        let more = more.map(|last| format!(" to {} ({alike})", last.ends[0].place)).unwrap_or_default();
        let _ = writeln!(text, "  {}{more} - {}", first.ends[0].place, link_line(first));
        for link in group {
            let sent = status.traffic.iter().find(|count| count.link == link.number);
            text.push_str(&sent.map(|count| sent_line(link, count)).unwrap_or_default());
            let count = status.lines.iter().flatten().find(|count| count.link == link.number);
            text.push_str(&count.map(|count| line_lines(link, count)).unwrap_or_default());
        }
        links = rest;
    }
    if !status.disks.is_empty() {
        text.push_str("\nDisks\n");
    }
    let width = status.disks.iter().map(|disk| disk.host.len()).max().unwrap_or_default();
    for disk in &status.disks {
        let _ = writeln!(text, "  {:width$}  {}", disk.host, disk_line(disk));
    }
    if !status.mounts.is_empty() {
        text.push_str("\nMounts\n");
    }
    let width = status.mounts.iter().map(|mount| mount.host.len()).max().unwrap_or_default();
    for mount in &status.mounts {
        let kind = mount.file_system.as_deref().unwrap_or("none");
        let health = mount.problem.as_deref().unwrap_or("answers");
        let _ = writeln!(text, "  {:width$}  {kind}: {health}", mount.host);
    }
    let ended: Vec<_> = status.processes.iter().filter(|process| process.ended.is_some()).collect();
    let running = status.processes.len() - ended.len();
    let _ = writeln!(text, "\nProcesses of this lab: {running} running, {} ended", ended.len());
    for process in ended {
        let how = process.ended.as_deref().unwrap_or_default();
        let _ = writeln!(text, "  {} (process {}): {how}", process.what, process.pid);
        for line in process.output.iter().flat_map(|output| output.lines()) {
            let _ = writeln!(text, "    {line}");
        }
    }
    text
}

fn is_alike(one: &LinkState, other: &LinkState) -> bool {
    let plain = |link: &LinkState| LinkState { number: 0, ends: one.ends.clone(), ..link.clone() };
    plain(one) == plain(other) && one.ends[1].place == other.ends[1].place
}

/// A link's second end and properties.
fn link_line(link: &LinkState) -> String {
    let mut line = link.ends[1].place.clone();
    let rate =
        |rate: Option<u64>| rate.map_or("no limit".to_owned(), |rate| spaced(BitRate::from_bit_per_s(rate)));
    match (link.rate_up_bit_per_s, link.rate_down_bit_per_s) {
        (None, None) => {}
        (up, down) if up == down => {
            let _ = write!(line, "  {}", rate(up));
        }
        (up, down) => {
            let _ = write!(line, "  {} up, {} down", rate(up), rate(down));
        }
    }
    if !link.steps.is_empty() {
        let _ = write!(line, "  {} in a trial", counted(link.steps.len(), "step"));
    }
    if let Some(buffer) = link.buffer_bytes.iter().flatten().max() {
        let _ = write!(line, "  buffer {}", spaced(ByteSize::from_bytes(*buffer)));
    }
    if link.delay_s > 0.0 {
        let delay = std::time::Duration::try_from_secs_f64(link.delay_s).unwrap_or_default();
        let _ = write!(line, "  delay {}", spaced(Span::from_duration(delay)));
    }
    if link.loss > 0.0 {
        let _ = write!(line, "  loss {} %", link.loss * 100.0);
    }
    line
}

fn sent_line(link: &LinkState, count: &LinkCounters) -> String {
    let [a, b] = &link.ends;
    let one = |sent: &LinkEndCounters| {
        let bytes = quantity(Some(sent.bytes as f64), "B");
        format!("{} packets ({bytes}), {} dropped", sent.packets, sent.dropped)
    };
    format!("    {} to {}: {}; back: {}\n", a.place, b.place, one(&count.up), one(&count.down))
}

fn line_lines(link: &LinkState, count: &LineCounters) -> String {
    let [a, b] = &link.ends;
    let one = |from: &str, to: &str, counted: &DirectionCounters| {
        format!(
            "      delayed from {from} to {to}: {} packets forwarded, {} lost on purpose, {} dropped\n",
            counted.forwarded, counted.lost, counted.dropped
        )
    };
    one(&a.place, &b.place, &count.up) + &one(&b.place, &a.place, &count.down)
}

fn disk_line(disk: &DiskCounters) -> String {
    let bytes = |bytes: u64| quantity(Some(bytes as f64), "B");
    let mut line = format!(
        "{} reads ({}), {} writes ({}), busy for {:.1} s",
        disk.reads,
        bytes(disk.read_bytes),
        disk.writes,
        bytes(disk.written_bytes),
        disk.busy_ns as f64 / 1e9
    );
    if let Some(model) = &disk.model {
        let late_ms = model.late_ns_max as f64 / 1e6;
        let _ = write!(line, "; {} seeks, responses at most {late_ms:.1} ms late", model.seeks);
    }
    line
}
