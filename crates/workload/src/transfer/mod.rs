//! The `transfer` workload: how fast do bytes move, and what holds them back?
//!
//! Two parts: a server ([`server`]: kagiri's, or one that is already there) and clients ([`client`]) on one host or many.
//! Bytes are moved by [`flow`], [`quic`] and [`requests`]; the ends agree over a [`control`] connection by [`native`] messages or
//! in [`iperf3`]'s way, or not at all, like a classic [`ttcp`]. [`judge`] makes numbers and a verdict of what both ends
//! report, [`limit`] says what held it back.

mod account;
pub mod client;
pub mod control;
pub mod flow;
mod intervals;
pub mod iperf3;
pub mod judge;
pub mod limit;
pub mod metrics;
pub mod native;
mod path;
pub mod quic;
pub mod report;
pub mod requests;
mod series;
pub mod server;
pub mod settings;
pub mod theory;
pub mod ttcp;

use std::collections::BTreeMap;
use std::time::Duration;

use base::metric::MetricSpec;
use base::part::{Endpoints, PartError, PartKind, PartSpec};
use base::placement::{Placement, Role};
use base::plan::{LoadPlan, PlanError};
use base::workload::{Judgement, TrialContext, Workload};
use serde_json::{Value, json};

use self::report::TransferReport;
use self::settings::TransferSettings;

/// The registry entry of `transfer`.
pub struct Transfer;

/// The name of the server among a run's parts.
pub const SERVER: &str = "server";
/// The name of the client among a run's parts; on several hosts `clients@HOST`.
pub const CLIENTS: &str = "clients";

/// How long bytes that were asked for may take to move.
const BYTES_WITHIN: Duration = Duration::from_secs(86_400);
/// What a trial may take beyond the time in which its bytes move: flows that open one by one, and what is under way at the
/// end.
const OVERTIME: Duration = Duration::from_secs(600);

const ROLES: &[Role] = &[
    Role { name: SERVER, many: false, meaning: "The end that clients connect to." },
    Role { name: CLIENTS, many: true, meaning: "The ends that connect, each with all flows." },
];

const PARTS: &[PartKind] = &[
    PartKind { name: "transfer.server", build: server::part::build },
    PartKind { name: "transfer.client", build: client::part::build },
];

impl Workload for Transfer {
    fn name(&self) -> &'static str {
        "transfer"
    }

    fn load_unit(&self, settings: &Value) -> &'static str {
        if settings["search"].is_object() { "Mbit/s" } else { "flows" }
    }

    fn metrics(&self) -> &'static [MetricSpec] {
        metrics::METRICS
    }

    /// One load is one flow or several: what passed through them is what was asked.
    fn findings(&self, settings: &Value) -> &'static [&'static str] {
        if settings["requests"].is_object() { metrics::OF_REQUESTS } else { metrics::OF_BYTES }
    }

    fn roles(&self) -> &'static [Role] {
        ROLES
    }

    fn parts(&self) -> &'static [PartKind] {
        PARTS
    }

    fn resolve(&self, settings: Value) -> Result<Value, PlanError> {
        let read = TransferSettings::read(settings)?;
        serde_json::to_value(read).map_err(|error| PlanError::new(error.to_string()))
    }

    fn load_plan(&self, settings: &Value) -> LoadPlan {
        TransferSettings::read(settings.clone()).unwrap_or_default().load_plan()
    }

    /// Bytes take as long as they do: each end's own limit ends them before.
    fn overtime(&self, settings: &Value) -> Duration {
        let settings = TransferSettings::read(settings.clone()).unwrap_or_default();
        let moving = if settings.bytes.is_some() { BYTES_WITHIN } else { settings.omit.duration() };
        moving + OVERTIME
    }

    /// What arrived until then arrived. A rate that is searched is judged by its whole hold.
    fn keeps_interrupted(&self, settings: &Value) -> bool {
        !settings["search"].is_object()
    }

    fn standing(&self, settings: &Value, placement: &Placement) -> Result<Vec<PartSpec>, PartError> {
        if settings["host"].is_string() {
            return Ok(Vec::new());
        }
        let host = placement.host(SERVER);
        let clients_elsewhere = placement.hosts(CLIENTS).iter().any(|clients| *clients != host);
        let settings = json!({ "transfer": settings, "clients_elsewhere": clients_elsewhere });
        Ok(vec![PartSpec {
            kind: "transfer.server".into(),
            name: SERVER.into(),
            host: host.into(),
            settings,
        }])
    }

    fn offering(
        &self,
        settings: &Value,
        trial: &TrialContext,
        _: &Endpoints,
        placement: &Placement,
    ) -> Result<Vec<PartSpec>, PartError> {
        let mut transfer =
            TransferSettings::read(settings.clone()).map_err(PartError::usage)?.at_load(trial.load);
        if transfer.bytes.is_none() {
            transfer.time = trial.hold;
        }
        let hosts = placement.hosts(CLIENTS);
        let several = hosts.len() > 1;
        let spec = |host: &&str| {
            let settings = json!({ "transfer": transfer, "host": several.then_some(host) });
            let name = if several { format!("{CLIENTS}@{host}") } else { CLIENTS.to_owned() };
            PartSpec { kind: "transfer.client".into(), name, host: (*host).to_owned(), settings }
        };
        Ok(hosts.iter().map(spec).collect())
    }

    fn judge(
        &self,
        settings: &Value,
        trial: &TrialContext,
        reports: &BTreeMap<String, Value>,
    ) -> Result<Judgement, PartError> {
        let settings =
            TransferSettings::read(settings.clone()).map_err(PartError::usage)?.at_load(trial.load);
        let clients = reports.iter().filter(|(name, _)| name.starts_with(CLIENTS));
        let read = |(name, report): (&String, &Value)| -> Result<TransferReport, PartError> {
            serde_json::from_value(report.clone())
                .map_err(|error| PartError::new(format!("the report of {name} cannot be read: {error}")))
        };
        let reports: Vec<TransferReport> = clients.map(read).collect::<Result<_, _>>()?;
        let report = TransferReport::of_all(reports).ok_or_else(|| PartError::new("no client reported"))?;
        Ok(judge::judge(&settings, &report))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_long_is_not_given_up_before() {
        let overtime = |settings: Value| Transfer.overtime(&settings).as_secs();
        assert!(overtime(json!({ "bytes": "1TB" })) >= 86_400);
        assert!(overtime(json!({ "omit": "3600s" })) >= 3600 + 60);
        assert!(
            Transfer.keeps_interrupted(&json!({})) && !Transfer.keeps_interrupted(&json!({ "search": {} }))
        );
    }
}
