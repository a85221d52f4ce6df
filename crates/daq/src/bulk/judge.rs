//! From the reports of both ends to the rate and what limits it. Pure.

use base::format::{number, plural, quantity};
use base::limit_rules::THREAD;
use base::metric::Metrics;
use base::outcome::{Account, Certainty, Evidence, Limit, Resource};
use base::series::Series;
use base::verdict::Verdict;
use base::workload::Judgement;

use super::{Received, Sent, ThreadTimes};
use crate::doubt::DaqDoubt;
use crate::metrics::SOURCES_NAMED_MAX;
use crate::settings::DaqSettings;

/// Bytes of a full packet with the headers that a port counts (Ethernet's 14), and of its payload (TCP with
/// timestamps).
const PACKET_BYTES: f64 = 1514.0;
const PAYLOAD_BYTES: f64 = 1448.0;

/// What came of a trial.
#[must_use]
pub fn judge(settings: &DaqSettings, received: &Received, sent: &[Sent]) -> Judgement {
    let (from_s, to_s) = received.hold_s;
    let bytes: u64 = received.bytes.iter().map(|(_, bytes)| bytes).sum();
    let broke_off = received.broke_off.iter().chain(sent.iter().filter_map(|one| one.broke_off.as_ref()));
    let broke_off = broke_off.min().map(|why| format!("the transfer broke off: {why}"));
    let is_measured = to_s > from_s && broke_off.is_none() && !received.ended_early;
    let goodput = is_measured.then(|| bytes as f64 * 8.0 / (to_s - from_s));
    let mut reasons: Vec<String> = broke_off.clone().into_iter().collect();
    if received.ended_early {
        reasons.push("the trial was ended before its time".to_owned());
    }
    let verdict = match goodput {
        None => Verdict::Invalid,
        Some(rate) if rate > 0.0 => Verdict::Pass,
        Some(_) => {
            reasons.push("nothing arrived".to_owned());
            Verdict::Fail
        }
    };
    let link = settings.link.map(|link| link.bit_per_s() as f64).or(received.link_bit_per_s);
    let senders = sent.iter().fold(ThreadTimes::default(), |all, one| all.busiest(one.threads));
    let link_share = goodput.zip(link).map(|(rate, link)| rate * PACKET_BYTES / PAYLOAD_BYTES / link);
    // The 10 Gbit/s of a veth pair are nominal: a share above 100 % means nothing.
    let link_share = link_share.filter(|share| !Resource::Network.rule().is_refuted(*share));
    let is_shared = sent.iter().any(|one| !one.boot.is_empty() && one.boot == received.boot);
    Judgement {
        reasons,
        metrics: metrics(settings, received, sent, goodput, link),
        series: series(received),
        doubts: is_shared.then(|| DaqDoubt::CpusShared.into()).into_iter().collect(),
        account: Account {
            headline: goodput.map(|rate| headline(settings, rate, link_share)),
            limit: goodput.map(|_| limit(link_share, received.threads, senders)),
            broke_off,
            ..Account::default()
        },
        ..Judgement::new(verdict, received.hold_s)
    }
}

/// `8 sources: 956 Mbit/s in bulk, 100 % of what the link can carry`.
fn headline(settings: &DaqSettings, rate: f64, link_share: Option<f64>) -> String {
    let share = link_share.map(|share| format!(", {:.0} % of what the link can carry", 100.0 * share));
    let rate = quantity(Some(rate), "bit/s");
    format!("{}: {rate} in bulk{}", plural(settings.sources, "source"), share.unwrap_or_default())
}

fn metrics(
    settings: &DaqSettings,
    received: &Received,
    sent: &[Sent],
    goodput: Option<f64>,
    link: Option<f64>,
) -> Metrics {
    let senders = sent.iter().fold(ThreadTimes::default(), |all, one| all.busiest(one.threads));
    let retransmits: Option<u64> = sent.iter().map(|one| one.retransmits).sum();
    let mut metrics: Metrics = [
        ("goodput_bit_per_s", goodput),
        ("link_bit_per_s", link),
        ("retransmits", retransmits.filter(|_| !sent.is_empty()).map(|count| count as f64)),
        ("builder_cpu_percent", received.threads.worked.map(|share| 100.0 * share)),
        ("player_cpu_percent", senders.worked.map(|share| 100.0 * share)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    if let Some(hold_s) = goodput.map(|_| received.hold_s.1 - received.hold_s.0)
        && (2..=SOURCES_NAMED_MAX).contains(&settings.sources)
    {
        metrics.extend(received.bytes.iter().map(|(source, bytes)| {
            (format!("source_{source}_goodput_bit_per_s"), Some(*bytes as f64 * 8.0 / hold_s))
        }));
    }
    metrics
}

fn series(received: &Received) -> Vec<Series> {
    let (from_s, to_s) = received.hold_s;
    let each_s = (to_s - from_s) / received.intervals.len().max(1) as f64;
    let mut goodput = Series::new("goodput_bit_per_s", "bit/s");
    for (at, bytes) in received.intervals.iter().enumerate().filter(|_| each_s > 0.0) {
        goodput.push(from_s + each_s * (at as f64 + 1.0), Some(*bytes as f64 * 8.0 / each_s));
    }
    vec![goodput]
}

fn limit(link_share: Option<f64>, receiver: ThreadTimes, senders: ThreadTimes) -> Limit {
    let is_busy = |times: ThreadTimes| times.taken.is_some_and(|share| THREAD.is_used_up(share));
    let is_full = link_share.is_some_and(|share| Resource::Network.rule().is_used_up(share));
    let (resource, certainty, statement) = match () {
        () if is_full => {
            (Resource::Network, Certainty::Confirmed, "the builder's port carries all that its rate allows")
        }
        () if is_busy(senders) => (
            Resource::Player,
            Certainty::Confirmed,
            "a thread that sends ran, or waited for a CPU, nearly all the time",
        ),
        () if is_busy(receiver) => (
            Resource::Cpu,
            Certainty::Confirmed,
            "a thread that receives ran, or waited for a CPU, nearly all the time",
        ),
        () => (Resource::None, Certainty::Unknown, "no measured resource was exhausted"),
    };
    let mut evidence = vec![Evidence::counted(resource, statement.to_owned())];
    if let Some(share) = link_share {
        evidence[0].values.extend(is_full.then(|| (Limit::LINK_PERCENT.to_owned(), 100.0 * share)));
        let text =
            format!("the payload, in full packets, takes {} % of the port's rate", number(100.0 * share));
        evidence.push(Evidence::counted(resource, text));
    }
    for (who, times) in [("sends", senders), ("receives", receiver)] {
        if let Some(worked) = times.worked {
            let text = format!("the busiest thread that {who} used {:.0} % of a core", 100.0 * worked);
            evidence.push(Evidence::counted(resource, text));
        }
    }
    Limit { resource, certainty, evidence }
}
