//! The sampler on the real kernel: what it saw is compared with what the watched side counts itself. No test
//! here depends on how fast the machine is.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::part::{AnyPart, Endpoints, HERE, HostContext, PartSpec, Progress, Watch};
use base::series::Series;
use observe::PARTS;
use observe::sampler::{Quantity, Report, Snapshot, Sources, rates};
use serde_json::{Value, json};
use sys::clock::{Deadline, monotonic_ns};
use sys::disk::{LoopDevice, drop_file_cache};
use sys::journal::Journal;
use sys::proc::{BlockDeviceReader, NetDevice};

/// Between the order to start and the moment: longer than a thread is kept off its CPU in between.
const LEAD_NS: u64 = 1_000_000_000;
const LONG: Duration = Duration::from_secs(30);
const TICK_S: f64 = 0.01;

fn host() -> HostContext {
    let here = std::env::temp_dir();
    HostContext::here(here.clone(), here, std::env::current_exe().unwrap())
}

fn sampler(settings: Value) -> Box<dyn AnyPart> {
    let kind = PARTS.iter().find(|kind| kind.name == "observe.sampler").unwrap();
    let spec = PartSpec {
        kind: kind.name.to_owned(),
        name: "sampler".to_owned(),
        host: HERE.into(),
        settings,
        report_items: 0,
    };
    (kind.build)(&spec).unwrap()
}

fn started(watch: &Watch) -> Box<dyn AnyPart> {
    let mut part = sampler(serde_json::to_value(watch).unwrap());
    part.prepare(&Endpoints::new(), &host()).unwrap();
    let at_ns = monotonic_ns() + LEAD_NS;
    part.start(at_ns).unwrap();
    sys::clock::sleep_until_ns(at_ns);
    part
}

/// Goes on until something is true.
fn until(mut done: impl FnMut() -> bool) {
    let deadline = Deadline::after(LONG);
    while !done() {
        assert!(deadline.pause(Duration::from_millis(1)), "not within {LONG:?}");
    }
}

fn report(mut part: Box<dyn AnyPart>) -> Report {
    assert_eq!(part.progress(), Progress::Running { done: None });
    serde_json::from_value(part.stop().unwrap()).unwrap()
}

fn series<'a>(report: &'a Report, name: &str) -> &'a Series {
    let found = report.series.iter().find(|series| series.name == name);
    found.unwrap_or_else(|| panic!("no {name}; {:?}", report.unavailable))
}

/// Value times time over all samples, in the value's unit times seconds.
fn integral(report: &Report, name: &str) -> f64 {
    let series = series(report, name);
    let mut from_s = 0.0;
    let mut sum = 0.0;
    for (at_s, value) in series.at_s.iter().zip(&series.values) {
        if let Some(value) = value {
            sum += value * (at_s - from_s);
            from_s = *at_s;
        }
    }
    sum
}

/// The first interval begins when the first snapshot was read, up to this much later than its time.
fn late_s(report: &Report) -> f64 {
    report.late_ms_max / 1e3 + TICK_S
}

/// A child that burns about half a core, in threads that come and go, and knows its own CPU time.
struct Burner {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStderr>,
}

impl Burner {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "live::burner", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let ask = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stderr.take().unwrap());
        let mut this = Self { child, ask, answers };
        this.cpu_ns();
        this
    }

    fn cpu_ns(&mut self) -> u64 {
        self.ask.write_all(b"?\n").unwrap();
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "the burner has ended");
            if let Some(number) = line.trim().strip_prefix("cpu_ns ") {
                return number.parse().unwrap();
            }
        }
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The child's side: no test by itself.
#[test]
#[ignore = "the other half of process_cpu_matches_its_own_clock"]
fn burner() {
    let end = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&end);
    let work = std::thread::spawn(move || {
        while !ended.load(Ordering::Relaxed) {
            // A thread that ends after 5 ms, before the tracer can look it up.
            let burn = || {
                let from_ns = sys::thread::thread_cpu_ns();
                while sys::thread::thread_cpu_ns() < from_ns + 5_000_000 {}
            };
            std::thread::spawn(burn).join().unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    for line in std::io::stdin().lines() {
        if line.is_err() {
            break;
        }
        eprintln!("\ncpu_ns {}", sys::thread::process_cpu_ns());
    }
    end.store(true, Ordering::Relaxed);
    work.join().unwrap();
}

#[test]
fn process_cpu_matches_its_own_clock() {
    let mut burner = Burner::start();
    let pid = burner.child.id();
    let watch = Watch { pids: vec![pid], ..Watch::default() };
    let outer_from = (monotonic_ns(), burner.cpu_ns());
    let part = started(&watch);
    let burnt_from_ns = burner.cpu_ns();
    until(|| burner.cpu_ns() > burnt_from_ns + 400_000_000);
    let report = report(part);
    let outer_to = (monotonic_ns(), burner.cpu_ns());

    let seen_s = integral(&report, "server_cpu_percent") / 100.0;
    let own_s = (outer_to.1 - outer_from.1) as f64 / 1e9;
    // The burner's work before the first and after the last sample is not measured.
    let last_s = *series(&report, "server_cpu_percent").at_s.last().unwrap();
    let outside_s = (outer_to.0 - outer_from.0) as f64 / 1e9 - last_s;
    assert!(seen_s <= own_s + late_s(&report), "seen {seen_s} s, own {own_s} s");
    // It never runs on more than one core and a little of another at a time.
    assert!(
        seen_s >= own_s - 1.2 * outside_s - 2.0 * late_s(&report),
        "seen {seen_s}, own {own_s}, outside {outside_s}"
    );
    assert!(seen_s > 0.0);

    // The host was at least as busy as the burner, up to a few ticks of its coarser counter.
    let host_s = integral(&report, "host_cpu_percent") / 100.0;
    assert!(host_s >= seen_s - 5.0 * TICK_S, "host {host_s} s, burner {seen_s} s");
    assert!(series(&report, "server_memory_bytes").min(0.0, 1e9).unwrap() > 0.0);
    assert!(series(&report, "cpu_wait_percent").min(0.0, 1e9).unwrap() >= 0.0);
    assert_eq!(report.watched.pids, [pid.cast_signed()]);
    assert!(report.samples > 0 && report.cost_cpu_percent.unwrap() > 0.0);
    assert!(report.missing.values().all(|percent| *percent <= 100.0));
}

#[test]
fn ended_target_is_unknown_not_idle() {
    let burner = Burner::start();
    let mut sources =
        Sources::open(Path::new("/"), &Watch { pids: vec![burner.child.id()], ..Watch::default() });
    let alive = sources.read();
    assert!(alive.server_cpu_ns.is_some() && alive.server_memory_bytes.is_some());
    drop(burner);
    // The set of processes is looked at again once a second.
    until(|| sources.read().server_cpu_ns.is_none());
    let ended = sources.read();
    assert_eq!((ended.server_wait_ns, ended.server_memory_bytes), (None, None));
    let sample = rates(&alive, &ended);
    assert_eq!(sample.get(Quantity::ServerCpu), None);
    assert!(sample.get(Quantity::HostCpu).is_some() && sample.get(Quantity::OtherCpu).is_some());
    assert!(
        sources.offered().contains(&Quantity::ServerCpu),
        "it stays a series, with points that are unknown"
    );
}

/// A value of one interval times the interval, in the value's unit times seconds.
fn total(from: &Snapshot, to: &Snapshot, quantity: Quantity) -> f64 {
    rates(from, to).get(quantity).unwrap() * (to.at_ns - from.at_ns) as f64 / 1e9
}

#[test]
fn sent_bytes_are_sampled_on_loopback() {
    const BYTES: u64 = 64 << 20;
    let mut device = NetDevice::open(Path::new("/"), "lo").unwrap();
    let mut sources =
        Sources::open(Path::new("/"), &Watch { network_device: Some("lo".into()), ..Watch::default() });
    let outer_from = device.read().unwrap().tx_bytes;
    let before = sources.read();

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let reader = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        std::io::copy(&mut stream, &mut std::io::sink()).unwrap()
    });
    let file = tempfile::tempfile().unwrap();
    file.set_len(BYTES).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    // From a file to a socket the standard library copies with sendfile(2).
    assert_eq!(std::io::copy(&mut (&file).take(BYTES), &mut stream).unwrap(), BYTES);
    drop(stream);
    assert_eq!(reader.join().unwrap(), BYTES);

    let after = sources.read();
    let outer_to = device.read().unwrap().tx_bytes;
    let seen_bytes = total(&before, &after, Quantity::Network) / 8.0;
    // Other tests may use loopback at the same time; the device's own counter knows about them.
    let rounding = 1.0;
    assert!(seen_bytes >= BYTES as f64, "{seen_bytes} of {BYTES}");
    assert!(seen_bytes <= (outer_to - outer_from) as f64 + rounding, "{seen_bytes}");
}

#[test]
fn reads_of_a_loop_device_are_sampled() {
    if !sys::environment::is_root() {
        return features::skip("needs root");
    }
    const BYTES: usize = 32 << 20;
    let here = std::env::current_exe().unwrap();
    let folder = tempfile::tempdir_in(here.parent().unwrap()).unwrap();
    let journal = Journal::open(&folder.path().join("journal")).unwrap();
    let image = folder.path().join("image");
    std::fs::write(&image, vec![7u8; BYTES]).unwrap();
    let device = match LoopDevice::attach(&journal, &image) {
        Ok(device) => device,
        Err(error) => return features::skip(&error.to_string()),
    };
    drop_file_cache(device.path()).unwrap();
    let mut counters = BlockDeviceReader::open(device.block_device()).unwrap();
    let watch = Watch { block_device: Some(device.block_device().numbers()), ..Watch::default() };
    let mut sources = Sources::open(Path::new("/"), &watch);
    let outer_from = counters.read().unwrap().read_bytes;
    let before = sources.read();
    assert_eq!(std::fs::read(device.path()).unwrap().len(), BYTES);
    let after = sources.read();
    let outer_to = counters.read().unwrap().read_bytes;

    let seen_bytes = total(&before, &after, Quantity::DiskRead) / 8.0;
    let rounding = 1.0;
    assert!(seen_bytes >= BYTES as f64 - rounding, "the pages were dropped, so all was read: {seen_bytes}");
    assert!(seen_bytes <= (outer_to - outer_from) as f64 + rounding, "{seen_bytes}");
    assert!(total(&before, &after, Quantity::DiskBusy) > 0.0);
    assert!(total(&before, &after, Quantity::DiskQueue) > 0.0);
    assert!(rates(&before, &after).get(Quantity::DiskAwait).unwrap() >= 0.0);
    assert_eq!(sources.disk_name(), Some(device.block_device().name.as_str()));
}

#[test]
fn phases_out_of_order_fail_and_drop_ends_the_thread() {
    let mut part = sampler(json!({}));
    assert!(part.start(monotonic_ns() + LEAD_NS).is_err());
    assert!(part.stop().is_err());
    let mut part = sampler(json!({}));
    let endpoint = part.prepare(&Endpoints::new(), &host()).unwrap();
    assert!(endpoint["series"].as_array().unwrap().contains(&json!("host_cpu_percent")));
    assert!(part.start(0).unwrap_err().message.contains("passed"));
    // A start far ahead: the thread waits, and ends at once.
    part.start(monotonic_ns() + 3_600_000_000_000).unwrap();
    assert!(part.start(monotonic_ns() + LEAD_NS).is_err());
    let report = report(part);
    assert_eq!((report.samples, report.cost_cpu_percent), (0, None));
    assert!(report.missing.values().all(|percent| *percent == 100.0));
    let mut part = sampler(json!({}));
    part.prepare(&Endpoints::new(), &host()).unwrap();
    part.start(monotonic_ns() + 3_600_000_000_000).unwrap();
    drop(part);
}

#[test]
fn remote_target_has_no_server_series() {
    let mut part = sampler(json!({"elsewhere": "192.0.2.1:80"}));
    let endpoint = part.prepare(&Endpoints::new(), &host()).unwrap();
    let names = endpoint["series"].to_string();
    assert!(names.contains("host_cpu_percent"), "{names}");
    assert!(!names.contains("server_") && !names.contains("pressure_"), "{names}");
}
