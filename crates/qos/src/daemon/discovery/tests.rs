//! Sockets of a real program, in a network namespace of their own.

use std::time::{Duration, Instant};

use sys::child::{Child, Signal, Spawn};
use sys::journal::Journal;
use sys::netns::Namespace;

use super::*;

const WITHIN: Duration = Duration::from_secs(10);
const POLICY: &str = "[bottleneck]\ninterface = 'lo'\ncapacity = '50Mbit/s'\n\
    [[class]]\nname = 'bulk'\nmatch = { process = 'python3' }\npriority = 5\n";
/// Opens 200 connections to itself. Then it opens another one (SIGUSR1), writes into the first (SIGUSR2), or
/// closes the last (SIGHUP).
const PROGRAM: &str = "\
import signal, socket, time
server = socket.create_server(('127.0.0.1', 0), backlog=500)
held = []
def connect(*_):
    held.append((socket.create_connection(server.getsockname()), server.accept()[0]))
    print('connected', flush=True)
def write(*_):
    held[0][0].send(bytes(1000))
    print('written', flush=True)
def close(*_):
    held.pop()
    print('closed', flush=True)
signal.signal(signal.SIGUSR1, connect)
signal.signal(signal.SIGUSR2, write)
signal.signal(signal.SIGHUP, close)
for _ in range(200): connect()
time.sleep(1.2)
print('ready', flush=True)
while True: signal.pause()
";

struct Looking {
    discovery: Discovery,
    policy: Policy,
    found: Vec<Found>,
    child: Child,
}

impl Looking {
    fn look(&mut self) {
        self.discovery.look(&self.policy, &HashMap::new(), &mut self.found).unwrap();
    }

    /// Looks until the holders of all sockets are known, and has the list stay valid. Returns the number of
    /// lists so far.
    fn settle(&mut self) -> u64 {
        let deadline = Deadline::after(WITHIN);
        self.look();
        while self.discovery.list.is_none() {
            assert!(!deadline.passed(), "the holders are not found");
            self.look();
        }
        self.discovery.list.as_mut().unwrap().until = Deadline::after(WITHIN);
        self.discovery.readings
    }

    fn fresh(&self) -> usize {
        self.found.iter().filter(|found| self.discovery.is_fresh(found)).count()
    }

    /// Whether a socket has sent more than this.
    fn has_sent(&self, bytes: u64) -> bool {
        let acked = |found: &Found| found.flow.tcp.as_ref().unwrap().acked_bytes.unwrap();
        self.found.iter().any(|found| acked(found) > bytes)
    }

    /// Has the program do something, and says how long it takes until that is seen at 20 steps a second.
    fn until(&mut self, signal: Signal, done: &str, seen: impl Fn(&Self) -> bool) -> Duration {
        self.child.signal(signal).unwrap();
        self.child.wait_line(WITHIN, |line| line == done).unwrap();
        let begin = Instant::now();
        while begin.elapsed() < WITHIN {
            self.look();
            if seen(self) {
                return begin.elapsed();
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("not seen: {done}");
    }
}

#[test]
fn list_is_made_for_new_sockets_and_from_time_to_time() {
    if !sys::environment::is_root() {
        return features::skip("needs root: it makes a network namespace");
    }
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(&folder.path().join("journal")).unwrap();
    let namespace = Namespace::create(&journal, &format!("kagiri-discovery-{}", std::process::id())).unwrap();
    namespace.ip("link set lo up").unwrap();
    let program = Spawn::new("python3").args(["-c", PROGRAM]).namespace(&namespace);
    let mut child = program.start(&journal).unwrap();
    child.wait_line(WITHIN, |line| line == "ready").unwrap();
    namespace.within(|| watch(child)).unwrap();
}

fn watch(child: Child) {
    let policy = Policy::parse(POLICY).unwrap();
    let discovery = Discovery::open(&policy.bottleneck, Vec::new()).unwrap();
    let mut looking = Looking { discovery, policy, found: Vec::new(), child };
    let lists = looking.settle();
    assert_eq!(looking.found.len(), 400);
    // What rests is not read, and no list is made.
    looking.look();
    assert_eq!((looking.discovery.readings, looking.found.len(), looking.fresh()), (lists, 400, 0));
    // A new connection is seen with the next step: both its ends.
    looking.until(Signal::SIGUSR1, "connected", |looking| looking.found.len() == 402);
    assert_eq!(looking.found.iter().filter(|found| found.is_new).count(), 2);
    let lists = looking.settle();
    // Both ends have just been opened. Whatever else is set is read with the next step, too.
    looking.look();
    assert_eq!((looking.discovery.readings, looking.fresh()), (lists, 2));
    let began_ns = looking.discovery.began_ns;
    let resting = looking.found.iter_mut().find(|found| found.time_ns < began_ns).unwrap();
    resting.is_changed_since = true;
    looking.look();
    assert_eq!((looking.discovery.readings, looking.fresh()), (lists, 3));
    looking.discovery.list_next();
    looking.look();
    assert_eq!(looking.discovery.readings, lists + 1);
    // One that rested writes: it is read when a list is made.
    let after = looking.until(Signal::SIGUSR2, "written", |looking| looking.has_sent(1000));
    assert!(looking.discovery.readings > lists + 1 && after < Duration::from_secs(2), "{after:?}");
    // It does not rest any more: a step is enough.
    let lists = looking.settle();
    looking.until(Signal::SIGUSR2, "written", |looking| looking.has_sent(2000));
    assert_eq!(looking.discovery.readings, lists);
    // Two sockets that a list leaves out are looked for, and are not forgotten.
    let mut found: Vec<Found> = looking.found.drain(2..).collect();
    let missing: Vec<u64> = looking.found.iter().map(|found| found.flow.cookie).collect();
    looking.discovery.before = std::mem::take(&mut looking.found);
    for cookie in &missing {
        looking.discovery.existing.get_mut(cookie).unwrap().last -= 1;
    }
    looking.discovery.find_missing(&mut found);
    assert_eq!(found.len(), 402);
    assert!(missing.iter().all(|cookie| looking.discovery.existing[cookie].last == lists));
    looking.found = found;
    // Those that are gone are not.
    looking.until(Signal::SIGHUP, "closed", |looking| looking.found.len() == 400);
    assert!(looking.discovery.has_lost_sockets());
}
