//! The summary of a trial: headline, limit, tables and figures.

mod conformance;
mod credit;
mod sources;
mod tables;

pub(super) use sources::clock_sources;

use base::format::{count, number, plural, quantity};
use base::outcome::{Account, Resource};

use super::settings::DaqSettings;
use super::trial_reports::TrialReports;
use super::{figures, limit};

pub(super) fn of(settings: &DaqSettings, reports: &TrialReports) -> Account {
    let broke_off = reports.broke_off();
    let tables = [
        tables::events(settings, reports),
        tables::held(reports),
        tables::latency(reports),
        tables::ledger(settings, reports),
        tables::causes(reports),
        tables::slowest(reports),
        tables::incomplete(reports),
        sources::worst(settings, reports),
        sources::clocks(reports),
        credit::table(reports),
        tables::orders(settings, reports),
        conformance::front_ends(settings, reports),
    ];
    let limit =
        Some(limit::of(settings, reports)).filter(|_| broke_off.is_none() && !reports.hosts.is_empty());
    let tables = tables.into_iter().flatten().filter(|table| !table.rows.is_empty()).collect();
    let figures = figures::of_trial(&reports.builders(), &reports.sources);
    Account { headline: headline(settings, reports), limit, tables, figures, broke_off, ..Account::default() }
}

/// `200 sources: 412 events/s, all complete, 99 % of them within 3.1 ms`.
fn headline(settings: &DaqSettings, reports: &TrialReports) -> Option<String> {
    let (events, built) = (reports.events(), reports.per_s(|builder| builder.events.complete)?);
    let came = match (events.complete, events.incomplete) {
        (0, 0) => return None,
        (_, 0) => "all complete".to_owned(),
        (complete, incomplete) => {
            format!("{incomplete} of {} incomplete", plural(complete + incomplete, "event"))
        }
    };
    let vetoed = match events.vetoed {
        0 => String::new(),
        vetoed => {
            let percent = 100.0 * vetoed as f64 / events.offered.max(1) as f64;
            format!(", {} % of the triggers vetoed", number(percent))
        }
    };
    let p99 = reports.merged(|builder| &builder.completion).percentile_ns(99.0);
    let of = match (events.incomplete, events.vetoed) {
        (0, 0) => "them",
        (0, _) => "the events",
        _ => "the complete ones",
    };
    let within = p99.map(|p99| format!(", 99 % of {of} within {}", quantity(Some(p99 as f64 / 1e9), "s")));
    let share = reports.ideal_events_per_s(settings).map(|ideal| 100.0 * built / ideal);
    // The 10 Gbit/s of a veth pair are nominal: a share above 100 % means nothing.
    let share = share.filter(|share| !Resource::Network.rule().is_refuted(share / 100.0));
    let share = share.map(|share| format!(", {share:.0} % of what the link can carry")).unwrap_or_default();
    let sources = plural(settings.sources, "source");
    Some(format!(
        "{sources}: {} events/s, {came}{vetoed}{}{share}",
        if built < 10_000.0 { number(built) } else { count(built) },
        within.unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests;
