//! `kagiri daq`: can this network build events from many sources at once?

use std::net::SocketAddr;
use std::str::FromStr;

use base::plan::Plan;
use base::units::{BitRate, ByteSize, Span};
use clap::Args;
use serde_json::{Map, Value, json};
use workload::daq::settings::{Size, Triggers};

use crate::cli::Common;
use crate::exit::{Failure, Outcome};
use crate::hosts::{HostArgs, PlaceArgs, Places};
use crate::measure;

/// Find how quickly a network builds events from many sources that send at once, and what holds it back.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    kagiri daq                                           100 sources, 1 KiB each\n  \
    kagiri daq --sources 1000 --pattern grant            the builder says who may\n  \
    kagiri daq --triggers 'poisson 60/s' --window 4      how much dead time?\n  \
    kagiri daq --search sources --max 1000 --p99-max 100ms   where is the cliff?\n  \
    kagiri daq --lab tor --place builder=b --place 'sources=s-[1-8]'\n  \
    kagiri daq --sources 8 --front-ends 8 --listen 10.0.0.2:7500\n\n\
    An event is complete when each source's fragment has come; latency counts from the moment at which its trigger was due. \
    How front ends of one's own join is in docs/daq-wire.md.")]
pub struct DaqArgs {
    #[command(flatten)]
    what: WhatArgs,
    #[command(flatten)]
    how: HowArgs,
    #[command(flatten)]
    goal: GoalArgs,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    hosts: HostArgs,
    #[command(flatten)]
    common: Common,
}

/// What is offered.
#[derive(Args)]
struct WhatArgs {
    /// Sources, over all hosts [default: 100]
    #[arg(long, value_name = "N", value_parser = positive::<u64>, allow_hyphen_values = true)]
    sources: Option<u64>,
    /// Of these, so many are front ends of somebody else's, which connect by themselves; --listen ADDR:PORT says where
    /// the builder is [default: 0]
    #[arg(long, value_name = "N", value_parser = count::<u64>, allow_hyphen_values = true)]
    front_ends: Option<u64>,
    /// Payload of a fragment: 1KiB, 'uniform 1KiB..4KiB', 'lognormal 1KiB 0.5' (median, sigma) or 'file PATH' [default:
    /// 1KiB]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    size: Option<Size>,
    /// When events happen: max (as soon as the window allows), 60/s, 'poisson 60/s', 'bursts 10 6/s' or 'file PATH'
    /// [default: max]
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true)]
    triggers: Option<Triggers>,
    /// Events that may be under way at once, of each builder; further triggers are vetoed [default: 1]
    #[arg(long, value_name = "N", value_parser = positive::<u32>, allow_hyphen_values = true)]
    window: Option<u32>,
    /// How long events are counted [default: 5s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    time: Option<Span>,
    /// End after so many events instead
    #[arg(long, value_name = "N", conflicts_with = "time", value_parser = positive::<u64>, allow_hyphen_values = true)]
    events: Option<u64>,
    /// Leave this out at the beginning [default: 500ms]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    omit: Option<Span>,
    /// Give an event up after so long, and name the missing sources [default: 1s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    timeout: Option<Span>,
}

/// By what means.
#[derive(Args)]
struct HowArgs {
    /// Who decides when a source sends: push (itself, at once), grant (the builder, by multicast, for as many as the
    /// port takes), pull (the builder, one by one) [default: push]
    #[arg(long, value_name = "PATTERN", value_parser = ["push", "grant", "pull"])]
    pattern: Option<String>,
    /// With grant and pull: fragments under way at once [default: found by trying]
    #[arg(long, value_name = "N", value_parser = positive::<u32>, allow_hyphen_values = true)]
    credit: Option<u32>,
    /// With push: each source waits so much longer than the one before it
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    stagger: Option<Span>,
    /// How triggers and grants reach the sources [default: multicast]
    #[arg(long, value_name = "WAY", value_parser = ["multicast", "tcp"])]
    orders: Option<String>,
    /// What carries the fragments; with udp what is lost is asked for again [default: tcp]
    #[arg(long, visible_alias = "proto", value_name = "PROTOCOL", value_parser = ["tcp", "udp"])]
    protocol: Option<String>,
    /// Congestion control of the sources' TCP, e.g. cubic [default: each host's own]
    #[arg(long, visible_alias = "congestion", value_name = "NAME")]
    congestion_control: Option<String>,
    /// Builders on each builder's host [default: 1]
    #[arg(long, value_name = "N", value_parser = positive::<u32>, allow_hyphen_values = true)]
    builders: Option<u32>,
    /// Which of them builds an event [default: modulo, of its number]
    #[arg(long, value_name = "CHOICE", value_parser = ["modulo", "round_robin", "least_outstanding"])]
    builder_choice: Option<String>,
    /// Threads that carry the sources of a host [default: one for each 250, up to two for each CPU]
    #[arg(long, value_name = "N", value_parser = count::<u32>, allow_hyphen_values = true)]
    threads: Option<u32>,
    /// Send no checksum of the payload
    #[arg(long)]
    no_checksum: bool,
    /// Memory that a builder may hold fragments in [default: 1GiB]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    memory: Option<ByteSize>,
    /// The rate of the builder's port, to compare with [default: that of its device]
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    link: Option<BitRate>,
    /// The buffer of the switch's port towards the builder: with how many sources at once should it overflow?
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    buffer: Option<ByteSize>,
    /// Let sources overhear so many of the orders, in %: is anything lost?
    #[arg(long, value_name = "PERCENT", value_parser = percent, allow_hyphen_values = true)]
    drop_orders: Option<f64>,
}

/// What is to hold, and what is searched.
#[derive(Args)]
#[command(next_help_heading = "Objective")]
struct GoalArgs {
    /// Search the largest load that holds the objective: sources, triggers a second, or bytes of a fragment
    #[arg(long, value_name = "WHAT", value_parser = ["sources", "rate", "size"])]
    search: Option<String>,
    /// With --search: up to here, e.g. 1000, or 64KiB of size [default: 1000]
    #[arg(long, value_name = "LOAD", requires = "search", value_parser = load, allow_hyphen_values = true)]
    max: Option<Load>,
    /// Incomplete events that are no failure [default: 0]
    #[arg(long, value_name = "N", value_parser = count::<u64>, allow_hyphen_values = true)]
    incomplete_max: Option<u64>,
    /// 99 % of the events have to be complete within this
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    p99_max: Option<Span>,
    /// At most so many of the triggers may be vetoed, in %
    #[arg(long, value_name = "PERCENT", value_parser = percent, allow_hyphen_values = true)]
    dead_time_max: Option<f64>,
}

/// A load, as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Load {
    value: u64,
    /// It was written as a size: other loads are numbers.
    is_size: bool,
}

/// A number, or a size in bytes.
fn load(text: &str) -> Result<Load, String> {
    let size = || text.parse::<ByteSize>().map(|size| Load { value: size.bytes(), is_size: true });
    match text.parse().map(|value| Load { value, is_size: false }) {
        Ok(load) => Ok(load),
        Err(_) if text.starts_with('-') => Err("it must be positive".to_owned()),
        Err(_) => size().map_err(|_| "write a number such as 1000, or a size such as 64KiB".to_owned()),
    }
}

/// A whole number.
fn count<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| match text.starts_with('-') {
        true => "it must not be negative".to_owned(),
        false => "write a whole number such as 100".to_owned(),
    })
}

/// A whole number of what there has to be at least one of; 0 is refused by the workload.
fn positive<T: FromStr>(text: &str) -> Result<T, String> {
    match text.starts_with('-') {
        true => Err("it must be positive".to_owned()),
        false => count(text),
    }
}

/// `1`, or `1%`.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end();
    number.parse().map_err(|_| "write a share in %, such as 1 or 1%".to_owned())
}

/// Keys of the settings whose flag has another name; that of all others is the key with dashes.
const FLAGS: [(&str, &str); 7] = [
    ("checksum", "no-checksum"),
    ("drop_orders_percent", "drop-orders"),
    ("objective.incomplete_max", "incomplete-max"),
    ("objective.completion_p99_max", "p99-max"),
    ("objective.dead_time_percent_max", "dead-time-max"),
    ("search.vary", "search"),
    ("search.max", "max"),
];

/// What is said of a plan's keys, with the flags of this verb in their place: nobody wrote a plan.
fn with_flags(message: &str) -> String {
    let command = DaqArgs::augment_args(clap::Command::new("daq"));
    let is_flag = |name: &str| command.get_arguments().any(|flag| flag.get_long() == Some(name));
    let mut pieces = message.split("daq.");
    let mut said = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let end = piece.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.')));
        let key = piece[..end.unwrap_or(piece.len())].trim_end_matches('.');
        let named = FLAGS.iter().find(|(other, _)| *other == key).map(|(_, flag)| (*flag).to_owned());
        let flag = named.unwrap_or_else(|| key.replace('_', "-"));
        // The end of a file's name, perhaps.
        let is_key = !said.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '/' | '-' | '_' | '.'));
        match is_key && is_flag(&flag) {
            true => said.extend(["--", &flag, &piece[key.len()..]]),
            false => said.extend(["daq.", piece]),
        }
    }
    said
}

impl DaqArgs {
    /// Measure.
    pub fn perform(self: Box<Self>) -> Outcome {
        self.measure().map_err(|failure| match failure {
            Failure::Usage(problem) => Failure::Usage(with_flags(&problem)),
            other => other,
        })
    }

    fn measure(&self) -> Outcome {
        let mut hosts = self.hosts.clone();
        // An address without a protocol is no endpoint of agents: it is where front ends find the builder.
        let listen = hosts.listen.take_if(|listen| listen.parse::<SocketAddr>().is_ok());
        let plan = self.plan(listen)?;
        measure::run_plan(&plan, &self.common, &hosts, Places::Options)
    }

    fn plan(&self, listen: Option<String>) -> Result<Plan, Failure> {
        self.goal.check()?;
        let settings = run::registry::resolve("daq", self.settings(listen)).map_err(Failure::usage)?;
        let text = |key: &str| settings[key].as_str().unwrap_or_default().to_owned();
        let sources = if settings["sources"] == 1 { "source" } else { "sources" };
        let name = format!("daq: {} {sources}, {}", settings["sources"], text("pattern"));
        let mut plan = Plan::of_one("daq", name, &text("pattern"), settings);
        plan.variants[0].place = self.place.wishes()?;
        Ok(self.common.over(plan))
    }

    /// Only what was said on the command line; the workload fills in the rest.
    fn settings(&self, listen: Option<String>) -> Value {
        let (what, how, goal) = (&self.what, &self.how, &self.goal);
        let all = [
            ("sources", json!(what.sources)),
            ("front_ends", json!(what.front_ends)),
            ("size", json!(what.size)),
            ("triggers", json!(what.triggers)),
            ("window", json!(what.window)),
            ("time", json!(what.time)),
            ("events", json!(what.events)),
            ("omit", json!(what.omit)),
            ("timeout", json!(what.timeout)),
            ("pattern", json!(how.pattern)),
            ("credit", json!(how.credit)),
            ("stagger", json!(how.stagger)),
            ("orders", json!(how.orders)),
            ("protocol", json!(how.protocol)),
            ("congestion_control", json!(how.congestion_control)),
            ("builders", json!(how.builders)),
            ("builder_choice", json!(how.builder_choice)),
            ("threads", json!(how.threads)),
            ("checksum", json!(how.no_checksum.then_some(false))),
            ("memory", json!(how.memory)),
            ("link", json!(how.link)),
            ("buffer", json!(how.buffer)),
            ("drop_orders_percent", json!(how.drop_orders)),
            ("listen", json!(listen)),
            ("objective", goal.objective()),
            ("search", goal.search()),
        ];
        Value::Object(only_said(all))
    }
}

impl GoalArgs {
    /// A size says nothing of how many sources or triggers there are.
    fn check(&self) -> Result<(), Failure> {
        let what = match self.search.as_deref() {
            Some("sources") => "sources are counted",
            Some("rate") => "a rate is so many triggers a second",
            _ => return Ok(()),
        };
        match self.max.is_some_and(|max| max.is_size) {
            true => Err(Failure::usage(format!(
                "--max: {what}, and a size is for --search size; write a number such as 1000"
            ))),
            false => Ok(()),
        }
    }

    fn objective(&self) -> Value {
        let all = [
            ("incomplete_max", json!(self.incomplete_max)),
            ("completion_p99_max", json!(self.p99_max)),
            ("dead_time_percent_max", json!(self.dead_time_max)),
        ];
        or_none(only_said(all))
    }

    fn search(&self) -> Value {
        let all = [("vary", json!(self.search)), ("max", json!(self.max.map(|max| max.value)))];
        or_none(only_said(all))
    }
}

/// What was said.
fn only_said<const N: usize>(all: [(&str, Value); N]) -> Map<String, Value> {
    let said = all.into_iter().filter(|(_, value)| !value.is_null());
    said.map(|(key, value)| (key.to_owned(), value)).collect()
}

/// A table, if anything was said of it.
fn or_none(table: Map<String, Value>) -> Value {
    if table.is_empty() { Value::Null } else { Value::Object(table) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Verb};

    fn args(words: &[&str]) -> Box<DaqArgs> {
        match Cli::try_parse_from([&["kagiri", "daq"], words].concat()).map(|cli| cli.verb) {
            Ok(Verb::Daq(args)) => args,
            Ok(_) => panic!("another verb"),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn only_what_was_said_is_set() {
        assert_eq!(args(&[]).settings(None), json!({}));
        let words = "--sources 10 --size 2KiB --triggers 60/s --search rate --max 500 --dead-time-max 2 --no-checksum";
        let settings = args(&words.split(' ').collect::<Vec<_>>()).settings(Some("10.0.0.2:7500".into()));
        let expected = json!({
            "sources": 10, "size": "2KiB", "triggers": "60/s", "checksum": false, "listen": "10.0.0.2:7500",
            "search": { "vary": "rate", "max": 500 }, "objective": { "dead_time_percent_max": 2.0 },
        });
        assert_eq!(settings, expected);
        let settings = args(&["--search", "size", "--max", "64KiB", "--dead-time-max", "1%"]).settings(None);
        assert_eq!(
            (settings["search"]["max"].as_u64(), settings["objective"]["dead_time_percent_max"].as_f64()),
            (Some(65_536), Some(1.0))
        );
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        for words in [
            &["--max", "5"][..],
            &["--time", "1s", "--events", "5"],
            &["--size", "much"],
            &["--pattern", "shove"],
            &["--dead-time-max", "much%"],
        ] {
            assert!(Cli::try_parse_from([&["kagiri", "daq"], words].concat()).is_err(), "{words:?}");
        }
        for what in ["sources", "rate"] {
            assert!(args(&["--search", what, "--max", "64KiB"]).goal.check().is_err());
            assert!(args(&["--search", what, "--max", "64"]).goal.check().is_ok());
        }
        assert!(args(&["--search", "size", "--max", "64KiB"]).goal.check().is_ok());
    }

    #[test]
    fn flags_are_named_in_place_of_keys() {
        for (message, expected) in [
            ("daq.front_ends: 5 is not within 0", "--front-ends: 5 is not within 0"),
            ("daq.search.vary: say daq.objective.dead_time_percent_max.", "--search: say --dead-time-max."),
            ("daq.size: cannot read 'daq.size'", "--size: cannot read '--size'"),
            ("daq.search.resolution_percent: 0", "daq.search.resolution_percent: 0"),
            ("cannot read '/tmp/daq.size'", "cannot read '/tmp/daq.size'"),
            ("unknown daq.colour", "unknown daq.colour"),
        ] {
            assert_eq!(with_flags(message), expected);
        }
        for (key, flag) in FLAGS {
            assert_eq!(with_flags(&format!("daq.{key}: no")), format!("--{flag}: no"));
        }
    }
}
