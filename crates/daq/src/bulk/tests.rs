use std::net::TcpStream;

use base::part::{Endpoints, HostContext};
use base::verdict::Verdict;
use serde_json::json;
use sys::clock::monotonic_ns;
use workload::part::{Part, Peers};

use super::*;
use crate::listen_addresses::PortPart;
use crate::part_settings::{BuilderTask, PortTask, SourcesTask};
use base::outcome::Resource;

fn settings(sources: u64, size: &str, time: &str) -> DaqSettings {
    let text = json!({ "pattern": "bulk", "sources": sources, "size": size, "time": time, "omit": "50ms" });
    DaqSettings::read(text).unwrap()
}

/// A trial on loopback, from the reservation of the port to both reports.
fn measured(settings: &DaqSettings, stranger: bool) -> (Received, Vec<Sent>) {
    let host = HostContext::here("/".into(), "/".into(), "/".into());
    let mut port = PortPart::new(PortTask { settings: settings.clone(), sources_elsewhere: false }).unwrap();
    let endpoint = port.prepare(&Peers::new(&Endpoints::new()), &host).unwrap();
    let endpoints: Endpoints = [("port".to_owned(), serde_json::to_value(&endpoint).unwrap())].into();
    let peers = Peers::new(&endpoints);
    let mut receiver = ReceiverPart::new(BuilderTask {
        settings: settings.clone(),
        port: "port".into(),
        builder_first: 0,
        builders_all: 1,
        seed: 1,
    })
    .unwrap();
    receiver.prepare(&peers, &host).unwrap();
    // A program that is no source takes no source's place.
    let stranger = stranger.then(|| {
        let mut stranger = TcpStream::connect(endpoint.addresses[0]).unwrap();
        std::io::Write::write_all(&mut stranger, b"GET / HTTP/1.1\r\n\r\n").unwrap();
        stranger
    });
    let mut senders = SendersPart::new(SourcesTask {
        settings: settings.clone(),
        ports: vec!["port".into()],
        source_first: 0,
        sources: settings.sources as u32,
        seed: 1,
    })
    .unwrap();
    senders.prepare(&peers, &host).unwrap();
    let start_ns = monotonic_ns() + 50_000_000;
    receiver.start(start_ns).unwrap();
    senders.start(start_ns).unwrap();
    let until_ns = start_ns + 10_000_000_000;
    let is_running = |receiver: &mut ReceiverPart, senders: &mut SendersPart| {
        let of = [receiver.progress(), senders.progress()];
        of.iter().any(|one| !matches!(one, base::part::Progress::Finished))
    };
    while is_running(&mut receiver, &mut senders) && monotonic_ns() < until_ns {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(monotonic_ns() < until_ns, "both ends end by themselves");
    drop(stranger);
    (receiver.stop().unwrap(), vec![senders.stop().unwrap()])
}

#[test]
fn bytes_of_each_source_are_counted_in_the_hold() {
    let settings = settings(3, "4KiB", "300ms");
    let (received, sent) = measured(&settings, true);
    let sources: Vec<u32> = received.bytes.iter().map(|(source, _)| *source).collect();
    assert_eq!(sources, [0, 1, 2], "{received:?} {sent:?}");
    assert!(received.bytes.iter().all(|(_, bytes)| *bytes > 0), "{received:?}");
    let all: u64 = received.bytes.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(received.intervals.iter().sum::<u64>(), all);
    let judgement = judge(&settings, &received, &sent);
    assert_eq!(judgement.verdict, Verdict::Pass, "{:?}", judgement.reasons);
    assert_eq!(judgement.metrics["goodput_bit_per_s"], Some(all as f64 * 8.0 / 0.3));
    assert!(judgement.metrics.contains_key("source_2_goodput_bit_per_s"));
    assert!(!judgement.metrics.contains_key("events_per_s"), "events are unknown, not 0");
    let declared = |name: &&String| {
        name.starts_with("source_") || crate::metrics::METRICS.iter().any(|metric| metric.name == **name)
    };
    assert!(judgement.metrics.keys().all(|name| declared(&name)), "{:?}", judgement.metrics);
}

#[test]
fn messages_of_one_byte_arrive() {
    let (received, _) = measured(&settings(1, "1B", "100ms"), false);
    assert!(received.bytes[0].1 > 0 && received.broke_off.is_none(), "{received:?}");
}

fn received(bytes: u64) -> Received {
    Received { hold_s: (0.5, 1.5), bytes: vec![(0, bytes)], ..Received::default() }
}

#[test]
fn limit_is_the_link_or_a_busy_thread_or_unknown() {
    let mut settings = settings(1, "4KiB", "1s");
    settings.link = "1Gbit/s".parse().ok();
    let busy = ThreadTimes { worked: Some(0.5), taken: Some(0.97) };
    let of = |bytes: u64, receiver: ThreadTimes, sender: ThreadTimes| {
        let received = Received { threads: receiver, ..received(bytes) };
        let sent = [Sent { threads: sender, ..Sent::default() }];
        judge(&settings, &received, &sent).account.limit.unwrap().resource
    };
    let idle = ThreadTimes::default();
    assert_eq!(of(119_000_000, busy, busy), Resource::Network, "a full link needs no other reason");
    assert_eq!(of(60_000_000, idle, busy), Resource::Player);
    assert_eq!(of(60_000_000, busy, idle), Resource::Cpu);
    assert_eq!(of(60_000_000, idle, idle), Resource::None);
}

#[test]
fn trial_that_was_cut_short_or_broke_off_is_invalid() {
    let settings = settings(1, "4KiB", "1s");
    let early = Received { ended_early: true, ..received(5) };
    let broken = [Sent { broke_off: Some("connection reset".into()), ..Sent::default() }];
    assert_eq!(judge(&settings, &early, &[]).verdict, Verdict::Invalid);
    let judgement = judge(&settings, &received(5), &broken);
    assert_eq!(judgement.verdict, Verdict::Invalid);
    assert!(judgement.reasons[0].contains("connection reset"), "{:?}", judgement.reasons);
    assert_eq!(judgement.metrics["goodput_bit_per_s"], None, "unknown, not 0");
    assert_eq!(judge(&settings, &received(0), &[]).verdict, Verdict::Fail);
}
