//! `kagiri stream`: how many streams does a content server carry?

use std::path::PathBuf;

use base::outcome::Resource;
use base::plan::Plan;
use base::units::{BitRate, ByteSize, Span};
use clap::Args;
use serde_json::{Map, Value, json};

use crate::cli::Common;
use crate::exit::{Failure, Outcome};
use crate::hosts::{HostArgs, PlaceArgs, Places};
use crate::verbs::content::existing;
use crate::verbs::timeline::own::CallArgs;
use crate::{measure, output};

/// Where content is given, none is made: what tells how to make it would be ignored.
const GIVEN: [&str; 2] = ["url", "content"];

/// Find how many video streams a content server carries undisturbed, and what stops the next one.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    kagiri stream                               a server on this machine\n  \
    kagiri stream http://nas/film.ts --max 16   one elsewhere, going up one by one\n  \
    kagiri stream --streams 100 --hold 60s      one load, no search\n  \
    kagiri stream --content film.ts --cold --require 'capacity>=8'\n\n\
    A stream passes when its picture never stops. Each trial offers one load; the search raises it until a trial \
    fails, confirms the largest that passed, and names what limits it.")]
pub struct StreamArgs {
    /// Content (MPEG-TS) at a server that is already there; without it kagiri makes content and serves it
    #[arg(value_name = "URL")]
    url: Option<String>,
    /// Rate of the content that is made [default: 25Mbit/s]; given content keeps its own
    #[arg(long, value_name = "RATE")]
    bitrate: Option<BitRate>,
    /// The largest load to offer, in streams; up to 16 the search goes up one by one [default: 1000]
    #[arg(long, value_name = "N")]
    max: Option<u64>,
    /// Offer this many streams in a single trial, without a search
    #[arg(long, value_name = "N", conflicts_with = "max")]
    streams: Option<u64>,
    /// How long a load is held to be confirmed, or in a single trial [default: 10s]
    #[arg(long, value_name = "TIME")]
    hold: Option<Span>,
    /// How long a load is held while searching [default: 5s, at most --hold]
    #[arg(long, value_name = "TIME")]
    search_hold: Option<Span>,
    /// What players do with the bytes: discard costs least, copy is what any player does, parse checks every packet
    /// [default: discard]
    #[arg(long, value_name = "DEPTH", value_parser = ["discard", "copy", "parse"])]
    depth: Option<String>,
    /// Threads that carry the players, each up to about a thousand of them [default: 1]
    #[arg(long, value_name = "N")]
    player_threads: Option<u32>,
    /// Skip the way down: lower loads that are tried after the search, to see the way up repeated
    #[arg(long)]
    no_ramp_down: bool,
    /// Drop the content from memory before every trial, so that it is read from disk; the file must be on this host
    #[arg(long)]
    cold: bool,
    #[command(flatten)]
    calls: CallArgs,
    /// Serve this transport stream instead of making one
    #[arg(long, value_name = "FILE", conflicts_with = "url")]
    content: Option<PathBuf>,
    /// Picture coding of the content that is made [default: mpeg2]
    #[arg(long, value_name = "CODEC", value_parser = ["mpeg2", "h264"], conflicts_with_all = GIVEN)]
    codec: Option<String>,
    /// How long the content that is made plays; players begin anew at its end [default: 120s]
    #[arg(long, value_name = "TIME", conflicts_with_all = GIVEN)]
    duration: Option<Span>,
    /// Make content of constant bit rate instead of a varying one
    #[arg(long, conflicts_with_all = GIVEN)]
    cbr: bool,
    /// Server that is started for the measurement [default: embedded]
    #[arg(long, value_name = "KIND", value_parser = ["embedded", "nginx"], conflicts_with = "url")]
    server: Option<String>,
    /// The most there is of a resource, to predict where it ends: disk, network, cpu or memory, e.g. disk=110Mbit/s
    /// or cpu=200%; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    ceiling: Vec<String>,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    hosts: HostArgs,
    #[command(flatten)]
    common: Common,
}

impl StreamArgs {
    /// Measure.
    pub fn perform(self: Box<Self>) -> Outcome {
        let plan = self.plan()?;
        if let Some(note) = self.note().filter(|_| !self.common.quiet) {
            output::say(&note);
        }
        self.calls.draw(&plan.name, self.common.quiet, || {
            measure::run_plan(&plan, &self.common, &self.hosts, Places::Options)
        })
    }

    /// Scripts give --bitrate with a URL too (it is part of the contract), so it is no error there; but it must not
    /// seem to have done what it cannot do.
    fn note(&self) -> Option<String> {
        let content = self.content.as_ref().map(|path| path.display().to_string());
        let given = self.url.clone().or(content)?;
        let rate = self.bitrate?;
        Some(format!("--bitrate {rate} makes no content here: {given} is played at the rate that it has"))
    }

    fn plan(&self) -> Result<Plan, Failure> {
        let settings = self.settings()?;
        let settings = run::registry::resolve("stream", settings).map_err(Failure::usage)?;
        let name = self
            .url
            .clone()
            .unwrap_or_else(|| self.server.clone().unwrap_or_else(|| "embedded server".into()));
        let mut plan = Plan::of_one("stream", format!("stream: {name}"), &name, settings);
        plan.variants[0].place = self.place.wishes()?;
        Ok(self.common.over(plan))
    }

    /// Only what was said on the command line; the workload fills in the rest.
    fn settings(&self) -> Result<Value, Failure> {
        let mut settings = Map::new();
        let mut set = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                settings.insert(key.to_owned(), value);
            }
        };
        set("url", self.url.as_ref().map(|url| json!(url)));
        set("bitrate", self.bitrate.map(|rate| json!(rate)));
        set("max", self.max.map(|max| json!(max)));
        set("streams", self.streams.map(|streams| json!(streams)));
        set("hold", self.hold.map(|hold| json!(hold)));
        set("search_hold", self.search_hold.map(|hold| json!(hold)));
        set("depth", self.depth.as_ref().map(|depth| json!(depth)));
        set("player", self.player_threads.map(|threads| json!({ "threads": threads })));
        set("ramp_down", self.no_ramp_down.then_some(json!(false)));
        set("cold", self.cold.then_some(json!(true)));
        set("calls", self.calls.are_wanted().then_some(json!(true)));
        set("content", self.content_settings()?);
        set("server", self.server.as_ref().map(|kind| json!({ "kind": kind })));
        set("ceiling", Some(ceilings(&self.ceiling)?));
        Ok(Value::Object(settings))
    }

    fn content_settings(&self) -> Result<Option<Value>, Failure> {
        let mut content = Map::new();
        if let Some(path) = &self.content {
            existing(path, "serve --content", std::fs::Metadata::is_file, "a file")?;
            // The server is another process, perhaps with another working directory.
            let whole = path.canonicalize();
            let whole =
                whole.map_err(|error| Failure::usage(format!("--content {}: {error}", path.display())))?;
            content.insert("path".into(), json!(whole));
        }
        if let Some(codec) = &self.codec {
            content.insert("codec".into(), json!(codec));
        }
        if let Some(duration) = self.duration {
            content.insert("duration".into(), json!(duration));
        }
        if self.cbr {
            content.insert("cbr".into(), json!(true));
        }
        Ok((!content.is_empty()).then_some(Value::Object(content)))
    }
}

/// Ceilings of the command line as settings of the workload.
fn ceilings(texts: &[String]) -> Result<Value, Failure> {
    let mut all = Map::new();
    for text in texts {
        let (resource, ceiling) = run::explain::ceiling::parse(text).map_err(Failure::usage)?;
        let (key, value) = match resource {
            Resource::Disk => ("disk", json!(BitRate::from_bit_per_s(ceiling.value as u64))),
            Resource::Network => ("network", json!(BitRate::from_bit_per_s(ceiling.value as u64))),
            Resource::Memory => ("memory", json!(ByteSize::from_bytes(ceiling.value as u64))),
            Resource::Cpu => ("cpu_percent", json!(ceiling.value)),
            Resource::Player
            | Resource::Window
            | Resource::SendBuffer
            | Resource::Buffer
            | Resource::None => {
                return Err(Failure::usage(format!(
                    "--ceiling {text}: the players' ceiling is known: their core"
                )));
            }
        };
        all.insert(key.to_owned(), value);
    }
    Ok(Value::Object(all))
}
