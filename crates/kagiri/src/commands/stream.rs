//! `kagiri stream`: how many streams does a content server carry?

use clap::Args;
use serde_json::Value;
use stream::settings::StreamSettings;
use workload::Workload;

use crate::args::{CEILING, WorkloadArgs, require_help};
use crate::exit::{Failure, Outcome};
use crate::hosts::place_help;
use crate::output;
use crate::pictures::CallArgs;
use crate::session::SessionArgs;

/// Find how many video streams a content server carries without stalls, and what limits it.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    kagiri stream                               a server on this machine\n  \
    kagiri stream http://nas/film.ts --max 16   a remote server, up to 16 streams\n  \
    kagiri stream --quick                       an answer within 60 s, less sure\n  \
    kagiri stream --streams 100 --time 60s      one load, no search\n  \
    kagiri stream --content film.ts --cold --require 'capacity>=8'\n\n\
    Each stream is played by one player of kagiri (role viewers). A trial runs a number of streams and \
    passes if no picture stops. The search tries larger numbers until a trial fails, then numbers \
    between, and repeats the largest that passed. The result also names the resource that limits it.")]
#[command(mut_arg("place", place_help("stream")))]
#[command(mut_arg("require", require_help("'capacity>=4' or 'stalls==0'")))]
pub struct StreamArgs {
    #[command(flatten)]
    settings: WorkloadArgs<StreamSettings>,
    #[arg(long, value_name = "NAME=VALUE", help = CEILING)]
    ceiling: Vec<String>,
    /// No effect, as it is the default; for scripts of earlier versions
    #[arg(long = "no-ramp-down", hide = true, conflicts_with = "ramp_down")]
    _no_ramp_down: bool,
    #[command(flatten)]
    calls: CallArgs,
    #[command(flatten)]
    session: SessionArgs,
}

impl StreamArgs {
    pub fn run(mut self: Box<Self>) -> Outcome {
        for text in &self.ceiling {
            let (resource, ceiling) = run::explain::ceiling::parse(text).map_err(Failure::usage)?;
            let key = stream::Stream.ceiling_keys().iter().find(|(known, _)| *known == resource);
            let (_, key) = key.ok_or_else(|| {
                Failure::usage(format!("--ceiling {text}: the players' ceiling is known: their core"))
            })?;
            self.settings.set(key, run::explain::ceiling::setting(resource, &ceiling));
        }
        self.calls.want(&mut self.settings);
        let given = |key| self.settings.get(key).and_then(Value::as_str);
        let name = given("url").or(given("server.kind")).unwrap_or("embedded server").to_owned();
        let plan = self.settings.plan("stream", format!("stream: {name}"), &name)?;
        let is_quiet = self.session.common.quiet;
        // Scripts give --bitrate with a URL, too: it is part of the contract, and has no effect there.
        if let (Some(rate), Some(content)) = (given("bitrate"), given("url").or(given("content.path")))
            && !is_quiet
        {
            output::say(&format!(
                "--bitrate {rate} makes no content here: {content} is played at the rate that it has"
            ));
        }
        self.calls.draw(&plan.name.clone(), is_quiet, || self.session.measure(plan))
    }
}
