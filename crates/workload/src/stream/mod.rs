//! The `stream` workload: how many viewers of a constant-deadline video does a content server carry?
//!
//! Two parts: the server under test ([`origin`]: made for the measurement, or one that is already there) and a
//! group of virtual players ([`viewer`]). [`content`] is what is played, [`server`] the embedded content server.

pub mod content;
pub mod origin;
pub mod server;
pub mod settings;
pub mod viewer;

use std::collections::BTreeMap;

use base::metric::MetricSpec;
use base::part::{Endpoints, PartError, PartKind, PartSpec};
use base::placement::{Placement, Role};
use base::plan::{LoadPlan, PlanError};
use base::series::Series;
use base::workload::{Judgement, TrialContext, Workload};
use serde_json::{Value, json};
use settings::StreamSettings;

/// The registry entry of `stream`.
pub struct Stream;

/// The name of the server under test among a run's parts.
pub const SERVER: &str = "server";
/// The name of what makes trials cold among a run's parts.
const CACHE: &str = "cache";
/// The name of the players among a run's parts; on several hosts `viewers@HOST`.
pub const VIEWERS: &str = "viewers";

const ROLES: &[Role] = &[
    Role { name: SERVER, many: false, meaning: "The content server that is measured." },
    Role { name: VIEWERS, many: true, meaning: "The players, shared out evenly over these hosts." },
];

const PARTS: &[PartKind] = &[
    PartKind { name: "stream.server", build: origin::build },
    PartKind { name: "stream.cache", build: origin::cache::build },
    PartKind { name: "stream.viewers", build: viewer::part::build },
];

impl Workload for Stream {
    fn name(&self) -> &'static str {
        "stream"
    }

    fn load_unit(&self, _: &Value) -> &'static str {
        "streams"
    }

    fn metrics(&self) -> &'static [MetricSpec] {
        viewer::judge::METRICS
    }

    fn roles(&self) -> &'static [Role] {
        ROLES
    }

    fn parts(&self) -> &'static [PartKind] {
        PARTS
    }

    fn resolve(&self, settings: Value) -> Result<Value, PlanError> {
        let read = StreamSettings::read(settings)?;
        serde_json::to_value(read).map_err(|error| PlanError::new(error.to_string()))
    }

    fn load_plan(&self, settings: &Value) -> LoadPlan {
        StreamSettings::read(settings.clone()).unwrap_or_default().load_plan()
    }

    fn standing(&self, settings: &Value, placement: &Placement) -> Result<Vec<PartSpec>, PartError> {
        let host = placement.host(SERVER);
        let players_elsewhere = placement.hosts(VIEWERS).iter().any(|players| *players != host);
        let settings = origin::settings(settings, players_elsewhere);
        let (kind, name) = ("stream.server".into(), SERVER.into());
        Ok(vec![PartSpec { kind, name, host: host.into(), settings }])
    }

    fn offering(
        &self,
        settings: &Value,
        trial: &TrialContext,
        peers: &Endpoints,
        placement: &Placement,
    ) -> Result<Vec<PartSpec>, PartError> {
        let stream = StreamSettings::read(settings.clone()).map_err(PartError::usage)?;
        let server = peers.get(SERVER).ok_or_else(|| PartError::new("the server's address is not known"))?;
        let mut specs = viewers(&stream, trial, server, placement);
        if stream.cold {
            // After the players, whose look at the index may read from the content.
            let settings = origin::cache::settings(&server["content_path"]);
            let (kind, host) = ("stream.cache".into(), placement.host(SERVER).into());
            specs.push(PartSpec { kind, name: CACHE.into(), host, settings });
        }
        Ok(specs)
    }

    fn judge(
        &self,
        _settings: &Value,
        _trial: &TrialContext,
        reports: &BTreeMap<String, Value>,
    ) -> Result<Judgement, PartError> {
        let players = reports.iter().filter_map(|(name, report)| Some((host_of(name)?, report)));
        let mut judgement = viewer::judge::judge_reports(players)?;
        judgement.doubts.extend(reports.get(CACHE).and_then(origin::cache::doubt));
        received_stands_for_network(&mut judgement);
        Ok(judgement)
    }
}

/// The groups of players: the load shared out in turn over their hosts, so that it is even, and one stream more is one
/// stream more on one host. A host without a stream gets no group.
fn viewers(
    stream: &StreamSettings,
    trial: &TrialContext,
    server: &Value,
    placement: &Placement,
) -> Vec<PartSpec> {
    let hosts = placement.hosts(VIEWERS);
    let step = hosts.len() as u64;
    let player = &stream.player;
    let spec = |(first, host): (u64, &str)| {
        // The file is at hand only for players on its host; all others ask the server for its index.
        let path = if host == placement.host(SERVER) { &server["content_path"] } else { &Value::Null };
        let settings = json!({
            "url": server["content_url"],
            "content_path": path,
            "streams": (trial.load - first).div_ceil(step),
            "first": first,
            "step": step,
            "of": trial.load,
            "depth": stream.depth,
            "parsing": player.parsing,
            "hold": trial.hold,
            "warm_up": player.warm_up,
            "seed": trial.seed,
            "start": player.start,
            "cap": player.cap,
            "resume": player.resume,
            "receive_buffer": player.receive_buffer,
            "threads": player.threads,
            "cold": stream.cold,
            "calls": stream.calls,
            "abort_early": stream.streams.is_none(),
        });
        let name = if step == 1 { VIEWERS.to_owned() } else { format!("{VIEWERS}@{host}") };
        PartSpec { kind: "stream.viewers".into(), name, host: host.to_owned(), settings }
    };
    (0..trial.load).zip(hosts).map(spec).collect()
}

/// Of a part of players its host, `None` inside where they are all on one; `None` for other parts.
fn host_of(part: &str) -> Option<Option<&str>> {
    let rest = part.strip_prefix(VIEWERS)?;
    if rest.is_empty() { Some(None) } else { rest.strip_prefix('@').map(Some) }
}

/// Without a device of its own to sample (over loopback), the network's load is what the players received. A sampled
/// device replaces this.
fn received_stands_for_network(judgement: &mut Judgement) {
    const NETWORK: &str = "network_bit_per_s";
    const RECEIVED: &str = "received_bit_per_s";
    let received = judgement.metrics.get(RECEIVED).copied().flatten();
    judgement.metrics.insert(NETWORK.to_owned(), received);
    let series = judgement.series.iter().find(|series| series.name == RECEIVED);
    let copy = series.map(|series| Series { name: NETWORK.to_owned(), ..series.clone() });
    judgement.series.extend(copy);
}
