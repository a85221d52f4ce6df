//! The `stream` workload: how many viewers of a constant-deadline video does a content server carry?
//!
//! Two parts: the server under test ([`origin`]: made for the measurement, or one that is already there) and
//! a group of virtual players ([`viewer`]). [`mpegts`] is what is played, [`httpd`] the embedded content
//! server.

pub mod content;
pub mod doubt;
pub mod http;
pub mod judge;
mod metrics;
pub mod origin;
pub mod report;
pub mod settings;
pub mod viewer;

use std::time::Duration;

use base::limit_rules::THREAD;
use base::metric::MetricSpec;
use base::outcome::{Resource, ResourceSpec};
use base::part::{PartError, PartKind, PartSpec};
use base::placement::{Placement, Role};
use base::plan::LoadPlan;
use base::series::Series;
use base::workload::{Judgement, Panel, Presentation, TrialContext};
use workload::Workload;
use workload::part::{self, Peers, Reports};

use judge::Players;
use origin::cache::{CacheTask, ContentCache};
use origin::{Origin, OriginEndpoint, OriginTask};
use settings::StreamSettings;
use viewer::part::Viewers;
use viewer::part_settings::ViewerSettings;

pub struct Stream;

/// The name of the server under test among a run's parts.
pub const SERVER: &str = "server";
/// The name of what makes trials cold among a run's parts.
const CACHE: &str = "cache";
/// The name of the players among a run's parts; on several hosts `viewers@HOST`.
pub const VIEWERS: &str = "viewers";

/// The players, where they share the host with the server and its capacity includes them.
pub static PLAYERS: ResourceSpec = ResourceSpec {
    name: "players",
    label: "the players' CPU time",
    unit: "%",
    unit_suffix: "percent",
    remedy: "players on another host (--place), or more --player-threads",
    rule: THREAD,
};

static PRESENTATION: Presentation = Presentation {
    panels_below: &[Panel { title: "least slack", series: &["slack_s", "slack_min_s"], has_stalls: true }],
    columns_note: "CPU, RSS: the server's; socket (TCP buffers), cache, disk, network: its host's. network \
                   differs from streams x bit rate, because that rate is a mean. slack: the least \
                   video that any player had buffered.",
    resources: &[&PLAYERS],
    ..Presentation::DEFAULT
};

impl Workload for Stream {
    const NAME: &'static str = "stream";
    type Settings = StreamSettings;

    fn load_unit(&self, _: &StreamSettings) -> &'static str {
        "streams"
    }

    fn metrics(&self) -> &'static [MetricSpec] {
        judge::METRICS
    }

    fn presentation(&self) -> &'static Presentation {
        &PRESENTATION
    }

    fn roles(&self) -> &'static [Role] {
        &[
            Role { name: SERVER, many: false, meaning: "The content server that is measured." },
            Role { name: VIEWERS, many: true, meaning: "The players, shared out evenly over these hosts." },
        ]
    }

    fn part_kinds(&self) -> &'static [PartKind] {
        const { &[part::kind::<Origin>(), part::kind::<ContentCache>(), part::kind::<Viewers>()] }
    }

    fn ceiling_keys(&self) -> &'static [(Resource, &'static str)] {
        &[
            (Resource::Cpu, "ceiling.cpu_percent"),
            (Resource::Disk, "ceiling.disk"),
            (Resource::Network, "ceiling.network"),
            (Resource::Memory, "ceiling.memory"),
        ]
    }

    fn load_plan(&self, settings: &StreamSettings) -> LoadPlan {
        settings.load_plan()
    }

    fn time_budget(&self, settings: &StreamSettings) -> Option<Duration> {
        settings.time_budget()
    }

    fn standing(&self, settings: &StreamSettings, placement: &Placement) -> Result<Vec<PartSpec>, PartError> {
        let host = placement.host(SERVER);
        let players_elsewhere = placement.hosts(VIEWERS).iter().any(|players| *players != host);
        let task = OriginTask { stream: settings.clone(), players_elsewhere };
        Ok(vec![part::spec::<Origin>(SERVER.to_owned(), host, &task)?])
    }

    fn offering(
        &self,
        settings: &StreamSettings,
        trial: &TrialContext,
        peers: &Peers<'_>,
        placement: &Placement,
    ) -> Result<Vec<PartSpec>, PartError> {
        let server = peers.get::<Origin>(SERVER)?;
        let mut specs = viewers(settings, trial, &server, placement)?;
        if settings.cold {
            // After the players, whose look at the index may read from the content.
            let path = server.stored_path.clone().ok_or_else(|| {
                PartError::usage(
                    "cold trials need the content's file on the server's host; give --content or omit --cold",
                )
            })?;
            let host = placement.host(SERVER);
            specs.push(part::spec::<ContentCache>(CACHE.to_owned(), host, &CacheTask { path })?);
        }
        Ok(specs)
    }

    fn judge(
        &self,
        settings: &StreamSettings,
        _: &TrialContext,
        reports: &Reports,
    ) -> Result<Judgement, PartError> {
        let players = if settings.player.judged { Players::Judged } else { Players::Trusted };
        let mut judgement = judge::judge_reports(reports.of_role::<Viewers>(VIEWERS)?, players)?;
        judgement.doubts.extend(settings.coarse_search().map(Into::into));
        let cache = reports.get::<ContentCache>(CACHE)?;
        judgement.doubts.extend(cache.and_then(|report| report.doubt()).map(Into::into));
        received_stands_for_network(&mut judgement);
        Ok(judgement)
    }
}

/// The groups of players: the load shared out in turn over their hosts, so that it is even, and one stream
/// more is one stream more on one host. A host without a stream gets no group.
fn viewers(
    stream: &StreamSettings,
    trial: &TrialContext,
    server: &OriginEndpoint,
    placement: &Placement,
) -> Result<Vec<PartSpec>, PartError> {
    let hosts = placement.hosts(VIEWERS);
    let step = hosts.len() as u64;
    let player = &stream.player;
    let spec = |(first, host): (u64, &str)| {
        // The file is at hand only for players on its host; all others ask the server for its index.
        let is_beside_server = host == placement.host(SERVER);
        let task = ViewerSettings {
            url: server.content_url.clone(),
            content_path: server.content_path.clone().filter(|_| is_beside_server),
            streams: (trial.load - first).div_ceil(step),
            first,
            step,
            of: Some(trial.load),
            depth: stream.depth,
            parsing: player.parsing,
            hold: trial.hold,
            warm_up: stream.warm_up(),
            seed: trial.seed,
            start: player.start,
            cap: player.cap,
            resume: player.resume,
            receive_buffer: player.receive_buffer,
            threads: player.threads,
            cpus: Vec::new(),
            cold: stream.cold,
            calls: stream.calls,
            abort_early: stream.streams.is_none(),
        };
        part::spec::<Viewers>(part::name(VIEWERS, host, step == 1), host, &task)
    };
    (0..trial.load).zip(hosts).map(spec).collect()
}

/// Without a device of its own to sample (over loopback), the network's load is what the players received. A
/// sampled device replaces this.
fn received_stands_for_network(judgement: &mut Judgement) {
    const NETWORK: &str = "network_bit_per_s";
    const RECEIVED: &str = "received_bit_per_s";
    let received = judgement.metrics.get(RECEIVED).copied().flatten();
    judgement.metrics.insert(NETWORK.to_owned(), received);
    let series = judgement.series.iter().find(|series| series.name == RECEIVED);
    let copy = series.map(|series| Series { name: NETWORK.to_owned(), ..series.clone() });
    judgement.series.extend(copy);
}
