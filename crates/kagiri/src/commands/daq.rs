//! `kagiri daq`: can this network build events from many sources at once?

use std::net::SocketAddr;

use base::plan::Plan;
use clap::Args;
use daq::settings::DaqSettings;
use serde_json::json;

use crate::args::{WorkloadArgs, require_help};
use crate::exit::Outcome;
use crate::hosts::{listen_help, place_help};
use crate::session::SessionArgs;

/// Measure the rate at which a network builds events from many sources that send at once, and its limit.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    kagiri daq                                           100 sources, 1 KiB each\n  \
    kagiri daq --sources 1000 --pattern grant            the builder paces sources\n  \
    kagiri daq --triggers 'poisson 60/s' --window 4      dead time at this rate\n  \
    kagiri daq --search sources --max 1000 --p99-max 100ms   most sources in time\n  \
    kagiri daq --lab tor --place builder=b --place 'sources=s-[1-8]'\n  \
    kagiri daq --sources 8 --front-ends 8 --listen 10.0.0.2:7500\n\n\
    A trigger starts an event: every source sends its fragment to a builder. The event is complete when all \
    fragments have arrived; latency counts from the time at which the trigger was due. A trigger is \
    vetoed, so that no event is built, while --window events are unfinished; dead time is the share of \
    vetoed triggers.")]
#[command(mut_arg("place", place_help("daq")))]
#[command(mut_arg("require", require_help("'completion_p99<=20ms' or 'fragments_lost==0'")))]
#[command(mut_arg(
    "listen",
    listen_help("With --front-ends, also ADDRESS:PORT at which they connect to the builder")
))]
pub struct DaqArgs {
    #[command(flatten)]
    settings: WorkloadArgs<DaqSettings>,
    #[command(flatten)]
    session: SessionArgs,
}

impl DaqArgs {
    pub fn run(mut self: Box<Self>) -> Outcome {
        // An address without a protocol is no endpoint of agents: there the builder listens for front ends.
        if let Some(listen) = self.session.hosts.listen.take_if(|listen| listen.parse::<SocketAddr>().is_ok())
        {
            self.settings.set("listen", json!(listen));
        }
        let settings = self.settings.resolve("daq")?;
        let load = match (settings["search"]["vary"].as_str(), settings["sources"].as_u64()) {
            (Some(vary), _) => format!("search of {vary}"),
            (None, sources) => base::format::plural(sources.unwrap_or_default(), "source"),
        };
        let pattern = settings["pattern"].as_str().unwrap_or_default().to_owned();
        let plan = Plan::of_one("daq", format!("daq: {load}, {pattern}"), &pattern, settings);
        self.session.measure(plan).map_err(|failure| self.settings.with_flags("daq", failure))
    }
}
