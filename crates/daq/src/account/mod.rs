//! A trial in words and tables: what came of the events, what held them back, where the fragments are.

mod ranges;
mod sources;
mod tables;

use base::format::{number, plural, quantity};
use base::limit_rules::rule;
use base::outcome::{Account, Resource};

use self::ranges::ranges;
use super::settings::DaqSettings;
use super::sides::Sides;
use super::{figures, limit};

/// What is said of a trial.
pub(super) fn of(settings: &DaqSettings, sides: &Sides) -> Account {
    let broke_off = sides.broke_off();
    let tables = [
        tables::events(settings, sides),
        tables::held(sides),
        tables::latency(sides),
        tables::ledger(settings, sides),
        tables::causes(sides),
        tables::slowest(sides),
        tables::incomplete(sides),
        sources::worst(sides),
        sources::clocks(sides),
        tables::credit(sides),
        tables::orders(settings, sides),
    ];
    let limit = Some(limit::of(settings, sides)).filter(|_| broke_off.is_none() && !sides.hosts.is_empty());
    let tables = tables.into_iter().flatten().filter(|table| !table.rows.is_empty()).collect();
    let figures = figures::of_trial(&sides.builders(), &sides.sources);
    Account { headline: headline(settings, sides), limit, tables, figures, broke_off }
}

/// `200 sources: 412 events/s, all complete, 99 % within 3.1 ms`.
fn headline(settings: &DaqSettings, sides: &Sides) -> Option<String> {
    let (events, built) = (sides.events(), sides.per_s(|builder| builder.events.complete)?);
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
    let p99 = sides.merged(|builder| &builder.completion).percentile_ns(99.0);
    let within =
        p99.map(|p99| format!(", 99 % within {}", quantity(Some(p99 as f64 / 1e9), "s"))).unwrap_or_default();
    let share = sides.ideal_events_per_s(settings).map(|ideal| 100.0 * built / ideal);
    // A veth's 10 Gbit/s are a number without meaning; what is beyond it is no share.
    let share = share.filter(|share| !rule(Resource::Network).is_refuted(share / 100.0));
    let share = share.map(|share| format!(", {share:.0} % of what the link can carry")).unwrap_or_default();
    let sources = plural(settings.sources, "source");
    Some(format!("{sources}: {} events/s, {came}{vetoed}{within}{share}", number(built)))
}

/// Sources that were missing: `sources 3, 7-9`; of many the first.
pub(super) fn missing(all: u32, known: &[u32]) -> String {
    let rest = (all as usize).saturating_sub(known.len());
    let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    let word = if all == 1 { "source" } else { "sources" };
    match known.is_empty() {
        true => plural(all.into(), "source"),
        false => format!("{word} {}{more}", ranges(known, 12)),
    }
}

#[cfg(test)]
mod tests;
