//! `kagiri tune advise`: what this host's counters show.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use base::format::quantity;
use base::units::Span;
use clap::Args;
use report::terminal::Style;
use serde::Serialize;
use tune::advise::{Finding, Statement, advise, values_of};
use tune::export::assignment;
use tune::kernel::Kernel;
use tune::observe::Observation;

use super::COLUMNS;
use crate::exit::{Code, Failure, Outcome};
use crate::json_document::Document;
use crate::output;
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

#[derive(Serialize)]
struct AdviseDocument<'a> {
    observed_s: f64,
    tcp_sockets: usize,
    udp_sockets: usize,
    statements: &'a [Statement],
    /// Sources that could not be read.
    missing: &'a [String],
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
        let statements = advise(&seen, &values_of(&Kernel::live()));
        if self.json {
            let document = AdviseDocument {
                observed_s: seen.length_s,
                tcp_sockets: tcp_sockets(&seen),
                udp_sockets: seen.sockets.len() - tcp_sockets(&seen),
                statements: &statements,
                missing: &seen.missing,
            };
            output::print(&Document::new(&document).text()?)?;
        } else {
            output::print(&answer(&seen, &statements, self.full, output::style()))?;
        }
        Ok(if stop.load(Ordering::Relaxed) { Code::Interrupted } else { Code::Measured })
    }
}

fn tcp_sockets(seen: &Observation) -> usize {
    seen.sockets.iter().filter(|socket| socket.is_tcp).count()
}

/// At most 15 lines of 80 columns, unless `is_full`.
fn answer(seen: &Observation, statements: &[Statement], is_full: bool, style: Style) -> String {
    let style = Style { width: COLUMNS, ..style };
    let tcp = tcp_sockets(seen);
    let mut text = format!(
        "{} watched: {tcp} TCP and {} UDP sockets of this network namespace\n",
        quantity(Some(seen.length_s), "s"),
        seen.sockets.len() - tcp
    );
    let problems = seen.missing.iter().map(|why| style.wrapped("not read  ", why));
    let blocks: Vec<String> = statements.iter().map(|one| block(one, &style)).chain(problems).collect();
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

fn block(statement: &Statement, style: &Style) -> String {
    let lead = match statement.finding {
        Finding::Limit => "limit    ",
        Finding::Delay => "delay    ",
        Finding::NotTheLimit => "fine     ",
        Finding::Unknown => "unknown  ",
    };
    let attempt = statement.setting.zip(statement.proposal.as_deref()).map(|(name, value)| {
        style.wrapped("  try    ", &format!("kagiri tune set {}", assignment(name, value)))
    });
    style.wrapped(lead, &statement.text) + &attempt.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(finding: Finding) -> Statement {
        Statement {
            subject: "loss",
            finding,
            text: "Packets are lost: 1 of 2 TCP segments were sent again (Tcp RetransSegs). ".repeat(3),
            counters: Vec::new(),
            setting: Some("net.ipv4.tcp_wmem"),
            proposal: Some("4096 16384 8388608".to_owned()),
        }
    }

    #[test]
    fn answer_fits_15_lines_of_80_columns_and_full_has_all() {
        let seen = Observation { length_s: 5.0, missing: vec!["no file".into()], ..Observation::default() };
        let all = [Finding::Limit, Finding::Limit, Finding::Delay, Finding::NotTheLimit, Finding::Unknown];
        let style = Style { colour: false, width: 200, unicode: true };
        for count in 0..=all.len() {
            let statements: Vec<Statement> = all[..count].iter().map(|finding| statement(*finding)).collect();
            let text = answer(&seen, &statements, false, style);
            assert!(text.lines().count() <= 15, "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            assert_eq!(text.contains("more: --full"), count > 2, "{text}");
            let full = answer(&seen, &statements, true, style);
            assert!(full.contains("not read  no file") && !full.contains("--full"), "{full}");
        }
        let one = answer(&seen, &[statement(Finding::Limit)], false, style);
        assert!(one.contains("  try    kagiri tune set net.ipv4.tcp_wmem='4096 16384 8388608'\n"), "{one}");
    }
}
