//! Clocks whose difference is known: between two network namespaces of one kernel it is exactly 0, and a time
//! namespace has a known offset, so that a violated bound is detected.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fleet::clock::{Batch, BatchRequest, BatchResult, DatagramAddress, Key, Offset, Prober, Responder};
use sys::journal::Journal;
use sys::netns::Namespace;

const LONG: Duration = Duration::from_secs(20);

/// Every probe is asked, whatever the bound.
const ALL: BatchRequest = BatchRequest { count: 64, good_ns: 0, within: LONG };

/// Where the program with another clock finds its requests; set for that program only.
const ERRAND: &str = "KAGIRI_TEST_CLOCK_ERRAND";

fn root() -> bool {
    let root = sys::environment::is_root();
    if !root {
        features::skip("needs root");
    }
    root
}

/// The coordinator's namespace on one side of a link, the agent's on the other.
struct Pair {
    coordinator: Namespace,
    agent: Namespace,
    _folder: tempfile::TempDir,
}

impl Pair {
    /// Addresses are of those for documentation (RFC 5737).
    fn make(coordinator: Ipv4Addr, agent: Ipv4Addr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(&folder.path().join("journal")).unwrap();
        let make = |side: &str| {
            let name = format!("kagiri-{}-clock-{side}", std::process::id());
            Namespace::create(&journal, &name).unwrap()
        };
        let this = Self { coordinator: make("coordinator"), agent: make("agent"), _folder: folder };
        let other = this.agent.name();
        this.coordinator.ip(&format!("link add eth0 type veth peer name eth0 netns {other}")).unwrap();
        for (side, address) in [(&this.coordinator, coordinator), (&this.agent, agent)] {
            side.ip(&format!("address add {address}/30 dev eth0\nlink set eth0 up")).unwrap();
        }
        this
    }

    /// Batches from within the agent's namespace until `probes` were asked.
    fn probe(&self, target: &DatagramAddress, key: &Key, probes: u32) -> Vec<BatchResult> {
        let ask_all = || {
            let mut prober = Prober::open(target, key.clone()).unwrap();
            let (mut all, mut sent) = (Vec::new(), 0);
            while sent < probes {
                all.push(prober.batch(ALL).unwrap());
                sent += ALL.count;
            }
            all
        };
        self.agent.within(ask_all).unwrap()
    }
}

fn on_a_busy_machine<T>(work: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in sys::thread::online_cpus().unwrap() {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop()
                }
            });
        }
        let result = work();
        stop.store(true, Ordering::Relaxed);
        result
    })
}

/// How many edges of all probes lie on the wrong side of the true offset: of a batch's edges the innermost
/// are kept, so that each stands for all of its probes.
fn violations(probed: &[BatchResult], truth_ns: i64) -> usize {
    let batches = probed.iter().filter_map(|probed| probed.batch);
    batches.filter(|batch| batch.lower.offset_ns > truth_ns || batch.upper.offset_ns < truth_ns).count()
}

fn show(what: &str, probed: &[BatchResult]) {
    let mut bounds: Vec<u64> =
        probed.iter().filter_map(|probed| probed.batch).map(|batch| batch.bound_ns()).collect();
    bounds.sort_unstable();
    let (median, last) = (bounds.get(bounds.len() / 2), bounds.last());
    eprintln!("{what}: {} batches, bound median {median:?} ns, greatest {last:?} ns", bounds.len());
}

#[test]
fn bounds_hold_between_namespaces_idle_and_busy() {
    if !root() {
        return;
    }
    let (here, there) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
    let pair = Pair::make(here, there);
    let key = Key::random();
    let folder = tempfile::tempdir().unwrap();
    let addresses =
        [DatagramAddress::Udp((here, 0).into()), DatagramAddress::Unix(folder.path().join("clock.sock"))];
    for address in addresses {
        let start = || Responder::start(&address, key.clone()).unwrap();
        let responder = pair.coordinator.within(start).unwrap();
        let idle = pair.probe(responder.address(), &key, 2_560);
        let busy = on_a_busy_machine(|| pair.probe(responder.address(), &key, 2_560));
        show(&format!("idle, {address}"), &idle);
        show(&format!("busy, {address}"), &busy);
        for probed in [idle, busy] {
            assert_eq!(violations(&probed, 0), 0);
            let batches: Vec<Batch> = probed.iter().filter_map(|probed| probed.batch).collect();
            assert!(batches.iter().map(|batch| batch.n).sum::<u64>() > 2_000, "most were not answered");
            let offset = Offset::from_batches(&batches).unwrap();
            let now = sys::clock::monotonic_ns();
            for at in [batches[0].lower.at_ns, now, now + 60_000_000_000] {
                assert!(offset.offset_ns(at).unsigned_abs() <= offset.bound_ns(at));
            }
        }
        assert!(responder.counts().answered > 4_000, "{:?}", responder.counts());
    }
}

/// The requests of a program with another clock.
#[derive(serde::Serialize, serde::Deserialize)]
struct Errand {
    target: DatagramAddress,
    key: Key,
}

/// Not a test of its own: the program that the next test starts with another clock.
#[test]
#[ignore = "started by the test of a clock that is off by minutes"]
fn errand() {
    let path = std::env::var(ERRAND).expect("started by its test only");
    let errand: Errand = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let probed = Prober::open(&errand.target, errand.key).unwrap().batch(BatchRequest::default()).unwrap();
    std::fs::write(Path::new(&path).with_extension("answer"), serde_json::to_vec(&probed).unwrap()).unwrap();
}

#[test]
fn offset_of_minutes_is_found_within_its_bound() {
    if !root() {
        return;
    }
    if !Path::new("/proc/self/ns/time").exists() {
        return features::skip("needs a kernel with time namespaces");
    }
    let folder = tempfile::tempdir().unwrap();
    let key = Key::random();
    let addresses = [
        DatagramAddress::Udp("127.0.0.1:0".parse().unwrap()),
        DatagramAddress::Unix(folder.path().join("clock.sock")),
    ];
    for (address, ahead_s) in addresses.into_iter().zip([300_i64, 86_400]) {
        let responder = Responder::start(&address, key.clone()).unwrap();
        let errand = Errand { target: responder.address().clone(), key: key.clone() };
        let path = folder.path().join("errand");
        std::fs::write(&path, serde_json::to_vec(&errand).unwrap()).unwrap();
        let output = Command::new("unshare")
            .args(["--time", "--fork", "--kill-child", "--monotonic", &ahead_s.to_string(), "--"])
            .arg(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "clock_namespaces::errand"])
            .env(ERRAND, &path)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let answer = std::fs::read(path.with_extension("answer")).unwrap();
        let probed: BatchResult = serde_json::from_slice(&answer).unwrap();

        let truth_ns = ahead_s * 1_000_000_000;
        let offset = Offset::from_batches(&[probed.batch.unwrap()]).unwrap();
        let now = sys::clock::monotonic_ns();
        show(&format!("{ahead_s} s ahead, {address}"), &[probed]);
        assert!(offset.offset_ns(now).abs_diff(truth_ns) <= offset.bound_ns(now), "{offset:?}");
        assert!(offset.to_agent_ns(now).abs_diff(now.strict_add_signed(truth_ns)) <= offset.bound_ns(now));
        assert_eq!(offset.drift_bound_ppm() == 0.0, matches!(address, DatagramAddress::Unix(_)));
    }
}
