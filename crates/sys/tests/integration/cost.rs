//! What it costs to watch and pace many sockets.

use std::time::{Duration, Instant};

use crate::common::{LONG, as_root, flows, holder, namespace_with_loopback};
use sys::clock::Deadline;
use sys::netlink::FlowSampler;
use sys::process::{PacingRate, SocketChange, SocketOwners};
use sys::shaping::{ManagedSockets, SocketTarget};

/// A measurement, run on purpose: `cargo test -p kagiri-sys --test integration -- --ignored cost`.
#[test]
#[ignore = "measures for 20 s, and is of use on an idle machine only"]
fn cost_of_1000_sockets_at_10_hz() {
    let Some((_folder, journal)) = as_root() else { return };
    let namespace = namespace_with_loopback(&journal, "cost");
    let child = holder(&journal, &namespace, 500);
    assert_eq!(flows(child.pid()).len(), 1000);
    let mut sampler = FlowSampler::open(Some(child.pid())).unwrap();
    let mut owners = SocketOwners::new();
    let mut managed = ManagedSockets::new(&journal);
    for is_paced in [false, true] {
        let (mut sampling, mut searching, mut changing) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        let (began, cpu_began) = (Instant::now(), sys::thread::thread_cpu_ns());
        for round in 0..100_u64 {
            let mut found = Vec::with_capacity(1000);
            let at = Instant::now();
            sampler.read(&mut |flow| found.push((flow.inode, flow.cookie))).unwrap();
            sampling += at.elapsed();
            let at = Instant::now();
            assert!(owners.update(found.iter().map(|(inode, _)| *inode), LONG));
            searching += at.elapsed();
            let at = Instant::now();
            if is_paced {
                let pacing = PacingRate::from_bytes_per_s(1_000_000 + round);
                let change = SocketChange { pacing, ..SocketChange::default() };
                let target = |(inode, cookie): &(u64, u64)| {
                    let holder = owners.holder(*inode)?;
                    let process = owners.process(holder.pid)?;
                    Some(SocketTarget { process, fd: holder.fd, inode: *inode, cookie: *cookie, change })
                };
                let targets: Vec<_> = found.iter().filter_map(target).collect();
                assert_eq!(targets.len(), 1000);
                assert!(managed.apply(&targets).unwrap().iter().all(Result::is_ok));
            }
            changing += at.elapsed();
            let due = Duration::from_millis(100 * (round + 1)).saturating_sub(began.elapsed());
            Deadline::after(due).pause(due);
        }
        let cpu = Duration::from_nanos(sys::thread::thread_cpu_ns() - cpu_began);
        eprintln!(
            "1000 sockets, 100 rounds in {:?}, all paced anew each round: {is_paced}: {:.2} % of a core; a \
             round: sample {:?}, find holders {:?}, change {:?}",
            began.elapsed(),
            cpu.as_secs_f64() / began.elapsed().as_secs_f64() * 100.0,
            sampling / 100,
            searching / 100,
            changing / 100
        );
    }
}
