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

/// Hosts that `up` lists at most, so that its answer has 15 lines; `status` lists all.
const HOSTS_SHOWN: usize = 5;
/// Lines of an answer, unless all is asked for.
const LINES_MAX: usize = 15;

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

/// A title with its lines.
struct Section {
    title: String,
    lines: Vec<String>,
}

/// The state of a lab: all of it, or in at most [`LINES_MAX`] lines.
pub fn status(status: &Status, is_full: bool) -> String {
    let state = &status.state;
    let head = format!(
        "Lab {} ({}), supervised by process {}\n",
        state.lab,
        state.file.display(),
        state.supervisor.pid
    );
    let sections = sections(status);
    let spaced = sections.iter().map(|one| format!("\n{}\n{}", one.title, one.lines.concat()));
    let full = head.clone() + &spaced.collect::<String>();
    if is_full || full.lines().count() <= LINES_MAX {
        return full;
    }
    let cut = |most: usize| head.clone() + &sections.iter().map(|one| one.cut(most)).collect::<String>();
    let close = cut(usize::MAX);
    if close.lines().count() <= LINES_MAX {
        return close;
    }
    // As many lines of each section as fit.
    let fits = (1..=LINES_MAX).rev().map(cut).find(|text| text.lines().count() < LINES_MAX);
    fits.unwrap_or_else(|| cut(0)) + "Everything: --full\n"
}

impl Section {
    fn cut(&self, most: usize) -> String {
        let left_out = match self.lines.len().saturating_sub(most) {
            0 => String::new(),
            lines => format!("  and {}\n", counted(lines, "more line")),
        };
        let kept: String = self.lines.iter().take(most).map(String::as_str).collect();
        format!("{}\n{kept}{left_out}", self.title)
    }
}

fn sections(status: &Status) -> Vec<Section> {
    let state = &status.state;
    let section = |title: &str, lines| Section { title: title.to_owned(), lines };
    let indented = |line: &str| format!("  {line}\n");
    let hosts = state.hosts.iter().map(|host| indented(&host_line(state, host))).collect();
    let mut all = vec![section("Hosts", hosts)];
    let is_host = |place: &&str| state.hosts.iter().any(|host| host.name == **place);
    let places = state.links.iter().flat_map(|link| link.ends.iter().map(|end| end.place.as_str()));
    let switches: BTreeSet<&str> = places.filter(|place| !is_host(place)).collect();
    if !switches.is_empty() {
        all.push(section(&format!("Switches: {}", Vec::from_iter(switches).join(", ")), Vec::new()));
    }
    all.push(section("Links", link_lines(status)));
    let width = status.disks.iter().map(|disk| disk.host.len()).max().unwrap_or_default();
    let disks =
        status.disks.iter().map(|disk| indented(&format!("{:width$}  {}", disk.host, disk_line(disk))));
    all.push(section("Disks", disks.collect()));
    let width = status.mounts.iter().map(|mount| mount.host.len()).max().unwrap_or_default();
    let mounts = status.mounts.iter().map(|mount| {
        let kind = mount.file_system.as_deref().unwrap_or("none");
        let health = mount.problem.as_deref().unwrap_or("answers");
        indented(&format!("{:width$}  {kind}: {health}", mount.host))
    });
    all.push(section("Mounts", mounts.collect()));
    all.retain(|one| !one.lines.is_empty() || one.title.contains(':'));
    let ended: Vec<_> = status.processes.iter().filter(|process| process.ended.is_some()).collect();
    let running = status.processes.len() - ended.len();
    let mut lines = Vec::new();
    for process in &ended {
        let how = process.ended.as_deref().unwrap_or_default();
        lines.push(indented(&format!("{} (process {}): {how}", process.what, process.pid)));
        lines.extend(process.output.iter().flat_map(|text| text.lines()).map(|line| format!("    {line}\n")));
    }
    let title = format!("Processes of this lab: {running} running, {} ended", ended.len());
    all.push(Section { title, lines });
    all
}

fn link_lines(status: &Status) -> Vec<String> {
    let mut lines = Vec::new();
    let mut links = status.state.links.as_slice();
    while let Some(first) = links.first() {
        // Links that differ only in their first end share one line.
        let alike = links.iter().take_while(|link| is_alike(first, link)).count();
        let (group, rest) = links.split_at(alike);
        let more = group.last().filter(|_| alike > 1);
        let more = more.map(|last| format!(" to {} ({alike})", last.ends[0].place)).unwrap_or_default();
        lines.push(format!("  {}{more} - {}\n", first.ends[0].place, link_line(first)));
        for link in group {
            let sent = status.traffic.iter().find(|count| count.link == link.number);
            lines.extend(sent.map(|count| sent_line(link, count)));
            let count = status.lines.iter().flatten().find(|count| count.link == link.number);
            lines.extend(count.into_iter().flat_map(|count| line_lines(link, count)));
        }
        links = rest;
    }
    lines
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

fn line_lines(link: &LinkState, count: &LineCounters) -> [String; 2] {
    let [a, b] = &link.ends;
    let one = |from: &str, to: &str, counted: &DirectionCounters| {
        format!(
            "      delayed from {from} to {to}: {} packets forwarded, {} lost on purpose, {} dropped\n",
            counted.forwarded, counted.lost, counted.dropped
        )
    };
    [one(&a.place, &b.place, &count.up), one(&b.place, &a.place, &count.down)]
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
