//! The `transfer` workload: how fast do bytes move, and what holds them back?
//!
//! Two parts: a server ([`server`]: kagiri's, or one that is already there) and clients ([`client`]) on one
//! host or many. Bytes are moved by [`flow`], [`quic`] and [`requests`]; the ends agree over a [`control`]
//! connection by [`native`] messages or in [`iperf3`]'s way, or not at all, like a classic [`ttcp`].
//! [`judge`] derives numbers and a verdict from the reports of both ends, [`limit`] what limited them.

mod account;
pub mod client;
pub mod control;
mod driver;
mod figures;
mod findings;
pub mod flow;
mod intervals;
pub mod iperf3;
pub mod judge;
pub mod limit;
pub mod metrics;
pub mod native;
mod path_rate;
pub mod presentation;
pub mod quic;
pub mod report;
pub mod requests;
pub mod server;
pub mod settings;
mod steal;
pub mod ttcp;

use std::time::Duration;

use base::metric::MetricSpec;
use base::part::{PartError, PartKind, PartSpec};
use base::placement::{Placement, Role};
use base::plan::{HoldTime, LoadPlan, TrialTime};
use base::units::Span;
use base::workload::{Judgement, Presentation, TrialContext};
use workload::Workload;
use workload::part::{self, Peers, Reports};

use self::client::part::{ClientPart, ClientTask};
use self::flow::Protocol;
use self::report::TransferReport;
use self::server::part::{ServerPart, ServerTask};
use self::settings::TransferSettings;

pub struct Transfer;

/// The name of the server among a run's parts.
pub const SERVER: &str = "server";
/// The name of the client among a run's parts; on several hosts `clients@HOST`.
pub const CLIENTS: &str = "clients";

/// What a trial takes beside its hold and warm-up: measured 0.3 to 0.6 s, and 0.15 to 0.2 s. A value in the
/// middle announces also a short trial within a factor of 1.5.
const BEYOND_BYTES: Span = Span::from_ms(400);
const BEYOND_REQUESTS: Span = Span::from_ms(200);
/// How long bytes that were asked for may take to move.
const BYTES_WITHIN: Duration = Duration::from_secs(86_400);
/// What a trial may take beyond the time in which its bytes move: flows that open one by one, and what is
/// under way at the end.
const OVERTIME: Duration = Duration::from_secs(600);

impl Workload for Transfer {
    const NAME: &'static str = "transfer";
    type Settings = TransferSettings;

    fn load_unit(&self, settings: &TransferSettings) -> &'static str {
        if settings.search.is_some() { "Mbit/s" } else { "flows" }
    }

    fn metrics(&self) -> &'static [MetricSpec] {
        metrics::METRICS
    }

    /// One load is one flow or several: what passed through them is what was asked.
    fn headline_metrics(&self, settings: &TransferSettings) -> &'static [&'static str] {
        match (settings.under_load, &settings.requests) {
            (Some(_), _) => metrics::UNDER_LOAD,
            (None, Some(_)) => metrics::OF_REQUESTS,
            (None, None) => metrics::OF_BYTES,
        }
    }

    fn presentation(&self) -> &'static Presentation {
        &presentation::PRESENTATION
    }

    fn roles(&self) -> &'static [Role] {
        &[
            Role { name: SERVER, many: false, meaning: "The end that clients connect to." },
            Role { name: CLIENTS, many: true, meaning: "The ends that connect, each with all flows." },
        ]
    }

    fn part_kinds(&self) -> &'static [PartKind] {
        const { &[part::kind::<ServerPart>(), part::kind::<ClientPart>()] }
    }

    fn load_plan(&self, settings: &TransferSettings) -> LoadPlan {
        settings.load_plan()
    }

    /// Bytes take as long as they do, unless they have a rate.
    fn trial_time(&self, settings: &TransferSettings) -> TrialTime {
        let rate = settings.rate.map(|rate| rate.bit_per_s() as f64 * settings.flows as f64);
        let hold = match (settings.bytes, rate) {
            (None, _) => HoldTime::OfPlan,
            (Some(bytes), Some(rate)) => HoldTime::S(bytes.bytes() as f64 * 8.0 / rate),
            (Some(_), None) => HoldTime::Unknown,
        };
        // The flows start together and end one after the other; TCP finds out its engine first, and what is
        // under way arrives.
        let beyond = match settings.is_requests_only() || settings.protocol == Protocol::Quic {
            true => BEYOND_REQUESTS,
            false => BEYOND_BYTES,
        };
        let warm_up = Span::from_ms(settings.idle().ns().saturating_add(settings.omit.ns()) / 1_000_000);
        TrialTime { hold, warm_up, beyond: Some(beyond), ..TrialTime::default() }
    }

    /// Bytes take as long as they do: each end's own limit ends them before.
    fn max_overtime(&self, settings: &TransferSettings) -> Duration {
        let moving = if settings.bytes.is_some() { BYTES_WITHIN } else { settings.omit.duration() };
        settings.idle().duration() + moving + OVERTIME
    }

    /// What arrived until then arrived. A rate that is searched is judged by its whole hold.
    fn keeps_interrupted(&self, settings: &TransferSettings) -> bool {
        settings.search.is_none()
    }

    fn standing(
        &self,
        settings: &TransferSettings,
        placement: &Placement,
    ) -> Result<Vec<PartSpec>, PartError> {
        if settings.host.is_some() {
            return Ok(Vec::new());
        }
        let host = placement.host(SERVER);
        let clients_elsewhere = placement.hosts(CLIENTS).iter().any(|clients| *clients != host);
        let task = ServerTask { transfer: settings.clone(), clients_elsewhere };
        Ok(vec![part::spec::<ServerPart>(SERVER.to_owned(), host, &task)?])
    }

    fn offering(
        &self,
        settings: &TransferSettings,
        trial: &TrialContext,
        _: &Peers<'_>,
        placement: &Placement,
    ) -> Result<Vec<PartSpec>, PartError> {
        let mut transfer = settings.at_load(trial.load);
        if transfer.bytes.is_none() {
            transfer.time = trial.hold;
        }
        let hosts = placement.hosts(CLIENTS);
        let is_only_host = hosts.len() == 1;
        let spec = |host: &&str| {
            let task =
                ClientTask { transfer: transfer.clone(), host: (!is_only_host).then(|| (*host).to_owned()) };
            part::spec::<ClientPart>(part::name(CLIENTS, host, is_only_host), host, &task)
        };
        hosts.iter().map(spec).collect()
    }

    fn judge(
        &self,
        settings: &TransferSettings,
        trial: &TrialContext,
        reports: &Reports,
    ) -> Result<Judgement, PartError> {
        let reports = reports.of_role::<ClientPart>(CLIENTS)?.into_iter().map(|(_, report)| report).collect();
        let report = TransferReport::of_all(reports).ok_or_else(|| PartError::new("no client reported"))?;
        Ok(judge::judge(&settings.at_load(trial.load), &report))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn trial_takes_little_more_than_its_time() {
        let time = |settings: Value| Transfer.trial_time(&TransferSettings::read(settings).unwrap());
        for (settings, hold, beside_ms) in [
            (json!({ "time": "200ms" }), HoldTime::OfPlan, 400),
            (json!({ "time": "1h", "omit": "1s" }), HoldTime::OfPlan, 1400),
            (json!({ "requests": {} }), HoldTime::OfPlan, 200),
            (json!({ "protocol": "quic" }), HoldTime::OfPlan, 200),
            (json!({ "under_load": "2s" }), HoldTime::OfPlan, 2400),
            (json!({ "bytes": "1MB", "rate": "1Mbit/s", "flows": 4 }), HoldTime::S(2.0), 400),
            (json!({ "bytes": "1MB" }), HoldTime::Unknown, 400),
        ] {
            let found = time(settings.clone());
            let beside_s = found.warm_up.s() + found.beyond.map_or(0.0, Span::s);
            assert_eq!((found.hold, (beside_s * 1e3).round()), (hold, f64::from(beside_ms)), "{settings}");
        }
    }

    #[test]
    fn overtime_covers_large_transfers_and_omitted_time() {
        let read = |settings: Value| TransferSettings::read(settings).unwrap();
        let overtime = |settings: Value| Transfer.max_overtime(&read(settings)).as_secs();
        assert!(overtime(json!({ "bytes": "1TB" })) >= 86_400);
        assert!(overtime(json!({ "omit": "3600s" })) >= 3600 + 60);
        let searched = TransferSettings { search: Some(Default::default()), ..Default::default() };
        assert!(Transfer.keeps_interrupted(&read(json!({}))) && !Transfer.keeps_interrupted(&searched));
    }
}
