//! Buffers of UDP sockets.

use base::format::{count as grouped, quantity};

use super::{CounterValue, Finding, Statement, Values, count, largest};
use crate::observe::{Counters, Observation, SocketUse};

/// Sum over IPv4 and IPv6; `None`: the kernel has neither counter.
fn both(counters: &Counters, name: &str) -> Option<u64> {
    let of = |group: &str| counters.get(group, name);
    of("Udp").map(|four| four + of("Udp6").unwrap_or_default()).or_else(|| of("Udp6"))
}

pub(super) fn receive(seen: &Observation, values: &Values) -> Option<Statement> {
    let read = both(&seen.counters, "InDatagrams")?;
    let dropped = both(&seen.counters, "RcvbufErrors")?;
    let counters = vec![count("Udp InDatagrams", read), count("Udp RcvbufErrors", dropped)];
    let length = quantity(Some(seen.length_s), "s");
    let statement = |finding, text| Statement {
        subject: "UDP receive buffers".into(),
        finding,
        text,
        counters: counters.clone(),
        setting: None,
        proposal: None,
    };
    if read + dropped == 0 {
        let text = format!(
            "UDP buffers: unknown; no datagram was received within {length} (Udp InDatagrams, RcvbufErrors)."
        );
        return Some(statement(Finding::Unknown, text));
    }
    if dropped == 0 {
        let text = format!(
            "UDP receive buffers are not the limit: none of {} datagrams was dropped (Udp RcvbufErrors, \
             {length}).",
            grouped(read as f64)
        );
        return Some(statement(Finding::NotTheLimit, text));
    }
    let begin = format!(
        "UDP receive buffers were full: {} datagrams dropped, {} read (Udp RcvbufErrors, InDatagrams).",
        grouped(dropped as f64),
        grouped(read as f64)
    );
    let worst = seen.sockets.iter().filter(|socket| !socket.is_tcp && socket.drops > 0);
    let mut statement = statement(Finding::Limit, begin);
    statement.setting = Some("net.core.rmem_default".into());
    match worst.max_by_key(|socket| socket.drops) {
        Some(socket) => name_socket(&mut statement, socket, values),
        None => statement.text += " The socket was closed before it was listed.",
    }
    statement.text += " A program that reads too slowly drops some with any buffer.";
    Some(statement)
}

/// Adds the socket that dropped most, and the setting of its buffer.
fn name_socket(statement: &mut Statement, socket: &SocketUse, values: &Values) {
    let default = largest(values, "net.core.rmem_default");
    let size = socket.receive_buffer_bytes;
    statement.text += &format!(
        " Most at port {}: {} (SK_MEMINFO_DROPS), buffer {}.",
        socket.local.port(),
        grouped(socket.drops as f64),
        quantity(size.map(|size| size as f64), "B")
    );
    statement.counters.push(count("SK_MEMINFO_DROPS", socket.drops));
    statement.counters.extend(size.map(|value| CounterValue {
        name: "SK_MEMINFO_RCVBUF".into(),
        value,
        unit: "B".into(),
    }));
    if size != default {
        statement.setting = Some("SO_RCVBUF".into());
        return;
    }
    statement.proposal = default.map(|bytes| (4 * bytes).min(i32::MAX as u64).to_string());
}

pub(super) fn send(counters: &Counters, values: &Values) -> Option<Statement> {
    let failed = both(counters, "SndbufErrors").filter(|failed| *failed > 0)?;
    let size = quantity(largest(values, "net.core.wmem_default").map(|bytes| bytes as f64), "B");
    Some(Statement {
        subject: "UDP send buffers".into(),
        finding: Finding::Limit,
        text: format!(
            "UDP send buffers were full: {} datagrams were not sent (Udp SndbufErrors); a socket whose \
             program sets none has {size} (wmem_default).",
            grouped(failed as f64)
        ),
        counters: vec![count("Udp SndbufErrors", failed)],
        setting: Some("net.core.wmem_default".into()),
        proposal: None,
    })
}
