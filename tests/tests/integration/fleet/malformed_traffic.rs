//! A million malformed bytes on the control port, in the clear and over TLS, and connections that say
//! nothing: the run waits for its hosts as before, gets them, measures, and has not grown.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kagiri_tests::{FLEET_PATIENCE, Fleet, Live, SHORT_FILM, free_port, search_plan, trials, wait_until};
use nix::sys::signal::Signal;

/// How many bytes are thrown at a port, of each kind.
const NOISE_BYTES: usize = 1_000_000;
/// Connections that send nothing. Over TLS zenoh gives up on each after 10 s; then, as after malformed bytes,
/// no other handshake continues for as long as `.cargo/config.toml` says.
const SILENT: usize = 100;
/// What a coordinator of three hosts may need at most; it needs a tenth.
const RSS_MAX_KB: u64 = 400_000;

fn port(endpoint: &str) -> u16 {
    endpoint.rsplit(':').next().expect("a port").parse().expect("a port")
}

fn rss_kb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a size");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}

/// A splitmix generator: the same noise in every run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// What an agent sends to a coordinator while it joins, recorded by a relay between them.
fn recorded(fleet: &Fleet, coordinator: u16) -> Vec<u8> {
    let listener = TcpListener::bind(("127.0.0.1", free_port())).expect("a free port");
    let between = listener.local_addr().expect("it is bound");
    let said = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&said);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (kept, mut there) =
                (Arc::clone(&kept), TcpStream::connect(("127.0.0.1", coordinator)).expect("it listens"));
            let (mut back, mut answers) =
                (stream.try_clone().expect("a socket"), there.try_clone().expect("a socket"));
            std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
            std::thread::spawn(move || {
                let (mut stream, mut bytes) = (stream, [0; 4096]);
                while let Ok(n @ 1..) = stream.read(&mut bytes) {
                    kept.lock().expect("no thread panics").extend(&bytes[..n]);
                    if there.write_all(&bytes[..n]).is_err() {
                        break;
                    }
                }
            });
        }
    });
    let scheme = fleet.endpoint.split('/').next().expect("a scheme");
    let mut command =
        fleet.world.command(&["agent", "--name", "pc-9", "--join", &format!("{scheme}/{between}")]);
    if scheme == "tls" {
        command.arg("--credentials").arg(fleet.bundle("pc-9"));
    }
    let mut agent = Live::start(command);
    agent.wait_for("joined", FLEET_PATIENCE);
    wait_until("it has sent something", FLEET_PATIENCE, || {
        said.lock().expect("no thread panics").len() > 200
    });
    agent.signal(Signal::SIGTERM);
    agent.end(FLEET_PATIENCE).code(0);
    std::mem::take(&mut *said.lock().expect("no thread panics"))
}

/// Send this on a connection of its own, and leave; a coordinator that hangs up early is right to.
fn throw(port: u16, bytes: &[u8]) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it still listens");
    let _ = stream.set_write_timeout(Some(Duration::from_secs(2)));
    let _ = stream.write_all(bytes);
}

/// Random bytes, of them frames of zenoh with lengths that are too large; then what was recorded, cut and
/// damaged.
fn bombard(port: u16, recorded: &[u8]) {
    let mut noise = Noise(7);
    let mut sent = 0;
    while sent < NOISE_BYTES {
        let mut bytes: Vec<u8> = (0..noise.below(60_000) + 1).map(|_| noise.next() as u8).collect();
        if noise.below(2) == 0 {
            bytes.splice(0..0, (noise.next() as u16).to_le_bytes());
        }
        throw(port, &bytes);
        sent += bytes.len();
    }
    let mut sent = 0;
    while sent < NOISE_BYTES {
        let mut bytes = recorded.to_vec();
        for _ in 0..noise.below(8) {
            let at = noise.below(bytes.len());
            bytes[at] = noise.next() as u8;
        }
        bytes.truncate(noise.below(bytes.len()) + 1);
        // Repeated, so that what follows a damaged frame is read as one, too.
        let bytes = bytes.repeat(noise.below(60) + 1);
        throw(port, &bytes);
        sent += bytes.len();
    }
}

fn goes_on_through(fleet: Fleet) {
    let port = port(&fleet.endpoint);
    // A run that waits for hosts.
    let plan = search_plan(SHORT_FILM);
    let mut run = Live::start(fleet.run_command(&plan, "120s"));
    wait_until("the coordinator listens", FLEET_PATIENCE, || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let began = Instant::now();
    let recorded = recorded(&fleet, port);
    let before_kb = rss_kb(run.pid());
    let silent: Vec<TcpStream> =
        (0..SILENT).map(|_| TcpStream::connect(("127.0.0.1", port)).expect("it listens")).collect();
    bombard(port, &recorded);
    assert!(run.is_running(), "{}", run.stderr());
    let thrown = began.elapsed();
    let agents: Vec<Live> = ["nas", "pc-1", "pc-2"].map(|name| fleet.agent(name)).into();
    run.wait_for("measuring 1 stream", FLEET_PATIENCE);
    eprintln!("noise thrown after {thrown:?}, hosts joined after {:?}", began.elapsed());
    // And while it measures.
    bombard(port, &recorded);
    run.wait_for("measuring 2 streams", FLEET_PATIENCE);
    let after_kb = rss_kb(run.pid());
    eprintln!("{}: {before_kb} kB before, {after_kb} kB after", fleet.endpoint);
    assert!(after_kb < RSS_MAX_KB, "{before_kb} kB before, {after_kb} kB after");
    run.signal(Signal::SIGINT);
    let ended = run.end(FLEET_PATIENCE).code(130);
    assert!(!ended.stderr.contains("panicked") && !ended.stderr.contains("was lost"), "{}", ended.stderr);
    assert!(!trials(&fleet.stored()).is_empty());
    drop(silent);
    fleet.end(agents, &[ended.pid]);
}

#[test]
fn a_run_goes_on_through_noise() {
    goes_on_through(Fleet::new());
}

#[test]
fn a_run_goes_on_through_noise_over_tls() {
    goes_on_through(Fleet::with_credentials(&["--host", "nas", "--host", "pc-[1-9]"]));
}
