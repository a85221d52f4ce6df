//! `kagiri daq`: can this network build events from many sources at once?

use std::net::SocketAddr;

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
    kagiri daq --search sources --max 1000 --buffer 64KiB --link 200Mbit/s\n  \
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
    #[arg(long, value_name = "N")]
    sources: Option<u64>,
    /// Of these, so many are front ends of somebody else's, which connect by themselves; --listen ADDR:PORT then says
    /// where the builder is [default: 0]
    #[arg(long, value_name = "N")]
    front_ends: Option<u64>,
    /// Payload of a fragment: 1KiB, 'uniform 1KiB..4KiB', 'lognormal 1KiB 0.5' (median, sigma) or 'file PATH' [default:
    /// 1KiB]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// When events happen: max (as soon as the window allows), 60/s, 'poisson 60/s', 'bursts 10 6/s' or 'file PATH'
    /// [default: max]
    #[arg(long, value_name = "WHEN")]
    triggers: Option<Triggers>,
    /// Events that may be under way at once, of each builder; further triggers are vetoed [default: 1]
    #[arg(long, value_name = "N")]
    window: Option<u32>,
    /// How long events are counted [default: 5s]
    #[arg(long, value_name = "TIME")]
    time: Option<Span>,
    /// End after so many events instead
    #[arg(long, value_name = "N", conflicts_with = "time")]
    events: Option<u64>,
    /// Leave this out at the beginning [default: 500ms]
    #[arg(long, value_name = "TIME")]
    omit: Option<Span>,
    /// Give an event up after so long, and name the missing sources [default: 1s]
    #[arg(long, value_name = "TIME")]
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
    #[arg(long, value_name = "N")]
    credit: Option<u32>,
    /// With push: each source waits so much longer than the one before it
    #[arg(long, value_name = "TIME")]
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
    #[arg(long, value_name = "N")]
    builders: Option<u32>,
    /// Which of them builds an event [default: modulo, of its number]
    #[arg(long, value_name = "CHOICE", value_parser = ["modulo", "round_robin", "least_outstanding"])]
    builder_choice: Option<String>,
    /// Threads that carry the sources of a host [default: one for each 250, up to two for each CPU]
    #[arg(long, value_name = "N")]
    threads: Option<u32>,
    /// Send no checksum of the payload
    #[arg(long)]
    no_checksum: bool,
    /// Memory that a builder may hold fragments in [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    memory: Option<ByteSize>,
    /// The rate of the builder's port, to compare with [default: that of its device]
    #[arg(long, value_name = "RATE")]
    link: Option<BitRate>,
    /// The buffer of the switch's port towards the builder: with how many sources at once should it overflow?
    #[arg(long, value_name = "SIZE")]
    buffer: Option<ByteSize>,
    /// Let sources overhear so many of the orders, in %: is anything lost?
    #[arg(long, value_name = "PERCENT")]
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
    #[arg(long, value_name = "LOAD", requires = "search", value_parser = load)]
    max: Option<u64>,
    /// Incomplete events that are no failure [default: 0]
    #[arg(long, value_name = "N")]
    incomplete_max: Option<u64>,
    /// 99 % of the events have to be complete within this
    #[arg(long, value_name = "TIME")]
    p99_max: Option<Span>,
    /// At most so many of the triggers may be vetoed, in %
    #[arg(long, value_name = "PERCENT")]
    dead_time_max: Option<f64>,
}

/// A number, or a size in bytes.
fn load(text: &str) -> Result<u64, String> {
    let size = || text.parse::<ByteSize>().map(ByteSize::bytes);
    text.parse()
        .or_else(|_| size())
        .map_err(|_| "write a number such as 1000, or a size such as 64KiB".to_owned())
}

impl DaqArgs {
    /// Measure.
    pub fn perform(self: Box<Self>) -> Outcome {
        let mut hosts = self.hosts.clone();
        // An address without a protocol is no endpoint of agents: it is where front ends find the builder.
        let listen = hosts.listen.take_if(|listen| listen.parse::<SocketAddr>().is_ok());
        let plan = self.plan(listen)?;
        measure::run_plan(&plan, &self.common, &hosts, Places::Options)
    }

    fn plan(&self, listen: Option<String>) -> Result<Plan, Failure> {
        let settings = run::registry::resolve("daq", self.settings(listen)).map_err(Failure::usage)?;
        let text = |key: &str| settings[key].as_str().unwrap_or_default().to_owned();
        let name = format!("daq: {} sources, {}", settings["sources"], text("pattern"));
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
    fn objective(&self) -> Value {
        let all = [
            ("incomplete_max", json!(self.incomplete_max)),
            ("completion_p99_max", json!(self.p99_max)),
            ("dead_time_percent_max", json!(self.dead_time_max)),
        ];
        or_none(only_said(all))
    }

    fn search(&self) -> Value {
        let all = [("vary", json!(self.search)), ("max", json!(self.max))];
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
        assert_eq!(args(&["--search", "size", "--max", "64KiB"]).goal.max, Some(65_536));
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        for words in [
            &["--max", "5"][..],
            &["--time", "1s", "--events", "5"],
            &["--size", "much"],
            &["--pattern", "shove"],
        ] {
            assert!(Cli::try_parse_from([&["kagiri", "daq"], words].concat()).is_err(), "{words:?}");
        }
    }
}
