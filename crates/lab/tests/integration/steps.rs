//! Links change their rates at the times of their file, and have their first rates again after each trial.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lab::client::Steps;
use sys::clock::{monotonic_ns, sleep_until_ns};
use sys::netlink::{Queue, rate_of};

use crate::common::{Bench, UpLab};

const MS: u64 = 1_000_000;
/// What a step may be late, and what reading the rate adds to it.
const EXACT: (f64, f64) = (20.0, 10.0);
const STEPS: &str = "rate = '20Mbit/s'\nbuffer = '50kB'\n\
    steps = [{ after = '400ms', rate = '5Mbit/s' }, { after = '800ms', rate = '10Mbit/s' }]";

fn two(bench: &Bench, name: &str, keys: &str) -> UpLab {
    let host = "run = ['exec sleep 600']\n";
    UpLab::new(
        bench,
        name,
        &format!("agents = false\n[host.a]\n{host}[host.b]\n{host}[[link]]\nfrom = 'a'\nto = 'b'\n{keys}\n"),
    )
}

fn pid_on(lab: &UpLab, host: &str) -> i32 {
    let ends = format!("on {host}");
    lab.status().processes.iter().find(|process| process.what.ends_with(&ends)).unwrap().pid
}

fn start(lab: &UpLab, at_ns: u64) -> lab::Result<Steps> {
    Steps::start(&lab.options.folders, &lab.state.lab, at_ns)
}

/// Rates of the kernel's queue with the times at which they were first seen, from `from_ns` to `to_ns`.
fn rates_seen(pid: i32, from_ns: u64, to_ns: u64) -> Vec<(f64, u64)> {
    let mut seen: Vec<(f64, u64)> = Vec::new();
    let mut at_ns = from_ns;
    while at_ns < to_ns {
        sleep_until_ns(at_ns);
        let rate = rate_of("eth0", Some(pid)).unwrap().unwrap();
        if seen.last().is_none_or(|(_, last)| *last != rate) {
            seen.push((monotonic_ns().saturating_sub(from_ns) as f64 / 1e6, rate));
        }
        at_ns += 2 * MS;
    }
    seen
}

#[test]
fn rates_step_on_time_and_are_restored() {
    let Some(bench) = Bench::new() else { return };
    let lab = two(&bench, "steps", STEPS);
    let pid = pid_on(&lab, "a");
    assert!(lab.state.links[0].steps.len() == 2, "{:?}", lab.state.links);
    // The second time as the first: steps count from each start.
    for _ in 0..2 {
        let at_ns = monotonic_ns() + 100 * MS;
        let steps = start(&lab, at_ns).unwrap();
        let refused = start(&lab, at_ns).unwrap_err().to_string();
        assert!(refused.contains("another measurement"), "{refused}");
        let seen = rates_seen(pid, at_ns, at_ns + 1000 * MS);
        let done = steps.end().unwrap();
        let rates: Vec<u64> = seen.iter().map(|(_, rate)| *rate).collect();
        assert_eq!(rates, [20_000_000, 5_000_000, 10_000_000], "{seen:?}");
        for ((seen_ms, _), due_ms) in seen[1..].iter().zip([400.0, 800.0]) {
            let late_ms = seen_ms - due_ms;
            assert!((-0.5..EXACT.0 + EXACT.1).contains(&late_ms), "{late_ms} ms late: {seen:?}");
        }
        let reported: Vec<_> = done.iter().map(|step| (step.link, step.after_s, step.bit_per_s)).collect();
        assert_eq!(reported, [(1, 0.4, 5_000_000), (1, 0.8, 10_000_000)]);
        assert!(done.iter().all(|step| step.late_us < EXACT.0 * 1e3), "{done:?}");
        for host in ["a", "b"] {
            assert_eq!(rate_of("eth0", Some(pid_on(&lab, host))).unwrap(), Some(20_000_000));
        }
    }
    lab.down();
}

#[test]
fn queue_sends_at_the_rate_of_each_step() {
    let Some(bench) = Bench::new() else { return };
    let lab = two(&bench, "flood", STEPS);
    let address = lab.address("b");
    let receiver = lab.on("b", || UdpSocket::bind((address, 0)).unwrap());
    let sender = lab.on("a", || UdpSocket::bind((lab.address("a"), 0)).unwrap());
    let to = receiver.local_addr().unwrap();
    let mut counters = Queue::open("eth0", Some(pid_on(&lab, "a"))).unwrap().unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // Blocks while the queue holds as much as the socket may send.
                if sender.send_to(&[0; 1400], to).is_err() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        let at_ns = monotonic_ns() + 100 * MS;
        let steps = start(&lab, at_ns).unwrap();
        // From when to when, and the rate that the kernel has to count meanwhile.
        let found = [(100, 350, 20e6), (480, 780, 5e6), (880, 1100, 10e6)].map(|(from, to, expected)| {
            let mut sent = [from, to].map(|at| {
                sleep_until_ns(at_ns + at * MS);
                (counters.read().unwrap().bytes.unwrap(), Instant::now())
            });
            sent.reverse();
            let [(after, end), (before, begin)] = sent;
            (8.0 * (after - before) as f64 / (end - begin).as_secs_f64(), expected)
        });
        is_over.store(true, Ordering::Relaxed);
        drop(steps);
        for (rate, expected) in found {
            assert!((rate / expected - 1.0).abs() < 0.08, "{found:?}");
        }
    });
    lab.down();
}

#[test]
fn rates_are_restored_if_the_client_is_killed_and_refused_without_steps() {
    let Some(bench) = Bench::new() else { return };
    let lab = two(&bench, "gone", STEPS);
    let pid = pid_on(&lab, "a");
    let steps = start(&lab, monotonic_ns() - 500 * MS).unwrap();
    let is = |rate: u64| rate_of("eth0", Some(pid)).unwrap() == Some(rate);
    let until = Instant::now() + Duration::from_secs(5);
    while !is(5_000_000) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(is(5_000_000), "the first step is 100 ms late and done at once");
    // As the kernel closes it when its process dies.
    drop(steps);
    while !is(20_000_000) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(is(20_000_000));
    lab.down();
    let plain = two(&bench, "plain", "rate = '20Mbit/s'");
    let refused = start(&plain, monotonic_ns()).unwrap_err().to_string();
    assert!(refused.contains("has no link with steps"), "{refused}");
    plain.down();
}
