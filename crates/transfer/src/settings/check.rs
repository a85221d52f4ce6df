//! Which settings fit together.

use base::plan::PlanError;
use base::units::{ByteSize, Span};

use super::{Peer, TransferSettings};
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

impl Settings for TransferSettings {
    fn check(&self) -> Result<(), PlanError> {
        let (least, most, words) = match self.protocol {
            Protocol::Tcp => (1, 64 << 20, "1B to 64MiB"),
            Protocol::Udp => {
                (DATAGRAM_BYTES_MIN, DATAGRAM_BYTES_MAX, "16B to 65507B, the most that a datagram carries")
            }
            Protocol::Quic => (1, 128 << 10, "1B to 128KiB, the most that a stream is given at once"),
        };
        within("size", ByteSize::from_bytes(self.size_bytes()), least, most, words)?;
        self.check_buffers()?;
        self.check_quic()?;
        self.check_udp()?;
        self.check_requests()?;
        self.check_search()?;
        self.check_peer()
    }
}

impl TransferSettings {
    fn check_buffers(&self) -> Result<(), PlanError> {
        let (most, words) = match self.protocol {
            Protocol::Quic => (QUIC_WINDOW_BYTES_MAX, "1KiB to 256MiB, the most that a window of QUIC holds"),
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

    /// What is TCP's has no meaning for datagrams.
    fn check_udp(&self) -> Result<(), PlanError> {
        for (key, is_set, problem) in [
            ("engine", self.engine.is_some(), "these engines are TCP's"),
            ("congestion_control", self.congestion_control.is_some(), "datagrams know none"),
            ("no_delay", self.no_delay, "it is an option of TCP's sockets"),
        ] {
            if is_set && self.protocol == Protocol::Udp {
                return Err(PlanError::of_key(key, problem));
            }
        }
        Ok(())
    }

    /// QUIC works in this program, on one thread, as its library does it.
    fn check_quic(&self) -> Result<(), PlanError> {
        if self.protocol != Protocol::Quic {
            return Ok(());
        }
        if self.flows > quic::FLOWS_MAX.into() {
            let problem = format!("{} is not within 1 to {} flows of QUIC", self.flows, quic::FLOWS_MAX);
            return Err(PlanError::of_key("flows", problem));
        }
        for (key, is_set, problem) in [
            ("requests", self.requests.is_some(), "QUIC carries streams of bytes, no requests and answers"),
            ("rate", self.rate.is_some(), "QUIC sends as fast as its congestion control lets it"),
            (
                "mode",
                self.mode == Mode::Discard,
                "QUIC has to decrypt what comes: nothing can be discarded unread",
            ),
            ("engine", self.engine.is_some(), "these engines are TCP's"),
            ("threads", self.threads > 1, "one thread carries all flows of QUIC"),
            ("congestion_control", self.congestion_control.is_some(), "QUIC does not use the kernel's"),
            ("no_delay", self.no_delay, "it is an option of TCP's sockets"),
            (
                "calls",
                self.calls,
                "QUIC's calls to the kernel are made by its library, which does not time them",
            ),
        ] {
            if is_set {
                return Err(PlanError::of_key(key, problem));
            }
        }
        Ok(())
    }

    fn check_requests(&self) -> Result<(), PlanError> {
        let Some(requests) = &self.requests else { return Ok(()) };
        let (most, words) = match self.protocol {
            Protocol::Udp => (DATAGRAM_BYTES_MAX, "1B to 65507B, the most that a datagram carries"),
            Protocol::Tcp | Protocol::Quic => (MESSAGE_BYTES_MAX, "1B to 16MiB"),
        };
        for (key, size) in
            [("requests.size", Some(requests.size)), ("requests.answer_size", requests.answer_size)]
        {
            if let Some(size) = size {
                within(key, size, 1, most, words)?;
            }
        }
        for (key, is_set) in [
            ("bytes", self.bytes.is_some()),
            ("rate", self.rate.is_some()),
            ("search", self.search.is_some()),
            ("direction", self.direction != Direction::Up),
        ] {
            if is_set {
                return Err(PlanError::of_key(key, "has no meaning for requests and answers"));
            }
        }
        if self.mode == Mode::Discard {
            return Err(PlanError::of_key(
                "mode",
                "requests and answers are read: there is nothing to discard",
            ));
        }
        Ok(())
    }

    fn check_search(&self) -> Result<(), PlanError> {
        if self.search.is_none() {
            return Ok(());
        }
        if self.protocol != Protocol::Udp {
            let problem = "TCP finds its own rate; only for datagrams (protocol = \"udp\") it is searched";
            return Err(PlanError::of_key("search", problem));
        }
        if self.rate.is_some() || self.bytes.is_some() {
            return Err(PlanError::of_key(
                "search",
                "it chooses the rate for a time: leave `rate` and `bytes` out",
            ));
        }
        Ok(())
    }

    fn check_peer(&self) -> Result<(), PlanError> {
        let refuse = |key: &str, problem: &str| Err(PlanError::of_key(key, problem));
        match self.peer {
            Peer::Auto | Peer::Kagiri => Ok(()),
            _ if self.host.is_none() => {
                refuse("peer", "there is no server of that kind unless `host` names it")
            }
            Peer::Iperf3 | Peer::Ttcp if self.protocol == Protocol::Quic => {
                refuse("protocol", "only servers of kagiri speak QUIC here")
            }
            Peer::Iperf3 if self.requests.is_some() => {
                refuse("requests", "iperf3 knows no requests and answers")
            }
            Peer::Iperf3 => Ok(()),
            Peer::Ttcp => self.check_ttcp(),
        }
    }

    /// A ttcp is told nothing, and this end does as it does: nothing is passed over in silence.
    fn check_ttcp(&self) -> Result<(), PlanError> {
        for (key, is_set, problem) in [
            ("direction", self.direction == Direction::Both, "ttcp sends one way: up or down"),
            ("flows", self.flows > 1, "ttcp has one flow"),
            ("requests", self.requests.is_some(), "ttcp knows no requests and answers"),
            ("omit", self.omit > Span::from_ms(0), "ttcp counts from the first byte"),
            ("calls", self.calls, "calls are timed between ends of kagiri"),
            ("engine", self.engine.is_some(), "one is chosen for a ttcp"),
            ("threads", self.threads > 1, "ttcp has one flow"),
            ("congestion_control", self.congestion_control.is_some(), "the host's own is used for a ttcp"),
            ("no_delay", self.no_delay, "ttcp sends blocks, not messages"),
            ("window", self.window.is_some(), "the kernel's automatic buffers are used for a ttcp"),
            ("send_buffer", self.send_buffer.is_some(), "the kernel's automatic buffers are used for a ttcp"),
            (
                "receive_buffer",
                self.receive_buffer.is_some(),
                "the kernel's automatic buffers are used for a ttcp",
            ),
        ] {
            if is_set {
                return Err(PlanError::of_key(key, problem));
            }
        }
        Ok(())
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
            (json!({"flow": 2}), "flow: unknown key; expected one of host, peer"),
            (json!({"flows": 0}), "flows: 0 is not within"),
            (json!({"protocol": "sctp"}), "unknown variant `sctp`"),
            (json!({"protocol": "udp", "size": "64KiB"}), "size: 64KiB is not within 16B to 65507B"),
            (json!({"size": "-1B"}), "size"),
            (json!({"search": {}}), "TCP finds its own rate"),
            (json!({"protocol": "udp", "search": {}, "rate": "1Gbit/s"}), "search: it chooses the rate"),
            (json!({"requests": {}, "direction": "down"}), "direction: has no meaning"),
            (json!({"requests": {"rate_per_s": -1.0}}), "requests.rate_per_s"),
            (json!({"peer": "iperf3"}), "peer: there is no server"),
            (json!({"host": "nas", "peer": "ttcp", "flows": 2}), "flows: ttcp has one flow"),
            (json!({"host": "nas", "peer": "ttcp", "omit": "1s"}), "omit: ttcp counts"),
            (json!({"host": "nas", "peer": "ttcp", "window": "1MiB"}), "window: the kernel's"),
            (json!({"protocol": "udp", "no_delay": true}), "no_delay: it is an option of TCP's"),
            (json!({"protocol": "udp", "engine": "splice"}), "engine: these engines are TCP's"),
            (
                json!({"protocol": "udp", "requests": {"size": "64KiB"}}),
                "requests.size: 64KiB is not within 1B to 65507B",
            ),
            (json!({"protocol": "quic", "window": "1GiB"}), "window: 1GiB is not within 1KiB to 256MiB"),
            (json!({"threads": 1025}), "threads: 1025 is not within"),
            (json!({"time": "0s"}), "time: 0s is not within 100ms to 24h"),
            (json!({"protocol": "quic", "flows": 1001}), "flows: 1001 is not within 1 to 1000"),
            (json!({"protocol": "quic", "size": "1MiB"}), "size: 1MiB is not within"),
            (json!({"protocol": "quic", "requests": {}}), "requests: QUIC carries streams"),
            (json!({"protocol": "quic", "rate": "1Gbit/s"}), "rate: QUIC sends"),
            (json!({"protocol": "quic", "mode": "discard"}), "mode: QUIC has to decrypt"),
            (json!({"protocol": "quic", "search": {}}), "search: "),
            (json!({"protocol": "quic", "calls": true}), "calls: QUIC's calls"),
            (
                json!({"protocol": "quic", "host": "nas", "peer": "iperf3"}),
                "protocol: only servers of kagiri",
            ),
        ] {
            let message = TransferSettings::read(settings.clone()).unwrap_err().to_string();
            assert!(message.contains(part), "{settings}: {message}");
        }
    }
}
