//! Explains why zenoh could not connect: its errors say "Unable to connect" only, but its log has the
//! reason. A `tracing` layer keeps the last lines, and [`explain`] translates them.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::Registry;

const LINES_MAX: usize = 8;
/// Cut longer lines, which can contain text of peers.
const LINE_CHARACTERS_MAX: usize = 1000;
/// Begins the acceptor's lines in the log; the address of the other side follows.
pub(crate) const LISTENER_LOG: &str = "refused ";
/// The module that writes about secured links.
const TUNNEL: &str = "fleet::tunnel";
/// The only source of zenoh's messages about rejected passwords, at debug level.
const ACCEPTING: &str = "zenoh_transport::unicast::establishment::accept";

/// The last warnings and errors of zenoh: distinct lines, newest last.
#[derive(Debug, Clone, Default)]
pub struct ZenohLog(Arc<Mutex<VecDeque<String>>>);

impl ZenohLog {
    /// Captures zenoh's log in the whole process from the first call on. `None` if the process has another
    /// log subscriber.
    pub fn of_process() -> Option<Self> {
        static OF_PROCESS: OnceLock<Option<ZenohLog>> = OnceLock::new();
        let begin = || {
            let reasons = ZenohLog::default();
            let subscriber = Registry::default().with(reasons.clone());
            tracing::subscriber::set_global_default(subscriber).ok().map(|()| reasons)
        };
        OF_PROCESS.get_or_init(begin).clone()
    }

    pub fn take(&self) -> Vec<String> {
        self.lines().drain(..).collect()
    }

    fn lines(&self) -> std::sync::MutexGuard<'_, VecDeque<String>> {
        // A panic elsewhere cannot damage the list.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, line: &str) {
        let line: String = without_source_locations(line).chars().take(LINE_CHARACTERS_MAX).collect();
        let mut lines = self.lines();
        lines.retain(|kept| *kept != line);
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}

impl<S: Subscriber> Layer<S> for ZenohLog {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        match *metadata.level() {
            Level::ERROR | Level::WARN => {
                metadata.target().starts_with("zenoh") || metadata.target().starts_with(TUNNEL)
            }
            Level::DEBUG => metadata.target() == ACCEPTING,
            _ => false,
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        let is_kept = *event.metadata().level() != Level::DEBUG || line.0.contains("UsrPwd");
        // This line follows others with the reason.
        if is_kept && !line.0.starts_with("Unable to connect to any of") {
            self.keep(&line.0);
        }
    }
}

/// The message of an event, followed by its other fields.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

/// Text of rustls or zenoh, the side that logs it, and its meaning.
const EXPLANATIONS: [(&str, Side, &str); 36] = [
    (
        "certificate not valid for name",
        Side::Joins,
        "the coordinator's certificate is not for the name it was joined by; join by one of its names, or \
         renew it: kagiri fleet init DIR --coordinator NAME,ADDRESS --replace",
    ),
    (
        "peer certificate: UnknownIssuer",
        Side::Joins,
        "the coordinator's certificate was not issued by this fleet's authority (ca.pem): coordinator and \
         bundle are of different fleets",
    ),
    (
        "peer certificate: BadSignature",
        Side::Joins,
        "the coordinator's certificate is a forgery: its signature is wrong",
    ),
    (
        "extended key usage for server",
        Side::Joins,
        "the listener has an agent's certificate: it is not a coordinator",
    ),
    (
        "peer certificate: certificate expired",
        Side::Joins,
        "the coordinator's certificate has expired, or this host's clock is ahead",
    ),
    (
        "peer certificate: certificate not valid yet",
        Side::Joins,
        "the coordinator's certificate is not valid yet: this host's clock is behind by more than a day",
    ),
    (
        "peer certificate: Revoked",
        Side::Joins,
        "the coordinator's certificate was revoked: do not join it, or copy its new bundle to it",
    ),
    (
        "fatal alert: UnknownCA",
        Side::Joins,
        "the coordinator refused this host's certificate: the authority of its fleet did not issue it",
    ),
    (
        "fatal alert: CertificateRequired",
        Side::Joins,
        "the coordinator wants a certificate, and these credentials have none: they are of another fleet, or \
         of one with passwords",
    ),
    (
        "fatal alert: CertificateExpired",
        Side::Joins,
        "the coordinator refused this host's certificate: it has expired, or the coordinator's clock is \
         ahead",
    ),
    (
        "fatal alert: CertificateRevoked",
        Side::Joins,
        "the coordinator refused this host's certificate: it was revoked; make a new bundle with 'kagiri \
         fleet init DIR --host NAME --replace'",
    ),
    ("fatal alert: ProtocolVersion", Side::Joins, "the listener does not use TLS 1.3"),
    ("fatal alert:", Side::Joins, "the coordinator refused this host's certificate"),
    (
        "not in the coordinator's list",
        Side::Joins,
        "the coordinator's list of members does not contain this host; copy the coordinator's bundle again",
    ),
    (
        "too many links",
        Side::Joins,
        "too many agents use this host's name: end them, or make a bundle for each",
    ),
    (
        "in response to an OpenSyn",
        Side::Joins,
        "the coordinator refused this host's name or password: the fleet's list (users) differs",
    ),
    (
        "in response to an InitSyn",
        Side::Joins,
        "the coordinator wants a password, and these credentials have none",
    ),
    ("Connection refused", Side::Joins, "nothing listens there; is the coordinator running?"),
    ("failed to lookup address", Side::Joins, "the coordinator's name cannot be resolved"),
    (
        "No such file or directory",
        Side::Joins,
        "nothing listens there: the socket or a file of the credentials is missing",
    ),
    ("handshake eof", Side::Joins, "the listener does not use TLS"),
    (
        "early eof",
        Side::Joins,
        "the listener closed the connection at once: it requires TLS, or is not a coordinator",
    ),
    ("deadline has elapsed", Side::Joins, "the listener does not respond"),
    ("timed out", Side::Joins, "the listener does not respond"),
    (
        "UsrPwd extension",
        Side::Listens,
        "a host tried to join without a name and password of this fleet, or with wrong ones",
    ),
    (
        "peer certificate: UnknownIssuer",
        Side::Listens,
        "a host tried to join with a certificate of another authority",
    ),
    (
        "peer certificate: certificate expired",
        Side::Listens,
        "a host tried to join with an expired certificate, or this host's clock is ahead",
    ),
    (
        "peer certificate: certificate not valid yet",
        Side::Listens,
        "a host tried to join with a certificate that is not valid yet: this host's clock is behind",
    ),
    ("peer sent no certificates", Side::Listens, "a host tried to join without a certificate"),
    (
        "fatal alert: CertificateRevoked",
        Side::Listens,
        "a host refused this coordinator's certificate: it was revoked; make a new one with 'kagiri fleet \
         init DIR --coordinator NAME --replace'",
    ),
    (
        "fatal alert:",
        Side::Listens,
        "a host did not trust this coordinator's certificate: the host's bundle is of another fleet, or has \
         expired",
    ),
    ("peer certificate: Revoked", Side::Listens, "a host tried to join with a revoked certificate"),
    (
        "not in the list of members",
        Side::Listens,
        "a host tried to join that is not in this coordinator's list of members; copy the coordinator's \
         bundle again",
    ),
    ("links already", Side::Listens, "too many agents use one host's name"),
    (
        "not this version's protocol",
        Side::Listens,
        "a host of another version tried to join; install the same kagiri on both",
    ),
    ("corrupt message", Side::Listens, "a host connected without TLS"),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Joins,
    Listens,
}

/// Removes locations in zenoh's source, which contain paths of the build machine.
pub(crate) fn without_source_locations(line: &str) -> String {
    let is_place = |word: &str| {
        word.trim_end_matches(['.', ']'])
            .rsplit_once(".rs:")
            .is_some_and(|(_, number)| number.parse::<u32>().is_ok())
    };
    let mut words: Vec<&str> = Vec::new();
    for word in line.split_whitespace() {
        match is_place(word) && words.last() == Some(&"at") {
            true => drop(words.pop()),
            false => words.push(word),
        }
    }
    words.join(" ")
}

pub fn explain(lines: &[String]) -> Option<String> {
    lines.iter().rev().find_map(|line| {
        let refused = line.strip_prefix(LISTENER_LOG);
        let side = if refused.is_some() || line.contains("UsrPwd") { Side::Listens } else { Side::Joins };
        let found = EXPLANATIONS.iter().find(|(words, of, _)| *of == side && line.contains(words));
        let peer = refused.and_then(|refused| refused.split_once(": ")).map(|(peer, _)| peer);
        found.map(|(.., meaning)| match peer {
            Some(peer) => format!("{meaning} (from {peer})"),
            None => (*meaning).to_owned(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_keeps_distinct_lines_without_source_locations() {
        let reasons = ZenohLog::default();
        for port in 0..20 {
            reasons.keep(&format!("no link to {port} at /home/x/zenoh-1.10.2/src/a.rs:7.] at src/b.rs:12."));
            reasons.keep("again");
        }
        let lines = reasons.take();
        assert_eq!(lines.len(), LINES_MAX);
        assert_eq!(lines[LINES_MAX - 2..], ["no link to 19", "again"]);
        assert!(reasons.take().is_empty());
        reasons.keep(&"ä".repeat(2 * LINE_CHARACTERS_MAX));
        assert_eq!(reasons.take()[0].chars().count(), LINE_CHARACTERS_MAX);
    }

    #[test]
    fn newest_known_line_is_explained() {
        let explain = |lines: &[&str]| explain(&lines.iter().map(ToString::to_string).collect::<Vec<_>>());
        let explained = explain(&[
            "x: Connection refused (os error 111)",
            "invalid peer certificate: UnknownIssuer",
            "what?",
        ]);
        assert!(explained.unwrap().contains("not issued by this fleet's authority (ca.pem)"));
        let explained = explain(&["refused 192.0.2.7: invalid peer certificate: UnknownIssuer"]).unwrap();
        assert!(explained.starts_with("a host tried to join"), "{explained}");
        assert!(explained.ends_with("(from 192.0.2.7)"), "{explained}");
        assert_eq!(explain(&["what?"]), None);
    }
}
