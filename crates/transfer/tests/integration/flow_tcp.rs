//! Flows over TCP: every byte arrives, ends are exact and prompt, and nothing hangs.

use std::io::Read;
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::flow_common::{GUARD, assert_failed, finish, order, promptly, run, start, streams, tcp, until};
use sys::clock::{Deadline, monotonic_ns};
use sys::net::TcpSocket;
use sys::span::Recorder;
use transfer::flow::{self, End, EndReason, Engine, FlowSpec, GroupSetting, Mode, Side, probe, room_for};

/// No multiple of anything.
const ODD_BYTES: u64 = 30_000_017;

fn with(engine: Engine) -> GroupSetting {
    GroupSetting { engine: Some(engine), ..GroupSetting::default() }
}

#[test]
fn every_byte_arrives_by_every_engine() {
    for engine in [Engine::Write, Engine::Splice] {
        for mode in [Mode::Copy, Mode::Discard] {
            for size_bytes in [0, 10_007] {
                let (one, other) = streams();
                let sender = FlowSpec { size_bytes, ..order(Side::Sender, End::Bytes(ODD_BYTES)) };
                let receiver = FlowSpec { mode, ..order(Side::Receiver, End::Bytes(ODD_BYTES)) };
                let report = run(vec![(tcp(one), sender), (tcp(other), receiver)], &with(engine));
                for flow in &report.flows {
                    assert_eq!((flow.count.bytes, &flow.ended), (ODD_BYTES, &EndReason::Done));
                    let (first, last) = flow.moved_ns.unwrap();
                    assert!(first <= last && last <= monotonic_ns());
                }
                let info = report.flows[1].tcp.as_ref().unwrap();
                assert_eq!(info.received_bytes, Some(ODD_BYTES), "the kernel counts the same");
                assert_eq!((report.engine.sender, report.engine.mode), (Some(engine), Some(mode)));
                assert_eq!(report.threads.len(), 2);
                assert!(report.threads.iter().all(|thread| 0 < thread.cpu_ns));
            }
        }
    }
}

#[test]
fn flows_run_in_both_directions_at_once() {
    let flows = (0..4).flat_map(|n| {
        let (one, other) = streams();
        let (near, far) =
            if n % 2 == 0 { (Side::Sender, Side::Receiver) } else { (Side::Receiver, Side::Sender) };
        let end = End::Bytes(ODD_BYTES / 4);
        [(tcp(one), order(near, end)), (tcp(other), order(far, end))]
    });
    let report = run(flows.collect(), &GroupSetting::default());
    assert!(report.flows.iter().all(|f| f.count.bytes == ODD_BYTES / 4 && f.ended == EndReason::Done));
}

/// Reads all that a sender with `size_bytes` sends.
fn content(engine: Engine, size_bytes: u32, bytes: u64, rate_bit_per_s: Option<u64>) -> Vec<u8> {
    let (one, mut other) = streams();
    let order = FlowSpec { size_bytes, rate_bit_per_s, ..order(Side::Sender, End::Bytes(bytes)) };
    let group = start(vec![(tcp(one), order)], &with(engine));
    let mut came = vec![0; bytes as usize];
    other.read_exact(&mut came).unwrap();
    let report = finish(group);
    assert_eq!((report.flows[0].count.bytes, report.engine.sender), (bytes, Some(engine)));
    drop(report);
    assert_eq!(other.read(&mut [0]).unwrap(), 0, "not a byte more");
    came
}

#[test]
fn payload_repeats_one_block() {
    const BLOCK: usize = 128 << 10;
    let first = content(Engine::Write, 0, 5_000_011, None);
    let mut seen = [0_u32; 256];
    first[..BLOCK].iter().for_each(|&byte| seen[usize::from(byte)] += 1);
    assert!(seen.iter().all(|&n| (300..800).contains(&n)), "random bytes do not compress: {seen:?}");
    assert!(first.iter().enumerate().all(|(at, &byte)| byte == first[at % BLOCK]));
    assert!(content(Engine::Splice, 0, 5_000_011, None) == first);
    for size in [1_000, 200_000] {
        let cut: Vec<u8> = first[..size].iter().copied().cycle().take(3_000_007).collect();
        assert!(content(Engine::Splice, size as u32, 3_000_007, None) == cut);
        assert!(content(Engine::Write, size as u32, 3_000_007, Some(2_000_000_000)) == cut);
        assert!(content(Engine::Splice, size as u32, 3_000_007, Some(2_000_000_000)) == cut);
    }
}

#[test]
fn receiver_ends_at_end_of_stream() {
    let (one, other) = streams();
    let receiver = start(vec![(tcp(other), order(Side::Receiver, End::Peer))], &GroupSetting::default());
    let sender = run(vec![(tcp(one), order(Side::Sender, End::Bytes(ODD_BYTES)))], &GroupSetting::default());
    assert!(!receiver.is_finished());
    drop(sender.sockets);
    let report = finish(receiver);
    assert_eq!((report.flows[0].count.bytes, &report.flows[0].ended), (ODD_BYTES, &EndReason::ByPeer));
}

#[test]
fn stop_is_prompt_and_keeps_received_bytes() {
    for threads in [0, 1] {
        promptly(|| {
            let setting = GroupSetting { threads, ..GroupSetting::default() };
            let (pairs, silent) = ([streams(), streams()], streams());
            let mut flows = Vec::new();
            for (one, other) in pairs {
                flows.push((tcp(one), order(Side::Sender, End::Peer)));
                flows.push((tcp(other), order(Side::Receiver, End::Peer)));
            }
            // The peer does not read, so that the data waits in the kernel.
            flows.push((tcp(silent.0), order(Side::Sender, End::Peer)));
            let group = start(flows, &setting);
            until("all flows moving", || group.counts().iter().all(|count| count.bytes > 1 << 20));
            let asked = Instant::now();
            group.stop();
            assert!(group.wait(Deadline::after(GUARD)));
            let took = asked.elapsed();
            let report = finish(group);
            assert!(report.flows.iter().all(|flow| flow.ended == EndReason::Stopped), "{:?}", report.flows);
            assert_eq!(report.engine.shared_threads, threads == 1);
            took
        });
    }
}

#[test]
fn dropped_group_stops_its_threads() {
    let (one, other) = streams();
    drop(start(vec![(tcp(one), order(Side::Sender, End::Peer))], &GroupSetting::default()));
    let mut other = other;
    // To its end: nothing is sent any more.
    std::io::copy(&mut other, &mut std::io::sink()).unwrap();
}

#[test]
fn timed_flow_ends_in_time_without_a_reader() {
    for threads in [0, 1] {
        promptly(|| {
            let unread = [streams(), streams()];
            let (ends, held): (Vec<_>, Vec<_>) = unread.into_iter().unzip();
            let end_ns = monotonic_ns() + 150_000_000;
            let flows = ends.into_iter().map(|end| (tcp(end), order(Side::Sender, End::AtNs(end_ns))));
            let report = run(flows.collect(), &GroupSetting { threads, ..GroupSetting::default() });
            let late = Duration::from_nanos(monotonic_ns() - end_ns);
            assert!(report.flows.iter().all(|flow| flow.ended == EndReason::Done));
            // A flow that started after the end has no results.
            let has_begun = report.flows.iter().all(|flow| flow.count.bytes > 0);
            drop(held);
            if has_begun { late } else { Duration::MAX }
        });
    }
}

fn reset(stream: TcpStream) {
    let socket = TcpSocket::try_from(stream).unwrap();
    socket.reset_on_close().unwrap();
}

#[test]
fn closed_peer_is_reported() {
    let engines = [(0, Engine::Write), (0, Engine::Splice), (1, Engine::Write), (1, Engine::Splice)];
    for (threads, engine) in engines {
        let setting = GroupSetting { threads, engine: Some(engine), ..GroupSetting::default() };
        let ((one, peer), (two, other_peer)) = (streams(), streams());
        let flows = vec![
            (tcp(one), order(Side::Sender, End::Peer)),
            (tcp(two), order(Side::Receiver, End::Bytes(1 << 40))),
        ];
        let group = start(flows, &setting);
        until("bytes on their way", || group.counts()[0].bytes > 0);
        reset(peer);
        reset(other_peer);
        assert!(group.wait(Deadline::after(GUARD)));
        for flow in &finish(group).flows {
            assert_failed(flow, "the peer closed the connection after");
        }
    }
}

#[test]
fn silent_peer_is_reported() {
    for threads in [0, 1] {
        let setting =
            GroupSetting { threads, silence_max: Duration::from_millis(100), ..GroupSetting::default() };
        let pairs = [(Side::Sender, streams()), (Side::Receiver, streams())].into_iter();
        let (flows, _held): (Vec<_>, Vec<_>) =
            pairs.map(|(side, (end, peer))| ((tcp(end), order(side, End::Peer)), peer)).unzip();
        for flow in &run(flows, &setting).flows {
            assert_failed(flow, "nothing moved for 0.1 s");
        }
    }
}

/// A sender at a rate sends at least an Ethernet frame at once.
const SEGMENT_BYTES: u64 = 1448;

#[test]
fn slow_sender_fills_segments() {
    for engine in [Engine::Write, Engine::Splice] {
        let recorder = Recorder::start(0);
        let setting = GroupSetting { recorder: Some(recorder.handle()), ..with(engine) };
        let (from_ns, (one, other)) = (monotonic_ns(), streams());
        let end_ns = from_ns + 200_000_000;
        let slow = FlowSpec { rate_bit_per_s: Some(2_000_000), ..order(Side::Sender, End::AtNs(end_ns)) };
        let group = flow::start(vec![(tcp(one), slow)], &setting, from_ns).unwrap();
        assert!(group.wait(Deadline::after(GUARD)));
        let sent = finish(group).flows[0].count.bytes;
        drop(other);
        let rows = recorder.finish("sender").times.calls;
        let is_sending = |name: &str| ["sendmsg", "splice"].contains(&name);
        let calls: u64 = rows.iter().filter(|row| is_sending(&row.name)).map(|row| row.count).sum();
        assert!(0 < calls && calls <= sent / SEGMENT_BYTES, "{engine:?}: {calls} calls for {sent} bytes");
    }
}

#[test]
fn sender_never_exceeds_its_rate() {
    const RATE_BIT_PER_S: u64 = 80_000_000;
    for (threads, flows) in [(0, 2), (1, 4)] {
        let setting = GroupSetting { threads, ..GroupSetting::default() };
        let from_ns = monotonic_ns();
        let end_ns = from_ns + 300_000_000;
        let paced =
            FlowSpec { rate_bit_per_s: Some(RATE_BIT_PER_S), ..order(Side::Sender, End::AtNs(end_ns)) };
        let flows = (0..flows).flat_map(|_| {
            let (one, other) = streams();
            [(tcp(one), paced.clone()), (tcp(other), order(Side::Receiver, End::AtNs(end_ns)))]
        });
        let group = flow::start(flows.collect(), &setting, from_ns).unwrap();
        assert!(group.wait(Deadline::after(GUARD)));
        for flow in finish(group).flows.iter().step_by(2) {
            // A burst is the bytes of 0.1 ms, which is less here than the least that is sent.
            let most = RATE_BIT_PER_S / 8 * 3 / 10 + SEGMENT_BYTES;
            assert!(0 < flow.count.bytes && flow.count.bytes <= most, "{} of {most}", flow.count.bytes);
            assert_eq!(flow.ended, EndReason::Done);
        }
    }
}

#[test]
fn senders_wait_for_the_common_start() {
    for threads in [0, 1] {
        let start_ns = monotonic_ns() + 100_000_000;
        let (flows, peers): (Vec<_>, Vec<_>) = [streams(), streams()]
            .into_iter()
            .map(|(one, other)| ((tcp(one), order(Side::Sender, End::Bytes(1000))), other))
            .unzip();
        let setting = GroupSetting { threads, ..GroupSetting::default() };
        let report = finish(flow::start(flows, &setting, start_ns).unwrap());
        assert!(report.flows.iter().all(|flow| flow.moved_ns.unwrap().0 >= start_ns));
        drop(peers);
    }
}

#[test]
fn thousand_flows_share_two_threads() {
    const FLOWS: usize = 1000;
    room_for(2 * FLOWS).unwrap();
    let setting = GroupSetting { threads: 2, ..GroupSetting::default() };
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    for n in 0..FLOWS {
        let (one, other) = streams();
        let end = End::Bytes(10_000 + n as u64);
        senders.push((tcp(one), order(Side::Sender, end)));
        let mode = if n % 2 == 0 { Mode::Copy } else { Mode::Discard };
        receivers.push((tcp(other), FlowSpec { mode, ..order(Side::Receiver, End::Peer) }));
    }
    let receiving = start(receivers, &setting);
    let sent = run(senders, &setting);
    assert_eq!((sent.threads.len(), sent.engine.shared_threads), (2, true));
    assert!(sent.flows.iter().all(|flow| flow.ended == EndReason::Done));
    drop(sent.sockets);
    let received = finish(receiving);
    for (n, flow) in received.flows.iter().enumerate() {
        assert_eq!((flow.count.bytes, &flow.ended), (10_000 + n as u64, &EndReason::ByPeer));
    }
}

#[test]
fn too_many_flows_for_open_files_are_refused() {
    let error = room_for(usize::MAX / 2).unwrap_err().to_string();
    assert!(error.contains("open files") || error.contains("limit"), "{error}");
}

#[test]
fn probe_compares_all_engines_once() {
    let report = probe::run().unwrap();
    assert_eq!(report.engines.iter().map(|e| e.engine).collect::<Vec<_>>(), [Engine::Write, Engine::Splice]);
    assert!(report.engines.iter().all(|e| e.cpu_s_per_gb > 0.0 && e.bit_per_s > 0.0), "{report:?}");
    let least = report.engines.iter().map(|e| e.cpu_s_per_gb).fold(f64::INFINITY, f64::min);
    assert!(report.engines.iter().any(|e| e.engine == report.chosen && e.cpu_s_per_gb == least));
    assert_eq!(probe::run().unwrap(), report);
    assert_eq!(probe::known(), Some(report.clone()));
    let (one, other) = streams();
    other.shutdown(Shutdown::Write).unwrap();
    let group = start(vec![(tcp(one), order(Side::Sender, End::Bytes(1)))], &GroupSetting::default());
    assert_eq!(finish(group).engine.probe, Some(report));
}
