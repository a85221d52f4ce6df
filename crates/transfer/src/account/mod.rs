//! A transfer in words and tables: what came of it, what held it back, where the bytes are.

mod tables;
mod timelines;

use std::collections::BTreeSet;
use std::net::SocketAddr;

use base::format::{count, quantity, quantity_in_sentence};
use base::outcome::{Account, Certainty, Evidence, Limit, Resource};

use self::tables::{balance, calls, flows, responses, softirqs};
use super::findings::{bit_rate, broke_off, held_back, link_share, too_short_ms};
use super::flow::Direction;
use super::limit::{self, Cause, CpuShare, Held};
use super::metrics;
use super::presentation::{SEND_BUFFER, WINDOW};
use super::report::{DirectionReport, EndReport, Responses, TransferReport};
use super::settings::{TransferSettings, Waiting};

pub(super) fn of(settings: &TransferSettings, report: &TransferReport) -> Account {
    let mut tables = vec![balance(settings, report)];
    tables.extend(flows(settings, report));
    tables.extend(responses(report));
    for way in &report.directions {
        tables.extend(calls("sender", way, way.sender.as_ref()));
        tables.extend(calls("receiver", way, way.receiver.as_ref()));
        tables.extend(softirqs(report, way));
    }
    let broke_off = broke_off(report);
    let limit = Some(held(settings, report)).filter(|_| broke_off.is_none() && !report.directions.is_empty());
    let mut figures = super::figures::of(settings, report);
    figures.extend(timelines::of(report));
    let headline = headline(settings, report);
    Account { headline, limit, tables, figures, broke_off, ..Account::default() }
}

/// `118.2 MB/s (945 Mbit/s) up`, and how that compares with what the path could carry.
fn headline(settings: &TransferSettings, report: &TransferReport) -> Option<String> {
    let metrics = metrics::of(report);
    let known = |name: &str| metrics.get(name).copied().flatten();
    if let Some((loaded, idle)) = report.responses.as_ref().zip(report.idle_responses.as_ref()) {
        return under_load(report, loaded, idle);
    }
    if let Some(responses) = &report.responses {
        let rate = known("transactions_per_s")?;
        let times = &responses.times;
        let time = |ns: Option<u64>| quantity_in_sentence(ns.map(|ns| ns as f64 / 1e9), "s");
        return Some(format!(
            "Answered {} requests a second, half of them within {} and 99 % within {}",
            count(rate),
            time(times.percentile_ns(50.0)),
            time(times.percentile_ns(99.0))
        ));
    }
    let moved = moved(report)?;
    let share = match (known("theoretical_bit_per_s"), report.directions.len()) {
        (Some(most), 1) if most > 0.0 => match known("goodput_bit_per_s")? / most {
            share if !limit::is_refuted(share) => {
                format!(", {} of the {} that the link can carry", limit::percent(share), bit_rate(most))
            }
            _ => format!(
                ", more than the {} that is the nominal maximum of the link (set its true rate with --link)",
                bit_rate(most)
            ),
        },
        _ => String::new(),
    };
    let mode = if settings.mode == super::flow::Mode::Discard { ", discarded unread" } else { "" };
    Some(format!("Moved {moved}{mode}{share}{}", lost(report).unwrap_or_default()))
}

/// `945 Mbit/s up and 940 Mbit/s down`; `None` if nothing is known to have moved.
fn moved(report: &TransferReport) -> Option<String> {
    let metrics = metrics::of(report);
    let ways = [("up", "goodput_up_bit_per_s"), ("down", "goodput_down_bit_per_s")];
    let way = |(word, name): (&str, &str)| {
        Some(format!("{} {word}", bit_rate(metrics.get(name).copied().flatten()?)))
    };
    let said: Vec<String> = ways.into_iter().filter_map(way).collect();
    (!said.is_empty()).then(|| said.join(" and "))
}

/// What the load made of the response times.
fn under_load(report: &TransferReport, loaded: &Responses, idle: &Responses) -> Option<String> {
    let both = |of: &dyn Fn(&Responses) -> Option<String>| Some((of(loaded)?, of(idle)?));
    let time = |percent: f64| {
        both(&|one| Some(quantity_in_sentence(Some(one.times.percentile_ns(percent)? as f64 / 1e9), "s")))
    };
    let (loaded_p50, idle_p50) = time(50.0)?;
    let (loaded_p99, idle_p99) = time(99.0)?;
    let (loaded_rate, idle_rate) = both(&|one| Some(count(one.round_trips_per_min()?.round())))?;
    Some(format!(
        "{loaded_rate} round trips a minute under load, {idle_rate} idle. Under load half of the requests \
         were answered within {loaded_p50} and 99 % within {loaded_p99}, idle within {idle_p50} and \
         {idle_p99}. The load moved {}",
        moved(report)?
    ))
}

fn lost_share(ratio: f64) -> String {
    if ratio == 0.0 { "none".to_owned() } else { limit::percent(ratio) }
}

/// `; 1.131 % of the datagrams were lost`, of two ways each.
fn lost(report: &TransferReport) -> Option<String> {
    let ratio = |ways: &[DirectionReport]| metrics::loss_ratio(ways).map(lost_share);
    let of = |wanted: Direction| -> Vec<DirectionReport> {
        report.directions.iter().filter(|way| way.direction == wanted).cloned().collect()
    };
    match (ratio(&of(Direction::Up)), ratio(&of(Direction::Down))) {
        (Some(up), Some(down)) => Some(format!("; lost datagrams: {up} up, {down} down")),
        (up, down) => Some(format!("; {} of the datagrams were lost", up.or(down)?)),
    }
}

/// The limit of the transfer. If only one direction has a limit, its resource is named; the statements cover
/// both.
fn held(settings: &TransferSettings, report: &TransferReport) -> Limit {
    if let Some(limit) = of_requests(settings, report) {
        return limit;
    }
    let too_short = too_short_ms(settings, report);
    let several = report.directions.len() > 1;
    let ways = report.directions.iter().map(|way| {
        let (cause, evidence) = held_back(settings, report, way);
        let cause = match cause {
            cause if link_share(report, way).is_some_and(limit::is_full) => cause,
            _ if too_short.is_some() => None,
            cause => known(report, cause),
        };
        let of_way = |line: String| if several { format!("{}: {line}", way.direction.word()) } else { line };
        (cause, way, evidence.into_iter().map(of_way).collect::<Vec<_>>())
    });
    let mut ways: Vec<_> = ways.collect();
    ways.sort_by_key(|(cause, ..)| cause.is_none_or(|(held, _)| held == Held::Offered));
    let causes: BTreeSet<_> = ways.iter().map(|(cause, ..)| cause.map(|(held, _)| held)).collect();
    let (resource, certainty) = match ways.first().and_then(|(cause, ..)| *cause) {
        Some((held, certainty)) => (resource(held), certainty),
        None => (Resource::None, Certainty::Unknown),
    };
    let said: Vec<String> = match (too_short, causes.len()) {
        (Some(ms), _) if resource == Resource::None => {
            vec![format!(
                "all bytes moved within {}, too short to find a limit",
                quantity(Some(ms / 1e3), "s")
            )]
        }
        (_, 1) => {
            ways.first().map(|(cause, way, _)| said(settings, report, way, *cause)).into_iter().collect()
        }
        _ => ways
            .iter()
            .map(|(cause, way, _)| {
                format!("{}: {}", way.direction.word(), said(settings, report, way, *cause))
            })
            .collect(),
    };
    let evidence = ways.into_iter().flat_map(|(_, _, evidence)| evidence);
    let statements = std::iter::once(said.join("; ")).chain(evidence);
    let mut evidence: Vec<_> = statements.map(|statement| Evidence::counted(resource, statement)).collect();
    let shares = report.directions.iter().filter_map(|way| link_share(report, way));
    let full = shares.filter(|share| limit::is_full(*share)).max_by(f64::total_cmp);
    if let (Resource::Network, Some(share), [first, ..]) = (resource, full, &mut evidence[..]) {
        first.values.insert(Limit::LINK_PERCENT.to_owned(), 100.0 * share);
    }
    Limit { resource, certainty, evidence }
}

fn resource(held: Held) -> Resource {
    match held {
        Held::SenderCpu | Held::ReceiverCpu => Resource::Cpu,
        Held::Window => Resource::Workload(&WINDOW),
        Held::SendBuffer => Resource::Workload(&SEND_BUFFER),
        Held::Path => Resource::Network,
        Held::Offered => Resource::None,
    }
}

/// The cause of a way as a sentence.
fn said(
    settings: &TransferSettings,
    report: &TransferReport,
    way: &DirectionReport,
    cause: Option<Cause>,
) -> String {
    let Some((held, certainty)) = cause else {
        return match limit::steal_sentence(way) {
            Some(steal) => format!("{steal}, so that no other limit can be derived"),
            None if limit::lost_somewhere(way) => "datagrams were lost, and no end counts where".to_owned(),
            None => "no resource that either end counts was exhausted".to_owned(),
        };
    };
    let is_proven = certainty == Certainty::Confirmed;
    let sentence = match held {
        // Its threads had time to spare.
        Held::SenderCpu if way.sender.as_ref().and_then(limit::cpu_share).is_none() => {
            "the sender was woken too late to offer the requested rate"
        }
        Held::SenderCpu => return busy_cpu("sender's", way.sender.as_ref()),
        Held::ReceiverCpu => return busy_cpu("receiver's", way.receiver.as_ref()),
        Held::Window if is_proven => "the receiver's window is full most of the time",
        Held::Window => "the receiver's window is full part of the time",
        Held::SendBuffer if is_proven => "the sender's buffer holds less than the link needs",
        Held::SendBuffer => "the sender's buffer holds less than the link needs part of the time",
        Held::Path if link_share(report, way).is_some_and(limit::is_above) => {
            "more arrived than the link carries for long"
        }
        Held::Path if link_share(report, way).is_some_and(limit::is_full) => "the link is full",
        Held::Path => "neither end held the data back: the rate, the delay or the losses of the path did",
        Held::Offered if settings.rate.is_none() && is_proven => "the sender had no more data to send",
        Held::Offered if settings.rate.is_none() => {
            "the connections were idle: the sender had no more data to send, or waited for a CPU"
        }
        Held::Offered => "the requested rate was reached",
    };
    sentence.to_owned()
}

/// The threads of an `end` are or may be the limit; threads with idle time only if datagrams overflowed their
/// socket.
fn busy_cpu(whose: &str, end: Option<&EndReport>) -> String {
    match end.and_then(limit::cpu_share) {
        Some(CpuShare::Taken(share)) => {
            format!("the {whose} threads ran or waited for a CPU {} of the time", limit::percent(share))
        }
        Some(CpuShare::Waited(share)) => {
            format!("the {whose} threads waited for a CPU {} of the time", limit::percent(share))
        }
        None => format!("the {whose} threads were too slow"),
    }
}

/// The limit of requests: the CPU of an end, or that they are sequential.
fn of_requests(settings: &TransferSettings, report: &TransferReport) -> Option<Limit> {
    let requests = settings.requests.as_ref().filter(|_| settings.is_requests_only())?;
    let way = report.directions.first()?;
    let (cause, evidence) = held_back(settings, report, way);
    let cpu = cause.filter(|(held, certainty)| {
        matches!(held, Held::SenderCpu | Held::ReceiverCpu) && *certainty == Certainty::Confirmed
    });
    let all_answered = report.responses.as_ref().is_some_and(|responses| responses.unanswered == 0);
    let (resource, certainty, first) = match (requests.waiting, cpu, requests.rate_per_s) {
        (Waiting::Spin, ..) => {
            let why = "spinning threads always use their cores, so CPU use shows no limit";
            (Resource::None, Certainty::Unknown, why.to_owned())
        }
        (_, Some((Held::SenderCpu, certainty)), _) => {
            (Resource::Cpu, certainty, busy_cpu("requesting", way.sender.as_ref()))
        }
        (_, Some((_, certainty)), _) => {
            (Resource::Cpu, certainty, busy_cpu("responding", way.receiver.as_ref()))
        }
        (_, None, None) => {
            let why = "requests are sequential (closed loop); use more flows for a higher rate";
            (Resource::None, Certainty::Confirmed, why.to_owned())
        }
        (_, None, Some(_)) if all_answered => {
            (Resource::None, Certainty::Confirmed, "the requested rate was reached".to_owned())
        }
        _ => (Resource::None, Certainty::Unknown, "some requests got no response in time".to_owned()),
    };
    let cpu = evidence.into_iter().filter(|line| line.contains(" of a core"));
    let statements = std::iter::once(first).chain(cpu);
    let evidence = statements.map(|statement| Evidence::counted(resource, statement)).collect();
    Some(Limit { resource, certainty, evidence })
}

/// The cause, unless it cannot be known: over loopback there is no link, and neither end accounts for the
/// kernel's work between them.
fn known(report: &TransferReport, cause: Option<Cause>) -> Option<Cause> {
    let is_loopback = report.server.parse::<SocketAddr>().is_ok_and(|server| server.ip().is_loopback());
    let is_guess = matches!(cause, Some((Held::Path, _) | (Held::SendBuffer, Certainty::Predicted)));
    cause.filter(|_| !is_loopback || !is_guess)
}

#[cfg(test)]
mod tests;
