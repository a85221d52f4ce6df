//! What concerns all sockets of this host: loss, queues of received packets, memory.

use base::format::{count as grouped, quantity};

use super::{Finding, Statement, Values, count, largest, with_largest};
use crate::observe::Counters;

/// Of fewer segments, a share says nothing.
const SEGMENTS_MIN: u64 = 1000;
/// A larger share of retransmitted segments limits TCP.
const LOSS_MIN: f64 = 0.01;

pub(super) fn loss(counters: &Counters) -> Option<Statement> {
    let sent = counters.get("Tcp", "OutSegs").filter(|sent| *sent >= SEGMENTS_MIN)?;
    let again = counters.get("Tcp", "RetransSegs")?;
    let share = again as f64 / sent as f64;
    let facts = format!(
        "{} of {} TCP segments were sent again, {} (Tcp RetransSegs, OutSegs)",
        grouped(again as f64),
        grouped(sent as f64),
        quantity(Some(100.0 * share), "%")
    );
    let (finding, text) = match share >= LOSS_MIN {
        true => {
            (Finding::Limit, format!("Packets are lost: {facts}. Larger buffers do not help against loss."))
        }
        false => (Finding::NotTheLimit, format!("Loss is not the limit: {facts}.")),
    };
    Some(Statement {
        subject: "loss".into(),
        finding,
        text,
        counters: vec![count("Tcp OutSegs", sent), count("Tcp RetransSegs", again)],
        setting: None,
        proposal: None,
    })
}

/// Packets that were received and waited for a CPU.
pub(super) fn backlog(counters: &Counters, values: &Values) -> Option<Statement> {
    let of = |name: &str| counters.get("softnet_stat", name);
    let (all, dropped, squeezed) = (of("processed")?, of("dropped")?, of("time_squeeze")?);
    if all == 0 {
        return None;
    }
    let (all_text, dropped_text) = (grouped(all as f64), grouped(dropped as f64));
    let double = |name: &str| Some((2 * largest(values, name)?).to_string());
    let (finding, text, setting) = match (dropped, squeezed) {
        (0, 0) => (
            Finding::NotTheLimit,
            format!("Receiving is not the limit: none of {all_text} packets was dropped (softnet_stat)."),
            None,
        ),
        (0, _) => (
            Finding::Delay,
            format!(
                "Rounds of receiving ended with packets left {} times (softnet_stat, time_squeeze): a CPU is \
                 busy, or netdev_budget is small. None was dropped.",
                grouped(squeezed as f64)
            ),
            Some("net.core.netdev_budget"),
        ),
        _ => (
            Finding::Limit,
            format!(
                "{dropped_text} of {all_text} received packets were dropped: they waited for a CPU \
                 (softnet_stat, dropped; the whole host)."
            ),
            Some("net.core.netdev_max_backlog"),
        ),
    };
    Some(Statement {
        subject: "received packets".into(),
        finding,
        text,
        counters: vec![
            count("softnet_stat processed", all),
            count("softnet_stat dropped", dropped),
            count("softnet_stat time_squeeze", squeezed),
        ],
        setting: setting.filter(|name| values.contains_key(name)).map(Into::into),
        proposal: setting.and_then(double),
    })
}

/// Received data of TCP that found no room.
pub(super) fn receive_queue(counters: &Counters, values: &Values) -> Option<Statement> {
    let names = ["PruneCalled", "RcvPruned", "TCPRcvQDrop", "TCPBacklogDrop"];
    let grown = |name: &&'static str| {
        counters.get("TcpExt", name).filter(|value| *value > 0).map(|value| (*name, value))
    };
    let seen: Vec<(&str, u64)> = names.iter().filter_map(grown).collect();
    if seen.is_empty() {
        return None;
    }
    let most = largest(values, "net.ipv4.tcp_rmem");
    let list: Vec<String> =
        seen.iter().map(|(name, value)| format!("{name} {}", grouped(*value as f64))).collect();
    Some(Statement {
        subject: "TCP receive buffers".into(),
        finding: Finding::Limit,
        text: format!(
            "TCP receive buffers of this host were full ({}): a program reads too slowly, or tcp_rmem is too \
             small.",
            list.join(", ")
        ),
        counters: seen.iter().map(|(name, value)| count(format!("TcpExt {name}"), *value)).collect(),
        setting: Some("net.ipv4.tcp_rmem".into()),
        proposal: most.and_then(|most| with_largest(values, "net.ipv4.tcp_rmem", 2 * most)),
    })
}

/// Connections that no program accepted in time.
pub(super) fn accept_queue(counters: &Counters, values: &Values) -> Option<Statement> {
    let refused = counters.get("TcpExt", "ListenOverflows").filter(|refused| *refused > 0)?;
    let most = largest(values, "net.core.somaxconn");
    Some(Statement {
        subject: "accept queue".into(),
        finding: Finding::Limit,
        text: format!(
            "{} connections found the queue of a listener full (TcpExt ListenOverflows): its program accepts \
             too slowly, or asks for a short queue (listen(), at most somaxconn, {}).",
            grouped(refused as f64),
            most.map_or_else(|| "unknown".to_owned(), |most| grouped(most as f64))
        ),
        counters: vec![count("TcpExt ListenOverflows", refused)],
        setting: most.map(|_| "net.core.somaxconn".into()),
        proposal: None,
    })
}

/// Memory of all sockets of a protocol.
pub(super) fn memory(counters: &Counters) -> Vec<Statement> {
    [
        ("TCP", "TcpExt", "TCPMemoryPressures", "net.ipv4.tcp_mem"),
        ("UDP", "Udp", "MemErrors", "net.ipv4.udp_mem"),
    ]
    .into_iter()
    .filter_map(|(protocol, group, name, setting)| {
        let times = counters.get(group, name).filter(|times| *times > 0)?;
        Some(Statement {
            subject: "socket memory".into(),
            finding: Finding::Limit,
            text: format!(
                "Memory of all {protocol} sockets was at its limit {} times ({group} {name}, {setting}).",
                grouped(times as f64)
            ),
            counters: vec![count(format!("{group} {name}"), times)],
            setting: Some(setting.into()),
            proposal: None,
        })
    })
    .collect()
}
