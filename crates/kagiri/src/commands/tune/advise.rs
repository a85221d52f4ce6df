//! `kagiri tune advise`: what this host's counters show.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use base::format::quantity;
use base::units::Span;
use clap::Args;
use report::terminal::Style;
use report::text::plain;
use serde::{Deserialize, Serialize};
use tune::advise::{Finding, Statement, advise, values_of};
use tune::export::assignment;
use tune::kernel::Kernel;
use tune::observe::Observation;
use web::client::{ADVICE_S_MAX, Client};

use super::COLUMNS;
use crate::exit::{Code, Failure, Outcome};
use crate::json_document::Document;
use crate::output;
use crate::remote::failure;
use crate::stop::stop_flag;

const LINES_MAX: usize = 15;
const LENGTH_MAX: Duration = Duration::from_secs(24 * 3600);

/// Show what counters of this host say.
#[derive(Args)]
#[command(after_help = "Watches the sockets of this network namespace (TCP_INFO by sock_diag(7)) and the \
    kernel's counters (/proc/net/snmp, netstat, softnet_stat) while your programs run. Each statement names \
    its counter. 'try' names a value that a trial can decide about; nothing is changed. Needs no root.\n\n\
    Examples:\n  \
    kagiri tune advise\n  \
    kagiri tune advise --for 1min --json")]
pub struct Advise {
    /// How long to watch
    #[arg(long = "for", value_name = "TIME", default_value = "5s")]
    length: Span,
    /// Print all statements
    #[arg(long)]
    full: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize, Deserialize)]
struct AdviseDocument {
    observed_s: f64,
    tcp_sockets: usize,
    udp_sockets: usize,
    statements: Vec<Statement>,
    /// Sources that could not be read.
    missing: Vec<String>,
}

impl Advise {
    pub fn run(self) -> Outcome {
        let length = self.length.duration();
        if length.is_zero() || length > LENGTH_MAX {
            return Err(Failure::usage(format!(
                "--for {}: expected more than 0 and at most 24h",
                self.length
            )));
        }
        let stop = stop_flag()?;
        if !self.json {
            output::say(&format!("Watching this host's sockets and counters for {}", self.length));
        }
        let seen = Observation::make(length, &|| stop.load(Ordering::Relaxed))
            .context("cannot list the sockets of this host (sock_diag(7))")?;
        let tcp_sockets = seen.sockets.iter().filter(|socket| socket.is_tcp).count();
        let document = AdviseDocument {
            observed_s: seen.length_s,
            tcp_sockets,
            udp_sockets: seen.sockets.len() - tcp_sockets,
            statements: advise(&seen, &values_of(&Kernel::live())),
            missing: seen.missing,
        };
        self.present(&document, None)?;
        Ok(if stop.load(Ordering::Relaxed) { Code::Interrupted } else { Code::Measured })
    }

    /// What the counters of a console's host say.
    /// Errors: a time that a console does not watch for; see also [`ConsoleArgs::connect`].
    ///
    /// [`ConsoleArgs::connect`]: crate::remote::ConsoleArgs::connect
    pub fn run_on(self, connect: impl FnOnce() -> Result<Client, Failure>) -> Outcome {
        let length = self.length.duration();
        let for_s = length.as_secs();
        if length.subsec_nanos() > 0 || !(1..=ADVICE_S_MAX).contains(&for_s) {
            return Err(Failure::usage(format!(
                "--for {}: a console watches for 1 s to {ADVICE_S_MAX} s, in whole seconds",
                self.length
            )));
        }
        let console = connect()?;
        let host = plain(&console.facts().host);
        if !self.json {
            let address = console.address();
            output::say(&format!("Watching sockets and counters of {host} ({address}) for {}", self.length));
        }
        let document = console.advice(for_s).map_err(failure)?;
        self.present(&document, Some(&host))?;
        Ok(Code::Measured)
    }

    fn present(&self, document: &AdviseDocument, host: Option<&str>) -> Result<(), Failure> {
        match self.json {
            true => output::print(&Document::new(document).text()?),
            false => output::print(&answer(document, host, self.full, output::style())),
        }
    }
}

/// At most 15 lines of 80 columns, unless `is_full`. `host`: whose counters they are; `None`: of this one.
fn answer(document: &AdviseDocument, host: Option<&str>, is_full: bool, style: Style) -> String {
    let style = Style { width: COLUMNS, ..style };
    let length = quantity(Some(document.observed_s), "s");
    let (tcp, udp) = (document.tcp_sockets, document.udp_sockets);
    let mut text = match host {
        None => format!("{length} watched: {tcp} TCP and {udp} UDP sockets of this network namespace\n"),
        Some(host) => {
            style.wrapped("", &format!("{length} watched on {host}: {tcp} TCP and {udp} UDP sockets"))
        }
    };
    let problems = document.missing.iter().map(|why| style.wrapped("not read  ", why));
    let of_statement = |one| block(one, host, &style);
    let blocks: Vec<String> = document.statements.iter().map(of_statement).chain(problems).collect();
    for (at, block) in blocks.iter().enumerate() {
        let is_last = at + 1 == blocks.len();
        let room = LINES_MAX - usize::from(!is_last);
        if !is_full && text.lines().count() + block.lines().count() > room {
            text += &format!("{} more: --full\n", blocks.len() - at);
            break;
        }
        text += block;
    }
    text
}

fn block(statement: &Statement, host: Option<&str>, style: &Style) -> String {
    let lead = match statement.finding {
        Finding::Limit => "limit    ",
        Finding::Delay => "delay    ",
        Finding::NotTheLimit => "fine     ",
        Finding::Unknown => "unknown  ",
    };
    // No console sets settings for a command of this program.
    let place = host.map(|host| format!("on {host}: ")).unwrap_or_default();
    let attempt = statement.setting.as_ref().zip(statement.proposal.as_ref()).map(|(name, value)| {
        style.wrapped("  try    ", &format!("{place}kagiri tune set {}", assignment(name, value)))
    });
    style.wrapped(lead, &statement.text) + &attempt.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(finding: Finding) -> Statement {
        Statement {
            subject: "loss".into(),
            finding,
            text: "Packets are lost: 1 of 2 TCP segments were sent again (Tcp RetransSegs). ".repeat(3),
            counters: Vec::new(),
            setting: Some("net.ipv4.tcp_wmem".into()),
            proposal: Some("4096 16384 8388608".to_owned()),
        }
    }

    #[test]
    fn answer_fits_15_lines_of_80_columns_and_full_has_all() {
        let document = |statements| AdviseDocument {
            observed_s: 5.0,
            tcp_sockets: 2,
            udp_sockets: 1,
            statements,
            missing: vec!["no file".into()],
        };
        let all = [Finding::Limit, Finding::Limit, Finding::Delay, Finding::NotTheLimit, Finding::Unknown];
        let style = Style { colour: false, width: 200, unicode: true };
        for count in 0..=all.len() {
            let document = document(all[..count].iter().map(|finding| statement(*finding)).collect());
            for host in [None, Some("nas")] {
                let text = answer(&document, host, false, style);
                assert!(text.lines().count() <= 15, "{text}");
                assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
                assert_eq!(text.contains("more: --full"), count > 2, "{text}");
                let full = answer(&document, host, true, style);
                assert!(full.contains("not read  no file") && !full.contains("--full"), "{full}");
            }
        }
        let limit = document(vec![statement(Finding::Limit)]);
        let one = answer(&limit, None, false, style);
        assert!(one.contains("  try    kagiri tune set net.ipv4.tcp_wmem='4096 16384 8388608'\n"), "{one}");
        let there = answer(&limit, Some("nas"), false, style);
        assert!(there.starts_with("5 s watched on nas: 2 TCP and 1 UDP sockets\n"), "{there}");
        assert!(there.contains("  try    on nas: kagiri tune set net.ipv4.tcp_wmem='4096"), "{there}");
    }

    #[test]
    fn document_is_read_back_as_it_was_written() {
        let document = AdviseDocument {
            observed_s: 5.25,
            tcp_sockets: 2,
            udp_sockets: 1,
            statements: vec![statement(Finding::Limit), statement(Finding::Unknown)],
            missing: vec!["no file".into()],
        };
        let text = Document::new(&document).text().unwrap();
        let read: AdviseDocument = serde_json::from_str(&text).unwrap();
        assert_eq!(Document::new(&read).text().unwrap(), text);
    }
}
