//! Which settings fit together.

use base::plan::PlanError;
use base::units::{ByteSize, Span};

use super::{Peer, TransferSettings, Waiting};
use crate::flow::{Direction, Mode, Protocol};
use crate::quic;
use workload::settings::Settings;

/// More threads than are of use.
pub(crate) const THREADS_MAX: u32 = 1024;
/// The largest buffer of a socket, bytes.
pub(crate) const BUFFER_BYTES_MAX: u64 = 1 << 30;
/// The largest window of QUIC, bytes: 10 Gbit/s over 200 ms. What a peer sends out of order is held in this
/// program's memory.
pub(crate) const QUIC_WINDOW_BYTES_MAX: u64 = 256 << 20;
/// The largest request or answer, bytes.
pub(crate) const MESSAGE_BYTES_MAX: u64 = 16 << 20;
/// What IPv4 carries in a datagram: 65535 less its header and UDP's (RFC 768).
const DATAGRAM_BYTES_MAX: u64 = 65_507;
/// A datagram's own header: seconds, microseconds and count.
const DATAGRAM_BYTES_MIN: u64 = 16;

/// Checks the size `value` of `key` against a range in bytes, which `words` name.
fn within(key: &str, value: ByteSize, least: u64, most: u64, words: &str) -> Result<(), PlanError> {
    match (least..=most).contains(&value.bytes()) {
        true => Ok(()),
        false => Err(PlanError::of_key(key, format!("{value} is not within {words}"))),
    }
}

/// Refuses the first key that is set; the entries are (key, whether it is set, problem).
fn refuse_set(entries: &[(&str, bool, &str)]) -> Result<(), PlanError> {
    match entries.iter().find(|(_, is_set, _)| *is_set) {
        Some((key, _, problem)) => Err(PlanError::of_key(key, *problem)),
        None => Ok(()),
    }
}

impl Settings for TransferSettings {
    fn check(&self) -> Result<(), PlanError> {
        let (least, most, words) = match self.protocol {
            Protocol::Tcp => (1, 64 << 20, "1B to 64MiB"),
            Protocol::Udp => {
                (DATAGRAM_BYTES_MIN, DATAGRAM_BYTES_MAX, "16B to 65507B, the maximum of a datagram")
            }
            Protocol::Quic => (1, 128 << 10, "1B to 128KiB, the maximum of one write to a QUIC stream"),
        };
        within("size", ByteSize::from_bytes(self.size_bytes()), least, most, words)?;
        self.check_buffers()?;
        self.check_quic()?;
        self.check_udp()?;
        self.check_requests()?;
        self.check_under_load()?;
        self.check_search()?;
        self.check_peer()
    }
}

impl TransferSettings {
    fn check_buffers(&self) -> Result<(), PlanError> {
        let (most, words) = match self.protocol {
            Protocol::Quic => (QUIC_WINDOW_BYTES_MAX, "1KiB to 256MiB, the maximum of a QUIC window"),
            Protocol::Tcp | Protocol::Udp => (BUFFER_BYTES_MAX, "1KiB to 1GiB"),
        };
        for (key, buffer) in [
            ("window", self.window),
            ("send_buffer", self.send_buffer),
            ("receive_buffer", self.receive_buffer),
        ] {
            if let Some(buffer) = buffer {
                within(key, buffer, 1024, most, words)?;
            }
        }
        Ok(())
    }

    fn check_udp(&self) -> Result<(), PlanError> {
        if self.protocol != Protocol::Udp {
            return Ok(());
        }
        refuse_set(&[
            ("engine", self.engine.is_some(), "engines apply only to TCP"),
            ("congestion_control", self.congestion_control.is_some(), "UDP has no congestion control"),
            ("no_delay", self.no_delay, "it applies only to TCP sockets"),
        ])
    }

    fn check_quic(&self) -> Result<(), PlanError> {
        if self.protocol != Protocol::Quic {
            return Ok(());
        }
        if self.flows > quic::FLOWS_MAX.into() {
            let problem = format!("{} is not within 1 to {} flows of QUIC", self.flows, quic::FLOWS_MAX);
            return Err(PlanError::of_key("flows", problem));
        }
        let (discards, is_controlled) = (self.mode == Mode::Discard, self.congestion_control.is_some());
        refuse_set(&[
            ("requests", self.requests.is_some(), "not supported with QUIC"),
            ("under_load", self.under_load.is_some(), "not supported with QUIC, which has no requests"),
            ("rate", self.rate.is_some(), "not supported with QUIC, which controls its own rate"),
            ("mode", discards, "discard is not supported with QUIC, which must read and decrypt all data"),
            ("engine", self.engine.is_some(), "engines apply only to TCP"),
            ("threads", self.threads > 1, "QUIC uses one thread for all flows"),
            ("congestion_control", is_controlled, "QUIC does not use the kernel's congestion control"),
            ("no_delay", self.no_delay, "it applies only to TCP sockets"),
            ("calls", self.calls, "not supported with QUIC, whose library does not time its system calls"),
        ])
    }

    fn check_requests(&self) -> Result<(), PlanError> {
        let Some(requests) = &self.requests else { return Ok(()) };
        let (most, words) = match self.protocol {
            Protocol::Udp => (DATAGRAM_BYTES_MAX, "1B to 65507B, the maximum of a datagram"),
            Protocol::Tcp | Protocol::Quic => (MESSAGE_BYTES_MAX, "1B to 16MiB"),
        };
        for (key, size) in
            [("requests.size", Some(requests.size)), ("requests.answer_size", requests.answer_size)]
        {
            if let Some(size) = size {
                within(key, size, 1, most, words)?;
            }
        }
        if self.under_load.is_some() {
            return Ok(());
        }
        let (problem, discards) = ("not supported with requests", self.mode == Mode::Discard);
        refuse_set(&[
            ("bytes", self.bytes.is_some(), problem),
            ("rate", self.rate.is_some(), problem),
            ("search", self.search.is_some(), problem),
            ("direction", self.direction != Direction::Up, problem),
            ("mode", discards, "discard is not supported with requests, because messages are read"),
        ])
    }

    /// The path is loaded for a time, by flows of a server that answers requests, too.
    fn check_under_load(&self) -> Result<(), PlanError> {
        if self.under_load.is_none() {
            return Ok(());
        }
        let spins = self.requests.as_ref().is_some_and(|requests| requests.waiting == Waiting::Spin);
        let lacks_rate = self.protocol == Protocol::Udp && self.rate.is_none();
        refuse_set(&[
            (
                "bytes",
                self.bytes.is_some(),
                "not supported with `under_load`, which loads the path for a time",
            ),
            ("search", self.search.is_some(), "not supported with `under_load`"),
            ("requests.waiting", spins, "spinning is a load of its own, and not supported with `under_load`"),
            ("rate", lacks_rate, "a load of UDP needs a rate, such as 100Mbit/s"),
        ])
    }

    fn check_search(&self) -> Result<(), PlanError> {
        if self.search.is_none() {
            return Ok(());
        }
        let has_load = self.rate.is_some() || self.bytes.is_some();
        refuse_set(&[
            (
                "search",
                self.protocol != Protocol::Udp,
                "needs the protocol udp, because TCP and QUIC control their own rate",
            ),
            ("search", has_load, "not supported with `rate` or `bytes`, because the search sets the rate"),
        ])
    }

    fn check_peer(&self) -> Result<(), PlanError> {
        let refuse = |key: &str, problem: &str| Err(PlanError::of_key(key, problem));
        match self.peer {
            Peer::Auto | Peer::Kagiri => Ok(()),
            _ if self.host.is_none() => refuse("peer", "needs a running server: set `host`"),
            Peer::Iperf3 | Peer::Ttcp if self.protocol == Protocol::Quic => {
                refuse("protocol", "QUIC needs a server of kagiri")
            }
            Peer::Iperf3 | Peer::Ttcp if self.under_load.is_some() => {
                refuse("under_load", "needs a server of kagiri, which answers requests")
            }
            Peer::Iperf3 if self.requests.is_some() => refuse("requests", "iperf3 does not support requests"),
            Peer::Iperf3 => Ok(()),
            Peer::Ttcp => self.check_ttcp(),
        }
    }

    /// ttcp negotiates nothing: settings that cannot apply are errors instead of being ignored.
    fn check_ttcp(&self) -> Result<(), PlanError> {
        let buffers = "not supported with ttcp, which uses the kernel's automatic buffers";
        let is_controlled = self.congestion_control.is_some();
        refuse_set(&[
            ("direction", self.direction == Direction::Both, "ttcp sends in one direction: up or down"),
            ("flows", self.flows > 1, "ttcp has one flow"),
            ("requests", self.requests.is_some(), "ttcp does not support requests"),
            ("omit", self.omit > Span::from_ms(0), "ttcp counts from the first byte"),
            ("calls", self.calls, "needs a server of kagiri"),
            ("engine", self.engine.is_some(), "not supported with ttcp"),
            ("threads", self.threads > 1, "ttcp has one flow"),
            ("congestion_control", is_controlled, "not supported with ttcp, which uses the host's default"),
            ("no_delay", self.no_delay, "ttcp sends blocks, not messages"),
            ("window", self.window.is_some(), buffers),
            ("send_buffer", self.send_buffer.is_some(), buffers),
            ("receive_buffer", self.receive_buffer.is_some(), buffers),
        ])
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_are_valid_and_complete() {
        assert_eq!(TransferSettings::read(json!({})).unwrap(), TransferSettings::default());
    }

    #[test]
    fn read_rejects_wrong_settings_and_names_the_key() {
        for (settings, part) in [
            (json!({"flow": 2}), "flow: unknown key; did you mean 'flows'?"),
            (json!({"flows": 0}), "flows: 0 is not within"),
            (json!({"protocol": "sctp"}), "unknown variant `sctp`"),
            (json!({"protocol": "udp", "size": "64KiB"}), "size: 64KiB is not within 16B to 65507B"),
            (json!({"size": "-1B"}), "size"),
            (json!({"search": {}}), "search: needs the protocol udp"),
            (
                json!({"protocol": "udp", "search": {}, "rate": "1Gbit/s"}),
                "search: not supported with `rate`",
            ),
            (json!({"requests": {}, "direction": "down"}), "direction: not supported with requests"),
            (json!({"requests": {"rate_per_s": -1.0}}), "requests.rate_per_s"),
            (json!({"under_load": "2s", "bytes": "1MiB"}), "bytes: not supported with `under_load`"),
            (json!({"under_load": "2s", "protocol": "udp"}), "rate: a load of UDP needs a rate"),
            (json!({"under_load": "2s", "protocol": "quic"}), "under_load: not supported with QUIC"),
            (json!({"under_load": "2s", "host": "nas", "peer": "iperf3"}), "under_load: needs a server of"),
            (json!({"under_load": "31s"}), "under_load: 31s is not within"),
            (json!({"peer": "iperf3"}), "peer: needs a running server"),
            (json!({"host": "nas", "peer": "ttcp", "flows": 2}), "flows: ttcp has one flow"),
            (json!({"host": "nas", "peer": "ttcp", "omit": "1s"}), "omit: ttcp counts"),
            (json!({"host": "nas", "peer": "ttcp", "window": "1MiB"}), "window: not supported with ttcp"),
            (json!({"protocol": "udp", "no_delay": true}), "no_delay: it applies only to TCP"),
            (json!({"protocol": "udp", "engine": "splice"}), "engine: engines apply only to TCP"),
            (
                json!({"protocol": "udp", "requests": {"size": "64KiB"}}),
                "requests.size: 64KiB is not within 1B to 65507B",
            ),
            (json!({"protocol": "quic", "window": "1GiB"}), "window: 1GiB is not within 1KiB to 256MiB"),
            (json!({"threads": 1025}), "threads: 1025 is not within"),
            (json!({"time": "0s"}), "time: 0s is not within 100ms to 24h"),
            (json!({"protocol": "quic", "flows": 1001}), "flows: 1001 is not within 1 to 1000"),
            (json!({"protocol": "quic", "size": "1MiB"}), "size: 1MiB is not within"),
            (json!({"protocol": "quic", "requests": {}}), "requests: not supported with QUIC"),
            (json!({"protocol": "quic", "rate": "1Gbit/s"}), "rate: not supported with QUIC"),
            (json!({"protocol": "quic", "mode": "discard"}), "mode: discard is not supported with QUIC"),
            (json!({"protocol": "quic", "search": {}}), "search: "),
            (json!({"protocol": "quic", "calls": true}), "calls: not supported with QUIC"),
            (
                json!({"protocol": "quic", "host": "nas", "peer": "iperf3"}),
                "protocol: QUIC needs a server of kagiri",
            ),
        ] {
            let message = TransferSettings::read(settings.clone()).unwrap_err().to_string();
            assert!(message.contains(part), "{settings}: {message}");
        }
    }
}
