//! A transfer in words and tables: what came of it, what held it back, where the bytes are.

mod tables;
mod words;

use std::net::SocketAddr;

use base::outcome::{Account, Certainty, Evidence, Limit, Resource};

use self::tables::{balance, calls, flows, responses};
use self::words::{count, micros, percent, rate_words};
use super::judge::held_back;
use super::limit::Held;
use super::metrics;
use super::report::TransferReport;
use super::settings::TransferSettings;

/// What is said of a transfer.
pub(super) fn of(settings: &TransferSettings, report: &TransferReport) -> Account {
    let mut tables = vec![balance(report)];
    tables.extend(flows(settings, report));
    tables.extend(report.responses.as_ref().map(responses));
    for way in &report.ways {
        tables.extend(calls("sender", way, way.sender.as_ref()));
        tables.extend(calls("receiver", way, way.receiver.as_ref()));
    }
    Account { headline: headline(settings, report), limit: limit(settings, report), tables }
}

/// `118.2 MB/s (945 Mbit/s) up`, and how that compares with what the path could carry.
fn headline(settings: &TransferSettings, report: &TransferReport) -> Option<String> {
    let metrics = metrics::of(report);
    let known = |name: &str| metrics.get(name).copied().flatten();
    if let Some(responses) = &report.responses {
        let rate = known("transactions_per_s")?;
        let times = responses.times();
        let us = |ns: Option<u64>| ns.map_or("unknown".to_owned(), |ns| micros(ns as f64 / 1e3));
        return Some(format!(
            "Answered {} requests a second, half of them within {} and 99 % within {}",
            count(rate),
            us(times.percentile_ns(50.0)),
            us(times.percentile_ns(99.0))
        ));
    }
    let ways = [("up", "goodput_up_bit_per_s"), ("down", "goodput_down_bit_per_s")];
    let said: Vec<String> = ways
        .into_iter()
        .filter_map(|(word, name)| Some(format!("{} {word}", rate_words(known(name)?))))
        .collect();
    if said.is_empty() {
        return None;
    }
    let share = match (known("theoretical_bit_per_s"), report.ways.len()) {
        (Some(most), 1) if most > 0.0 => {
            let percent = 100.0 * known("goodput_bit_per_s")? / most;
            format!(", {percent:.1} % of the {} that the link can carry", rate_words(most))
        }
        _ => String::new(),
    };
    let lost = known("loss_ratio").map(|ratio| format!("; {} of the datagrams were lost", percent(ratio)));
    let mode = if settings.mode == super::flow::Mode::Discard { ", discarded unread" } else { "" };
    Some(format!("Moved {}{mode}{share}{}", said.join(" and "), lost.unwrap_or_default()))
}

/// What held the transfer back: of two ways the one that was held back by something.
fn limit(settings: &TransferSettings, report: &TransferReport) -> Option<Limit> {
    let mut held = held_back(settings, report);
    held.sort_by_key(|(_, held, _)| *held == Held::Offered);
    let several = held.len() > 1;
    let (way, cause, evidence) = held.first()?;
    let resource = match cause {
        Held::SenderCpu | Held::ReceiverCpu => Resource::Cpu,
        Held::Window => Resource::Window,
        Held::SendBuffer => Resource::SendBuffer,
        Held::Path => Resource::Network,
        Held::Offered => Resource::None,
    };
    let direction = if several { format!(" {}", way.word()) } else { String::new() };
    let first = match cause {
        Held::SenderCpu => format!("the sender's CPU{direction} has no time to spare"),
        Held::ReceiverCpu => format!("the receiver's CPU{direction} has no time to spare"),
        Held::Window => format!("the receiver's window{direction} is full most of the time"),
        Held::SendBuffer => format!("the sender's buffer{direction} holds less than the path"),
        Held::Path => format!("the path{direction} takes no more"),
        Held::Offered => format!("no more was asked for{direction}"),
    };
    let statements = std::iter::once(first).chain(evidence.iter().cloned());
    let (resource, certainty) = match cause {
        // There is no link, and the kernel's own work between the ends is in neither end's account.
        Held::Path if is_loopback(report) => (Resource::None, Certainty::Unknown),
        _ => (resource, Certainty::Confirmed),
    };
    let evidence = statements.map(|statement| Evidence { resource, statement, inferred: false }).collect();
    Some(Limit { resource, certainty, evidence })
}

/// Whether there is no path between the two ends.
fn is_loopback(report: &TransferReport) -> bool {
    report.server.parse::<SocketAddr>().is_ok_and(|server| server.ip().is_loopback())
}

#[cfg(test)]
mod tests;
