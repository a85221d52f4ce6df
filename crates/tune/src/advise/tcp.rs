//! Buffers of TCP connections, by TCP_INFO.

use base::format::quantity;
use serde::{Deserialize, Serialize};

use super::{CounterValue, Finding, Statement, Values, largest, with_largest};
use crate::observe::{Observation, SocketUse};

/// A smaller share of the busy time is no limit.
pub const LIMITED_MIN: f64 = 0.05;
/// A connection that is busy for a smaller share of the time is not judged alone.
const BUSY_MIN: f64 = 0.1;
/// A buffer of this share of the largest size has reached it.
const REACHED: f64 = 0.9;
/// Data that waits longer than this before it is sent delays messages behind it, s.
const WAIT_MIN_S: f64 = 0.1;
/// Unsent bytes that hold about a packet of the largest size each way: what programs on real paths use.
const NOTSENT_LOWAT: &str = "131072";

/// Shares of the busy time of all TCP connections.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BufferShares {
    /// Connections that were busy.
    pub connections: usize,
    pub busy_us: u64,
    pub sndbuf_limited_us: u64,
    pub rwnd_limited_us: u64,
    /// The largest product of delivery rate and least round-trip time of a connection, bytes.
    pub bandwidth_delay_bytes: Option<u64>,
}

impl BufferShares {
    /// Of the busy time, limited by send buffers.
    pub fn sndbuf(&self) -> f64 {
        self.sndbuf_limited_us as f64 / self.busy_us as f64
    }

    /// Of the busy time, limited by receive windows of peers.
    pub fn rwnd(&self) -> f64 {
        self.rwnd_limited_us as f64 / self.busy_us as f64
    }
}

/// `None`: no connection was busy.
pub fn buffer_shares(seen: &Observation) -> Option<BufferShares> {
    let busy: Vec<&SocketUse> = busy(seen).collect();
    let sum = |of: fn(&SocketUse) -> u64| busy.iter().map(|socket| of(socket)).sum::<u64>();
    (!busy.is_empty()).then(|| BufferShares {
        connections: busy.len(),
        busy_us: sum(|socket| socket.busy_us),
        sndbuf_limited_us: sum(|socket| socket.sndbuf_limited_us),
        rwnd_limited_us: sum(|socket| socket.rwnd_limited_us),
        bandwidth_delay_bytes: busy.iter().filter_map(|socket| socket.bandwidth_delay_bytes()).max(),
    })
}

fn busy(seen: &Observation) -> impl Iterator<Item = &SocketUse> {
    seen.sockets.iter().filter(|socket| socket.is_tcp && socket.busy_us > 0)
}

/// Connections that are limited for [`LIMITED_MIN`] of their busy time, by what `limited_us` reads.
fn limited(seen: &Observation, limited_us: fn(&SocketUse) -> u64) -> Vec<&SocketUse> {
    let is_limited = |socket: &&SocketUse| {
        let busy_us = socket.busy_us as f64;
        busy_us >= BUSY_MIN * seen.length_s * 1e6 && limited_us(socket) as f64 >= LIMITED_MIN * busy_us
    };
    busy(seen).filter(is_limited).collect()
}

pub(super) fn buffers(seen: &Observation, values: &Values) -> Vec<Statement> {
    let length = quantity(Some(seen.length_s), "s");
    let Some(shares) = buffer_shares(seen) else {
        return vec![Statement {
            subject: "TCP buffers".into(),
            finding: Finding::Unknown,
            text: format!(
                "TCP buffers: unknown; no connection sent anything within {length} (tcpi_busy_time)."
            ),
            counters: counters(&BufferShares {
                connections: 0,
                busy_us: 0,
                sndbuf_limited_us: 0,
                rwnd_limited_us: 0,
                bandwidth_delay_bytes: None,
            }),
            setting: None,
            proposal: None,
        }];
    };
    let by_sndbuf = limited(seen, |socket| socket.sndbuf_limited_us);
    let by_rwnd = limited(seen, |socket| socket.rwnd_limited_us);
    let mut statements = Vec::new();
    if shares.sndbuf() >= LIMITED_MIN || !by_sndbuf.is_empty() {
        statements.push(send_buffer(&shares, &by_sndbuf, values));
    }
    if shares.rwnd() >= LIMITED_MIN || !by_rwnd.is_empty() {
        statements.push(receive_window(&shares, &by_rwnd, values));
    }
    if statements.is_empty() {
        statements.push(Statement {
            subject: "TCP buffers".into(),
            finding: Finding::NotTheLimit,
            text: format!(
                "Buffers are not the limit: TCP connections were send-buffer-limited {} and \
                 receive-window-limited {} of their busy time (TCP_INFO of {} sockets, {length}).",
                percent(shares.sndbuf()),
                percent(shares.rwnd()),
                shares.connections
            ),
            counters: counters(&shares),
            setting: None,
            proposal: None,
        });
    }
    statements
}

fn send_buffer(shares: &BufferShares, limited: &[&SocketUse], values: &Values) -> Statement {
    let begin = format!(
        "Send buffers limit {}: send-buffer-limited {} of the busy time (tcpi_sndbuf_limited, {} sockets).",
        connections(limited),
        percent(shares.sndbuf()),
        shares.connections
    );
    let size = limited.iter().filter_map(|socket| socket.send_buffer_bytes).max();
    let most = largest(values, "net.ipv4.tcp_wmem");
    let (why, setting, proposal) = match (size, most) {
        (Some(size), Some(most)) if (size as f64) < REACHED * most as f64 => (
            format!(
                " The largest has {}, tcp_wmem allows {}: the program has fixed it (SO_SNDBUF), or it still \
                 grows.",
                bytes(size),
                bytes(most)
            ),
            Some("SO_SNDBUF"),
            None,
        ),
        (Some(_), Some(most)) => (
            format!(" They have the largest size that tcp_wmem allows, {}.", bytes(most)),
            Some("net.ipv4.tcp_wmem"),
            with_largest(values, "net.ipv4.tcp_wmem", 2 * most),
        ),
        _ => (String::new(), Some("net.ipv4.tcp_wmem"), None),
    };
    let mut counters = counters(shares);
    counters.extend(size.map(|value| CounterValue {
        name: "SK_MEMINFO_SNDBUF".into(),
        value,
        unit: "B".into(),
    }));
    Statement {
        subject: "send buffer".into(),
        finding: Finding::Limit,
        text: begin + &why,
        counters,
        setting: setting.map(Into::into),
        proposal,
    }
}

fn receive_window(shares: &BufferShares, limited: &[&SocketUse], values: &Values) -> Statement {
    let worst = limited.iter().max_by_key(|socket| socket.rwnd_limited_us);
    let peer = worst.map_or_else(|| "the peers".to_owned(), |socket| socket.peer.to_string());
    let is_here = worst.is_some_and(|socket| socket.peer.ip().is_loopback());
    let proposal = largest(values, "net.ipv4.tcp_rmem")
        .filter(|_| is_here)
        .and_then(|most| with_largest(values, "net.ipv4.tcp_rmem", 2 * most));
    let cure = match is_here {
        true => "or tcp_rmem is too small",
        false => "or tcp_rmem there is too small: 'kagiri tune advise' there shows which",
    };
    Statement {
        subject: "receive window".into(),
        finding: Finding::Limit,
        text: format!(
            "Receive windows of peers limit {}: {} of the busy time (tcpi_rwnd_limited, {} sockets). The \
             program at {peer} reads too slowly, {cure}.",
            connections(limited),
            percent(shares.rwnd()),
            shares.connections
        ),
        counters: counters(shares),
        setting: Some("net.ipv4.tcp_rmem".into()),
        proposal,
    }
}

/// Data that waits in send buffers for longer than [`WAIT_MIN_S`].
pub(super) fn unsent(seen: &Observation, values: &Values) -> Option<Statement> {
    let wait_s = |socket: &SocketUse| {
        let rate = socket.delivery_bytes_per_s.filter(|rate| *rate > 0)?;
        Some(socket.notsent_bytes_max as f64 / rate as f64)
    };
    let waits = busy(seen).filter_map(|socket| Some((socket, wait_s(socket)?)));
    let (socket, s) = waits.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, s)| *s >= WAIT_MIN_S)?;
    let now = values.get("net.ipv4.tcp_notsent_lowat");
    let counter = |name: &str, value, unit: &'static str| CounterValue {
        name: name.to_owned(),
        value,
        unit: unit.into(),
    };
    Some(Statement {
        subject: "unsent data".into(),
        finding: Finding::Delay,
        text: format!(
            "Up to {} waited in the send buffer to {}, {} at the rate of its delivery (tcpi_notsent_bytes, \
             tcpi_delivery_rate). Messages behind it are late; tcp_notsent_lowat bounds what waits.",
            bytes(socket.notsent_bytes_max),
            socket.peer,
            quantity(Some(s), "s")
        ),
        counters: vec![
            counter("tcpi_notsent_bytes", socket.notsent_bytes_max, "B"),
            counter("tcpi_delivery_rate", socket.delivery_bytes_per_s.unwrap_or_default(), "B/s"),
        ],
        setting: now.map(|_| "net.ipv4.tcp_notsent_lowat".into()),
        proposal: now.filter(|now| *now != NOTSENT_LOWAT).map(|_| NOTSENT_LOWAT.to_owned()),
    })
}

fn counters(shares: &BufferShares) -> Vec<CounterValue> {
    let us = |name: &str, value| CounterValue { name: name.to_owned(), value, unit: "us".into() };
    vec![
        us("tcpi_busy_time", shares.busy_us),
        us("tcpi_sndbuf_limited", shares.sndbuf_limited_us),
        us("tcpi_rwnd_limited", shares.rwnd_limited_us),
    ]
}

fn connections(limited: &[&SocketUse]) -> String {
    match limited {
        [] => "short connections".to_owned(),
        [socket] => format!("the connection to {}", socket.peer),
        all => format!("{} connections", all.len()),
    }
}

fn percent(share: f64) -> String {
    quantity(Some(100.0 * share), "%")
}

fn bytes(bytes: u64) -> String {
    quantity(Some(bytes as f64), "B")
}
