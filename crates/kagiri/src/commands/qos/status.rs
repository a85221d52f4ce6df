//! `kagiri qos status`: the policies in force.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::format::quantity;
use clap::Args;
use qos::daemon::{ClassStatus, DatagramStatus, HostsStatus, LeaseState, SocketStatus, Status};
use report::terminal::{Style, words_table};
use report::text::{clipped, plain};
use serde::{Deserialize, Serialize};
use sys::clock::Deadline;
use web::client::Client;

use super::record::{self, Record};
use super::{COLUMNS, check_root, fitted};
use crate::exit::{Code, Failure, Outcome};
use crate::json_document::Document;
use crate::output;
use crate::remote::failure;
use crate::stop::stop_flag;

const NAME_COLUMNS: usize = 16;
const CLASSES_SHOWN: usize = 6;
const PROBLEMS_SHOWN: usize = 2;
/// How often the answer is drawn anew: the policies in force write as often.
const WATCH_EVERY: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(50);

/// Show the policies in force.
#[derive(Args)]
#[command(
    after_help = "Times of messages are those of the kernel (tcpi_busy_time): from the first byte in the \
    socket to the last acknowledgement; the time in the server is not in them.\n\n\
    Examples:\n  \
    kagiri qos status --watch\n  \
    kagiri qos status --json"
)]
pub struct ShowStatus {
    /// Print one JSON document, with the rate of every socket
    #[arg(long)]
    json: bool,
    /// Show them anew every second, until Ctrl-C
    #[arg(long, conflicts_with = "json")]
    watch: bool,
}

#[derive(Serialize, Deserialize)]
struct StatusDocument {
    policies: Vec<Record>,
}

/// Reads the policies in force.
type Read<'a> = dyn Fn() -> Result<Vec<Record>, Failure> + 'a;

impl ShowStatus {
    pub fn run(self) -> Outcome {
        check_root("qos status reads what programs of root wrote")?;
        self.show(&|| Ok(record::in_force()?))
    }

    /// The policies in force on a console's host.
    pub fn run_on(self, console: &Client) -> Outcome {
        let read = || console.qos_status().map(|read: StatusDocument| read.policies).map_err(failure);
        self.show(&read)
    }

    fn show(self, read: &Read<'_>) -> Outcome {
        if self.watch {
            return watch(read);
        }
        let policies = read()?;
        match self.json {
            true => output::print(&Document::new(&StatusDocument { policies }).text()?)?,
            false => output::print(&answers(&policies))?,
        }
        Ok(Code::Measured)
    }
}

/// Shows the answer every second. On a terminal, it takes the place of the one before.
fn watch(read: &Read<'_>) -> Outcome {
    let stop = stop_flag()?;
    let is_terminal = std::io::stdout().is_terminal();
    let mut lines = 0;
    while !stop.load(Ordering::Relaxed) {
        let text = answers(&read()?);
        let begin = match (is_terminal, lines) {
            (_, 0) => String::new(),
            // Up to the first line, and clear all below (console_codes(4)).
            (true, lines) => format!("\x1b[{lines}A\x1b[J"),
            (false, _) => "\n".to_owned(),
        };
        output::print(&(begin + &text))?;
        lines = text.lines().count();
        let next = Deadline::after(WATCH_EVERY);
        while !stop.load(Ordering::Relaxed) && next.pause(POLL) {}
    }
    Ok(Code::Measured)
}

fn answers(policies: &[Record]) -> String {
    match policies {
        [] => "No policy is in force.\n".to_owned(),
        all => all.iter().map(|record| answer(record, "in force", output::style())).collect(),
    }
}

/// At most 15 lines of 80 columns. `state`: whether it is in force.
pub fn answer(record: &Record, state: &str, style: Style) -> String {
    let status = &record.status;
    let style = Style { width: COLUMNS, ..style };
    let mut lines = head(record, state).to_vec();
    let rows: Vec<Vec<String>> =
        status.classes.iter().take(CLASSES_SHOWN).map(|class| row(class, record)).collect();
    let heads = ["class", "sockets", "sent", "target", "messages", "in time", "median", "99 %"];
    lines.extend(words_table(&heads, &rows, &style).lines().map(str::to_owned));
    if status.classes.len() > CLASSES_SHOWN {
        lines.push(format!("{} more classes: --json lists all.", status.classes.len() - CLASSES_SHOWN));
    }
    lines.push(rates(status) + &congestion(status) + ".");
    lines.extend(datagrams(status));
    let hosts = status.hosts.as_ref().map(place);
    let problems = PROBLEMS_SHOWN - usize::from(hosts.is_some());
    lines.extend(hosts);
    lines.extend(status.problems.iter().take(problems).map(|problem| plain(problem)));
    fitted(&lines)
}

fn head(record: &Record, in_force: &str) -> [String; 2] {
    let status = &record.status;
    let state = status.state.as_deref().unwrap_or("no step yet");
    let queue = match status.queue_ms {
        Some(ms) => format!(", queue {}", quantity(Some(ms / 1e3), "s")),
        None => String::new(),
    };
    let stating = match status.programs.len() {
        0 => String::new(),
        1 => "; 1 program states what it needs".to_owned(),
        count => format!("; {count} programs state what they need"),
    };
    [
        format!(
            "{}: {in_force} for {}{stating}",
            plain(&status.interface),
            quantity(Some(record.age_s), "s")
        ),
        format!(
            "Carries {} ({state}{queue}); bulk may send {}",
            quantity(status.capacity_bit_per_s, "bit/s"),
            quantity(status.bulk_bit_per_s, "bit/s")
        ),
    ]
}

fn row(class: &ClassStatus, record: &Record) -> Vec<String> {
    let bytes = class.acked_bytes + class.udp.as_ref().map_or(0, |udp| udp.sent_bytes);
    // What UDP sends is counted only if it is limited.
    let is_known = class.udp.is_some() || class.udp_sockets == 0;
    let sent = (is_known && record.age_s > 0.0).then(|| 8.0 * bytes as f64 / record.age_s);
    // Messages are those of TCP.
    let has_messages = class.messages > 0 || class.sockets > 0 || class.udp_sockets == 0;
    let messages = if has_messages { class.messages.to_string() } else { quantity(None, "") };
    let is_urgent = class.target_ms.is_some();
    let of_urgent = |text: String| if is_urgent { text } else { String::new() };
    let time = |ms: Option<f64>| of_urgent(quantity(ms.map(|ms| ms / 1e3), "s"));
    let in_time = (class.messages > 0).then(|| 100.0 * class.in_time as f64 / class.messages as f64);
    vec![
        clipped(&plain(&class.name), NAME_COLUMNS),
        class.sockets.to_string(),
        quantity(sent, "bit/s"),
        time(class.target_ms),
        of_urgent(messages),
        of_urgent(quantity(in_time, "%")),
        time(class.transfer_p50_ms),
        time(class.transfer_p99_ms),
    ]
}

/// How many of the rates that were asked for the kernel reports.
fn rates(status: &Status) -> String {
    let is_asked = |socket: &&SocketStatus| socket.asked_bit_per_s.is_some();
    let asked = status.sockets.iter().filter(is_asked).count();
    let verified = status.sockets.iter().filter(|socket| record::is_same_rate(socket)).count();
    match asked {
        0 => "No socket is paced".to_owned(),
        _ => format!("The kernel paces {verified} of {asked} sockets as asked (sock_diag)"),
    }
}

/// This host's place among others, in a line.
fn place(hosts: &HostsStatus) -> String {
    let coordinator = plain(&hosts.coordinator);
    match (hosts.state, &hosts.problem) {
        (LeaseState::Leased, _) => format!(
            "Share of {coordinator}, lease valid: {} hosts, delay {}.",
            hosts.hosts,
            quantity(hosts.delay_ms.map(|ms| ms / 1e3), "s")
        ),
        (LeaseState::Alone, problem) => format!(
            "On its own since {} s: {coordinator}: {}",
            hosts.since_s.round(),
            problem.as_deref().map_or("no grant has come".to_owned(), plain)
        ),
    }
}

/// Of UDP, in a line.
fn datagrams(status: &Status) -> Option<String> {
    let all: u64 = status.classes.iter().map(|class| class.udp_sockets).sum();
    let limited: Vec<&DatagramStatus> =
        status.classes.iter().filter(|class| class.udp_sockets > 0).filter_map(|c| c.udp.as_ref()).collect();
    if all == 0 {
        return None;
    }
    if limited.is_empty() {
        return Some(format!("{all} UDP sockets match, whose rate is not limited."));
    }
    let set: u64 = limited.iter().map(|udp| udp.sockets_in_class).sum();
    let sum = |rate: fn(&DatagramStatus) -> Option<f64>| {
        let sum: Option<f64> = limited.iter().map(|udp| rate(udp)).sum();
        quantity(sum, "bit/s")
    };
    Some(format!(
        "UDP: {set} of {all} sockets limited; {} sent, at most {} (HTB).",
        sum(|udp| udp.sent_bit_per_s),
        sum(|udp| udp.verified_bit_per_s)
    ))
}

/// Congestion controls that were set, and on how many sockets the kernel reports them.
fn congestion(status: &Status) -> String {
    let mut sockets: BTreeMap<&str, u64> = BTreeMap::new();
    for set in status.classes.iter().filter_map(|class| class.congestion.as_ref()) {
        *sockets.entry(&set.name).or_default() += set.sockets;
    }
    sockets.iter().map(|(name, count)| format!("; {} is set on {count}", plain(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(at: usize) -> ClassStatus {
        ClassStatus {
            name: format!("{}{at}", "c".repeat(40)),
            target_ms: at.is_multiple_of(2).then_some(500.0),
            sockets: 12_345,
            udp_sockets: 1,
            udp: (at == 1).then_some(DatagramStatus {
                sockets_in_class: 1,
                asked_bit_per_s: Some(5e6),
                enforced_bit_per_s: Some(5e6),
                verified_bit_per_s: Some(5e6),
                sent_bit_per_s: Some(4.99e6),
                sent_bytes: 1_000_000,
                drops: 3,
            }),
            group: None,
            new_sockets_bit_per_s: None,
            new_sockets_problem: None,
            congestion: (at == 0).then(|| qos::daemon::CongestionStatus { name: "cubic".into(), sockets: 2 }),
            acked_bytes: 123_456_789_012,
            messages: 1_234_567,
            in_time: 1_234_000,
            transfer_p50_ms: Some(123.4),
            transfer_p99_ms: None,
        }
    }

    fn status(classes: Vec<ClassStatus>) -> Status {
        Status {
            interface: "eth0".into(),
            state: Some("capacity given".into()),
            capacity_bit_per_s: Some(48.51e6),
            bulk_bit_per_s: Some(12.7e6),
            queue_ms: Some(12.345),
            classes,
            socket_readings: 0,
            socket_readings_verified: 0,
            programs: Vec::new(),
            sockets: vec![socket(1e6, Some(0.9999e6)), socket(1e6, Some(2e6)), socket(1e6, None)],
            hosts: Some(hosts(LeaseState::Leased)),
            groups_problem: None,
            problems: vec!["long ".repeat(50); 8],
        }
    }

    fn record(status: Status) -> Record {
        Record { pid: 1, start_ticks: 1, policy: "p".into(), namespace: 1, age_s: 3600.0, status }
    }

    #[test]
    fn what_udp_alone_does_is_unknown() {
        let tcp = ClassStatus { udp_sockets: 0, ..class(0) };
        let udp = ClassStatus { sockets: 0, messages: 0, in_time: 0, acked_bytes: 0, ..class(0) };
        let [tcp, udp] = [tcp, udp].map(|class| row(&class, &record(status(vec![]))));
        assert_eq!((&tcp[2][..], &tcp[4][..]), ("274.3 Mbit/s", "1234567"));
        assert_eq!((&udp[2], &udp[4]), (&quantity(None, ""), &quantity(None, "")));
    }

    fn socket(asked: f64, verified: Option<f64>) -> SocketStatus {
        SocketStatus {
            class: "bulk".into(),
            pid: 1,
            program: "rsync".into(),
            local: "10.0.0.1:1".into(),
            peer: "10.0.0.2:2".into(),
            asked_bit_per_s: Some(asked),
            enforced_bit_per_s: Some(asked),
            verified_bit_per_s: verified,
        }
    }

    fn hosts(state: LeaseState) -> HostsStatus {
        HostsStatus {
            coordinator: "tls/desk.example:7448".into(),
            state,
            since_s: 3.2,
            hosts: 3,
            bulk_bit_per_s: Some(5e6),
            delay_ms: Some(41.5),
            problem: None,
        }
    }

    #[test]
    fn place_among_hosts_is_a_line() {
        assert_eq!(
            place(&hosts(LeaseState::Leased)),
            "Share of tls/desk.example:7448, lease valid: 3 hosts, delay 41.5 ms."
        );
        let refused = Some("nothing listens there".to_owned());
        assert_eq!(
            place(&HostsStatus { problem: refused, ..hosts(LeaseState::Alone) }),
            "On its own since 3 s: tls/desk.example:7448: nothing listens there"
        );
    }

    #[test]
    fn answer_fits_15_lines_of_80_columns_and_counts_what_the_kernel_reports() {
        let record = record(status((0..64).map(class).collect()));
        let text = answer(&record, "in force", Style { colour: false, width: 200, unicode: true });
        assert!(text.lines().count() <= 15, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("bulk may send 12.7 Mbit/s\n"), "{text}");
        assert!(text.contains("1 of 3 sockets as asked (sock_diag); cubic is set on 2.\n"), "{text}");
        assert!(
            text.contains("58 more classes")
                && text.contains("UDP: 1 of 64 sockets limited; 4.99 Mbit/s sent, at most 5 Mbit/s"),
            "{text}"
        );
    }
}
