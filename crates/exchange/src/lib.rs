//! The `exchange` workload: do messages get their replies in time?
//!
//! Clients ([`client`]) send messages and wait for replies of kagiri's server ([`server`]) or of an HTTP
//! server ([`http`]); other traffic ([`background`]) may share the path. [`judge`] derives numbers and a
//! verdict from the reports, [`limit`] where the response time went.

mod account;
pub mod background;
pub mod client;
mod figures;
pub mod http;
pub mod judge;
pub mod limit;
pub mod metrics;
mod payload;
pub mod presentation;
mod readiness;
pub mod report;
pub mod server;
pub mod settings;
pub mod wire;

use std::time::Duration;

use base::metric::MetricSpec;
use base::part::{PartError, PartKind, PartSpec};
use base::placement::{Placement, Role};
use base::plan::{HoldTime, LoadPlan, TrialTime};
use base::units::Span;
use base::workload::{Judgement, Presentation, TrialContext};
use workload::Workload;
use workload::part::{self, Peers, Reports};

use self::background::{BackgroundPart, BackgroundTask};
use self::client::part::{ClientsPart, ClientsTask};
use self::report::ClientsReport;
use self::server::part::{ServerPart, ServerTask};
use self::settings::ExchangeSettings;

pub struct Exchange;

/// The role of the server, and the name of its part.
pub const SERVER: &str = "server";
/// The role of the clients, and the name of their part; on several hosts `clients@HOST`.
pub const CLIENTS: &str = "clients";
/// The role of the sender of other traffic, and the name of its part.
pub const BACKGROUND: &str = "background";

/// How long messages that were asked for by number may take.
const COUNT_WITHIN: Duration = Duration::from_secs(86_400);
/// What a trial may take beyond its hold, its warm-up and the last replies.
const OVERTIME: Duration = Duration::from_secs(60);
/// What a trial takes beside its hold: connections that are made.
const BEYOND: Span = Span::from_ms(200);

/// `clients` split evenly over `hosts`: the first number and the count of each.
fn split(clients: u64, hosts: u64) -> impl Iterator<Item = (u64, u64)> {
    let (each, rest) = (clients / hosts.max(1), clients % hosts.max(1));
    (0..hosts).map(move |host| (host * each + host.min(rest), each + u64::from(host < rest)))
}

/// Clients of all classes at a load.
fn clients_at(settings: &ExchangeSettings, load: u64) -> u64 {
    settings.classes_at(load).iter().map(|class| class.clients).sum()
}

impl Workload for Exchange {
    const NAME: &'static str = "exchange";
    type Settings = ExchangeSettings;

    fn metrics(&self) -> &'static [MetricSpec] {
        metrics::METRICS
    }

    fn presentation(&self) -> &'static Presentation {
        &presentation::PRESENTATION
    }

    fn headline_metrics(&self, settings: &ExchangeSettings) -> &'static [&'static str] {
        let has_target = settings.classes().iter().any(|class| class.target.is_some());
        match (has_target, settings.background.is_wanted()) {
            (true, true) => metrics::HEADLINE_OF_SHARED_PATH,
            (true, false) => metrics::HEADLINE_OF_TARGET,
            (false, _) => metrics::HEADLINE,
        }
    }

    fn roles(&self) -> &'static [Role] {
        &[
            Role { name: SERVER, many: false, meaning: "Replies to messages, and receives the background." },
            Role {
                name: CLIENTS,
                many: true,
                meaning: "Hosts that send messages; the clients are split evenly over them.",
            },
            Role { name: BACKGROUND, many: false, meaning: "Sends the other traffic, if there is any." },
        ]
    }

    fn networked_roles(&self, settings: &ExchangeSettings) -> &'static [&'static str] {
        match (settings.has_own_server(), settings.background.is_wanted()) {
            (true, true) => &[SERVER, CLIENTS, BACKGROUND],
            (true, false) => &[SERVER, CLIENTS],
            (false, true) => &[CLIENTS, BACKGROUND],
            (false, false) => &[CLIENTS],
        }
    }

    fn part_kinds(&self) -> &'static [PartKind] {
        const { &[part::kind::<ServerPart>(), part::kind::<BackgroundPart>(), part::kind::<ClientsPart>()] }
    }

    fn load_unit(&self, _: &ExchangeSettings) -> &'static str {
        "clients"
    }

    fn load_plan(&self, settings: &ExchangeSettings) -> LoadPlan {
        settings.load_plan()
    }

    /// The replies to the last messages are waited for.
    fn trial_time(&self, settings: &ExchangeSettings) -> TrialTime {
        let counted =
            settings.classes().iter().map(|class| class.count.zip(class.rate_per_s)).collect::<Vec<_>>();
        let is_counted = settings.classes().iter().all(|class| class.count.is_some());
        let hold = match counted.into_iter().collect::<Option<Vec<_>>>() {
            _ if !is_counted => HoldTime::OfPlan,
            Some(all) => {
                let longest = all.into_iter().map(|(count, rate)| count as f64 / rate).fold(0.0, f64::max);
                HoldTime::S(longest)
            }
            None => HoldTime::Unknown,
        };
        TrialTime { hold, warm_up: settings.omit, beyond: Some(BEYOND), ..TrialTime::default() }
    }

    fn max_overtime(&self, settings: &ExchangeSettings) -> Duration {
        let is_counted = settings.classes().iter().any(|class| class.count.is_some());
        let counted = if is_counted { COUNT_WITHIN } else { Duration::ZERO };
        OVERTIME + settings.omit.duration() + 2 * settings.timeout.duration() + counted
    }

    /// What was answered until then was answered. A number of clients that is searched is judged by its whole
    /// hold.
    fn keeps_interrupted(&self, settings: &ExchangeSettings) -> bool {
        settings.search.is_none()
    }

    fn standing(
        &self,
        settings: &ExchangeSettings,
        placement: &Placement,
    ) -> Result<Vec<PartSpec>, PartError> {
        if !settings.has_own_server() {
            return Ok(Vec::new());
        }
        let host = placement.host(SERVER);
        let others = placement
            .hosts(CLIENTS)
            .into_iter()
            .chain(settings.background.is_wanted().then(|| placement.host(BACKGROUND)));
        let others_elsewhere = others.into_iter().any(|other| other != host);
        let task = ServerTask { settings: settings.clone(), others_elsewhere };
        Ok(vec![part::spec::<ServerPart>(SERVER.to_owned(), host, &task)?])
    }

    fn offering(
        &self,
        settings: &ExchangeSettings,
        trial: &TrialContext,
        _: &Peers<'_>,
        placement: &Placement,
    ) -> Result<Vec<PartSpec>, PartError> {
        let number = sys::random::number();
        let settings = ExchangeSettings { time: trial.hold, ..settings.clone() };
        let mut parts = Vec::new();
        if settings.background.is_wanted() {
            let task = BackgroundTask { settings: settings.clone(), trial: number };
            let host = placement.host(BACKGROUND);
            parts.push(part::spec::<BackgroundPart>(BACKGROUND.to_owned(), host, &task)?);
        }
        let hosts = placement.hosts(CLIENTS);
        let shares = split(clients_at(&settings, trial.load), hosts.len() as u64);
        for (host, (first, count)) in hosts.iter().zip(shares).filter(|(_, (_, count))| *count > 0) {
            let task = ClientsTask {
                settings: settings.clone(),
                load: trial.load,
                first,
                count,
                trial: number,
                seed: trial.seed,
            };
            let name = part::name(CLIENTS, host, hosts.len() == 1);
            parts.push(part::spec::<ClientsPart>(name, host, &task)?);
        }
        Ok(parts)
    }

    fn judge(
        &self,
        settings: &ExchangeSettings,
        trial: &TrialContext,
        reports: &Reports,
    ) -> Result<Judgement, PartError> {
        let clients = reports.of_role::<ClientsPart>(CLIENTS)?.into_iter().map(|(_, report)| report);
        let clients = ClientsReport::of_all(clients).ok_or_else(|| PartError::new("no client reported"))?;
        let background = reports.get::<BackgroundPart>(BACKGROUND)?;
        Ok(judge::judge(settings, trial.load, &clients, background.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_split_over_hosts_without_a_rest() {
        assert_eq!(split(5, 3).collect::<Vec<_>>(), [(0, 2), (2, 2), (4, 1)]);
        assert_eq!(split(1, 2).collect::<Vec<_>>(), [(0, 1), (1, 0)]);
    }
}
