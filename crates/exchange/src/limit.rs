//! Where the response time of a class went, and what limited it. Pure.

use base::format::quantity;
use base::limit_rules::{CEILING, LimitRule, WAITING};
use base::outcome::{Certainty, Evidence, Limit, Resource};

use crate::metrics::delivered_bit_per_s;
use crate::presentation::{SEND_BUFFER, SERVER_TIME, WINDOW};
use crate::report::{BackgroundReport, ClassReport, ClientsReport};
use crate::settings::ExchangeSettings;

/// More than half of the response time.
const MOST: LimitRule = WAITING;
/// A full segment of TCP over IPv4 with timestamps, and with the headers of IPv4 and Ethernet.
const SEGMENT_BYTES: (f64, f64) = (1448.0, 1514.0);

/// Shares of the response time; they add up to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shares {
    pub wait: f64,
    pub connect: f64,
    pub write: f64,
    /// With the server's time, where that is not known.
    pub network: f64,
    pub server: f64,
}

impl Shares {
    pub fn of(class: &ClassReport) -> Option<Self> {
        let parts = [class.wait_ns, class.connect_ns, class.write_ns, class.network_ns, class.server_ns];
        let sum: u64 = parts.iter().sum();
        let [wait, connect, write, network, server] = parts.map(|ns| ns as f64 / sum.max(1) as f64);
        (sum > 0).then_some(Self { wait, connect, write, network, server })
    }

    fn sentence(&self, class: &ClassReport) -> String {
        let knows_server = class.server.is_some();
        let named = [
            ("waiting for earlier messages", self.wait),
            ("connecting", self.connect),
            ("write()", self.write),
            (if knows_server { "the network" } else { "network and server" }, self.network),
            ("the server", self.server),
        ];
        let known = named.iter().filter(|(_, share)| *share >= 0.001);
        let parts: Vec<String> = known.map(|(name, share)| format!("{} {name}", percent(*share))).collect();
        format!("of the response time: {}", parts.join(", "))
    }
}

fn percent(share: f64) -> String {
    quantity(Some(100.0 * share), "%")
}

fn ms(value: Option<f64>) -> String {
    quantity(value.map(|ms| ms / 1e3), "s")
}

/// What limited the response time of `class`.
pub fn of(
    settings: &ExchangeSettings,
    report: &ClientsReport,
    class: &ClassReport,
    background: Option<&BackgroundReport>,
) -> Option<Limit> {
    let shares = Shares::of(class)?;
    let (resource, certainty, first) = cause(settings, report, class, background, shares);
    let mut evidence = vec![first];
    let counted = |statement: String| Evidence::counted(resource, statement);
    evidence.push(
        counted(shares.sentence(class))
            .with("write_percent", 100.0 * shares.write)
            .with("network_percent", 100.0 * shares.network)
            .with("server_percent", 100.0 * shares.server),
    );
    evidence.extend(waits_sentence(class).map(counted));
    if resource != Resource::Network {
        evidence.extend(
            link_share(settings, report, background)
                .map(|share| counted(format!("{} of the link's rate was used", percent(share)))),
        );
    }
    Some(Limit { resource, certainty, evidence })
}

fn cause(
    settings: &ExchangeSettings,
    report: &ClientsReport,
    class: &ClassReport,
    background: Option<&BackgroundReport>,
    shares: Shares,
) -> (Resource, Certainty, Evidence) {
    let waits = &class.waits;
    let of_busy = |us: u64| us as f64 / waits.busy_us.max(1) as f64;
    let of_path = shares.wait + shares.connect + shares.write + shares.network;
    let counted = |resource, statement: String| {
        (resource, Certainty::Confirmed, Evidence::counted(resource, statement))
    };
    if MOST.is_used_up(shares.server) {
        let mean = ms(class.mean_ms(class.server_ns));
        let statement =
            format!("the server took {mean} of {} per message, as it reports", ms(class.response_mean_ms()));
        return counted(Resource::Workload(&SERVER_TIME), statement);
    }
    if let Some(share) = link_share(settings, report, background).filter(|share| CEILING.is_used_up(*share)) {
        let statement =
            format!("the link is full: messages and background used {} of its rate", percent(share));
        let evidence =
            Evidence::counted(Resource::Network, statement).with(Limit::LINK_PERCENT, 100.0 * share);
        return (Resource::Network, Certainty::Confirmed, evidence);
    }
    if class.server.is_none() && is_idle(class) {
        let resource = Resource::Workload(&SERVER_TIME);
        let mean = ms(class.mean_ms(class.network_ns));
        let statement = format!(
            "connections had nothing in flight most of the {mean} that a reply took: the server, or the way \
             back from it, did"
        );
        return (resource, Certainty::Predicted, Evidence::inferred(resource, statement));
    }
    for (spec, us, what) in [
        (&SEND_BUFFER, waits.sndbuf_limited_us, "the send buffer was too small"),
        (&WINDOW, waits.rwnd_limited_us, "the receiver's window was full"),
    ] {
        let share = of_busy(us);
        if WAITING.is_used_up(share) && MOST.is_used_up(of_path) {
            let statement = format!("{what} for {} of the time with data in flight", percent(share));
            return counted(Resource::Workload(spec), statement);
        }
    }
    let resource = Resource::Network;
    if report.server.parse::<std::net::SocketAddr>().is_ok_and(|server| server.ip().is_loopback()) {
        let statement = "both ends are on one host, without a link, and share its CPUs".to_owned();
        let evidence = Evidence::inferred(Resource::None, statement);
        return (Resource::None, Certainty::Unknown, evidence);
    }
    let of_path = percent(of_path);
    let statement = match class.server {
        Some(_) => format!(
            "neither end held messages back, which spent {of_path} of their response time on the path: its \
             rate, delay, losses or other traffic did"
        ),
        None => format!(
            "the clients did not hold messages back, which spent {of_path} of their response time on the \
             path and in the server, which reports no time"
        ),
    };
    (resource, Certainty::Predicted, Evidence::inferred(resource, statement))
}

/// Whether connections had nothing in flight for most of the time in which replies were waited for.
fn is_idle(class: &ClassReport) -> bool {
    // Requests on the streams of a connection wait at the same time.
    let at_once = class.streams.unwrap_or(1).max(1) as f64;
    let waited_us = (class.write_ns + class.network_ns) as f64 / 1e3 / at_once;
    (class.waits.busy_us as f64) < 0.5 * waited_us
}

/// The share of the link's rate that messages and background used together. `None`: the link's rate is not
/// known, or only replies have bodies, whose sizes are not counted.
pub(crate) fn link_share(
    settings: &ExchangeSettings,
    report: &ClientsReport,
    background: Option<&BackgroundReport>,
) -> Option<f64> {
    let link = settings.link.filter(|_| settings.sends_bodies())?.bit_per_s() as f64;
    let hold_s = (report.hold_s.1 - report.hold_s.0).max(1e-3);
    let bytes: u64 = report.classes.iter().map(|class| class.bytes).sum();
    let messages = bytes as f64 * 8.0 / hold_s * SEGMENT_BYTES.1 / SEGMENT_BYTES.0;
    let other = background.and_then(delivered_bit_per_s).unwrap_or(0.0) * SEGMENT_BYTES.1 / 1472.0;
    Some((messages + other) / link)
}

fn waits_sentence(class: &ClassReport) -> Option<String> {
    let waits = &class.waits;
    let share = |us: u64| percent(us as f64 / waits.busy_us as f64);
    (waits.busy_us > 0).then(|| {
        format!(
            "with data in flight, the receive window limited {} of the time, the send buffer {}; {} segments \
             were retransmitted",
            share(waits.rwnd_limited_us),
            share(waits.sndbuf_limited_us),
            waits.retransmits
        )
    })
}

#[cfg(test)]
mod tests {
    use base::histogram::Histogram;
    use base::units::BitRate;

    use super::*;
    use crate::report::Waits;

    fn class(write_ms: u64, network_ms: u64, server_ms: u64) -> ClassReport {
        let mut class = ClassReport { answered: 1, bytes: 250_000, ..ClassReport::default() };
        (class.write_ns, class.network_ns, class.server_ns) =
            (write_ms * 1_000_000, network_ms * 1_000_000, server_ms * 1_000_000);
        class.server = Some(Histogram::default());
        class.waits = Waits { busy_us: 1000 * (write_ms + network_ms), ..Waits::default() };
        class
    }

    fn limit(class: ClassReport, settings: &ExchangeSettings) -> Limit {
        let report = ClientsReport {
            classes: vec![class.clone()],
            hold_s: (0.0, 1.0),
            server: "10.0.0.2:1".to_owned(),
            ..ClientsReport::default()
        };
        of(settings, &report, &class, None).unwrap()
    }

    #[test]
    fn part_that_took_most_of_the_time_is_the_limit() {
        let plain = ExchangeSettings::default();
        let slow_server = limit(class(1, 4, 50), &plain);
        assert_eq!(slow_server.resource, Resource::Workload(&SERVER_TIME));
        assert!(slow_server.evidence[0].statement.contains("50 ms of 55 ms"), "{slow_server:?}");
        let mut small_buffer = class(90, 10, 1);
        small_buffer.waits.sndbuf_limited_us = 90_000;
        let found = limit(small_buffer, &plain);
        assert_eq!(
            (found.resource, found.certainty),
            (Resource::Workload(&SEND_BUFFER), Certainty::Confirmed)
        );
        let path = limit(class(90, 10, 1), &plain);
        assert_eq!((path.resource, path.certainty), (Resource::Network, Certainty::Predicted));
    }

    #[test]
    fn full_link_is_confirmed_where_its_rate_is_known() {
        let settings = ExchangeSettings {
            link: Some(BitRate::from_bit_per_s(2_100_000)),
            ..ExchangeSettings::default()
        };
        let full = limit(class(90, 10, 1), &settings);
        assert_eq!((full.resource, full.certainty), (Resource::Network, Certainty::Confirmed));
        assert!(full.evidence[0].values.contains_key(Limit::LINK_PERCENT), "{full:?}");
    }

    #[test]
    fn link_share_of_requests_without_a_body_is_unknown() {
        let link = Some(BitRate::from_bit_per_s(2_000_000));
        let get =
            ExchangeSettings { link, host: Some("http://h/".to_owned()), ..ExchangeSettings::default() };
        let http = crate::settings::HttpSettings { body: Some("file".to_owned()), ..get.http.clone() };
        let report = ClientsReport { hold_s: (0.0, 1.0), ..ClientsReport::default() };
        assert_eq!(link_share(&get, &report, None), None);
        assert_eq!(link_share(&ExchangeSettings { http, ..get }, &report, None), Some(0.0));
    }

    #[test]
    fn requests_that_share_a_connection_wait_at_the_same_time() {
        let mut http = class(1, 99, 0);
        (http.server, http.streams, http.waits.busy_us) = (None, Some(10), 9_000);
        let found = limit(http, &ExchangeSettings::default());
        assert_eq!(found.resource, Resource::Network);
        assert!(found.evidence[0].statement.contains("which reports no time"), "{found:?}");
    }

    #[test]
    fn silent_server_is_the_limit_where_nothing_was_in_flight() {
        let mut http = class(1, 99, 0);
        http.server = None;
        http.waits.busy_us = 3_000;
        let found = limit(http, &ExchangeSettings::default());
        assert_eq!(
            (found.resource, found.certainty),
            (Resource::Workload(&SERVER_TIME), Certainty::Predicted)
        );
    }
}
