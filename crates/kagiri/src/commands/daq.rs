//! `kagiri daq`: can this network build events from many sources at once?

use std::net::SocketAddr;

use base::plan::Plan;
use clap::Args;
use daq::settings::DaqSettings;
use serde_json::json;

use crate::args::{MeasureArgs, WorkloadArgs};
use crate::exit::Outcome;
use crate::hosts::{HostArgs, PlaceArgs};
use crate::placement_check::Places;
use crate::session;

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
    settings: WorkloadArgs<DaqSettings>,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    hosts: HostArgs,
    #[command(flatten)]
    common: MeasureArgs,
}

impl DaqArgs {
    /// Measures.
    pub fn run(mut self: Box<Self>) -> Outcome {
        // An address without a protocol is no endpoint of agents: there the builder listens for front ends.
        if let Some(listen) = self.hosts.listen.take_if(|listen| listen.parse::<SocketAddr>().is_ok()) {
            self.settings.set("listen", json!(listen));
        }
        let settings = self.settings.resolve("daq")?;
        let sources = if settings["sources"] == 1 { "source" } else { "sources" };
        let pattern = settings["pattern"].as_str().unwrap_or_default().to_owned();
        let name = format!("daq: {} {sources}, {pattern}", settings["sources"]);
        let mut plan = Plan::of_one("daq", name, &pattern, settings);
        plan.variants[0].place = self.place.wishes()?;
        let plan = self.common.over(plan);
        let measured = session::run_plan(&plan, &self.common, &self.hosts, Places::Options);
        measured.map_err(|failure| self.settings.with_flags("daq", failure))
    }
}
