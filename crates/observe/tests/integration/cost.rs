//! What the sampler itself costs. Not a test: run it in release with `--ignored --nocapture`.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use base::part::Watch;
use observe::sampler::{Quantity, Sources, rates};
use sys::clock::{monotonic_ns, sleep_until_ns};
use sys::proc::block_device_of_path;
use sys::thread::{set_timer_slack_ns, thread_cpu_ns};

/// The server's connections that are followed.
const CONNECTIONS: usize = 1000;
const PASSES: u64 = 100;
const INTERVAL_NS: u64 = 100_000_000;

struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        let child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn();
        Self(child.expect("`sleep` is on every system"))
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "prints a cost; takes 10 s"]
fn cost_of_a_pass_at_10_hz() {
    let servers: Vec<Sleeper> = (0..3).map(|_| Sleeper::start()).collect();
    sys::thread::raise_file_limit(4 * CONNECTIONS as u64)
        .expect("the soft limit may be raised to the hard one");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port of loopback");
    let address = listener.local_addr().expect("it is bound");
    let connect =
        |_| (TcpStream::connect(address).expect("it listens"), listener.accept().expect("it is asked"));
    let connections: Vec<_> = (0..CONNECTIONS).map(connect).collect();
    let root = Path::new("/");
    let here = std::env::current_exe().expect("a running program has a file");
    let device = block_device_of_path(root, &here).ok().flatten();
    let watch = Watch {
        pids: servers.iter().map(|server| server.0.id()).collect(),
        cgroup_cpu: sys::cgroup::Hierarchies::find(root)
            .ok()
            .and_then(|found| Some(found.cpu?.1.display().to_string())),
        block_device: device.map(|device| device.numbers()),
        network_device: Some("lo".into()),
        tcp_port: Some(address.port()),
        ..Watch::default()
    };
    let mut sources = Sources::open(root, &watch);
    set_timer_slack_ns(1).expect("a thread may set its own slack");
    let start_ns = monotonic_ns();
    let mut previous = sources.read();
    let mut costs = Vec::new();
    for pass in 1..=PASSES {
        sleep_until_ns(start_ns + pass * INTERVAL_NS);
        let from_ns = thread_cpu_ns();
        let current = sources.read();
        let sample = rates(&previous, &current);
        costs.push(thread_cpu_ns() - from_ns);
        assert!(sample.get(Quantity::HostCpu).is_some());
        previous = current;
    }
    costs.sort_unstable();
    let mean_us = costs.iter().sum::<u64>() as f64 / PASSES as f64 / 1e3;
    println!(
        "{} series; a pass: mean {mean_us:.0} us, p50 {} us, max {} us; {:.3} % of a core at 10 Hz",
        sources.offered().len(),
        costs[costs.len() / 2] / 1000,
        costs[costs.len() - 1] / 1000,
        mean_us * 10.0 / 1e4,
    );
    assert_eq!(previous.senders.map(|senders| senders.connections), Some(connections.len() as u64));
    println!("{:?}", sources.unavailable());
}
