//! The sampler at a link that is full, and at a client that does not read: what the kernel says held the
//! server back.

use std::io::Write;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use base::part::Watch;
use observe::sampler::{Quantity, Snapshot, Sources, rates};
use sys::child::{Child, Spawn};
use sys::clock::Deadline;
use sys::journal::Journal;
use sys::netns::Namespace;

const LONG: Duration = Duration::from_secs(30);
/// Queue in front of the link: less than a window, so that it overflows.
const QUEUE_BYTES: u64 = 16_000;

/// Where the server is; an address for documentation (RFC 5737).
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const LINK: &str = "eth0";

/// A server's namespace behind a narrow link to a client's, with a process in it.
struct World {
    // Dropped first: it lives in the namespace.
    inside: Child,
    server: Namespace,
    client: Namespace,
    folder: tempfile::TempDir,
}

impl World {
    fn make(name: &str) -> Option<Self> {
        if !sys::environment::is_root() {
            features::skip("needs root");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(&folder.path().join("journal")).unwrap();
        let namespace = |side: &str| {
            let name = format!("kagiri-{}-{name}-{side}", std::process::id());
            Namespace::create(&journal, &name).unwrap()
        };
        let (server, client) = (namespace("server"), namespace("client"));
        let other = client.name();
        server.ip(&format!("link add {LINK} type veth peer name {LINK} netns {other}")).unwrap();
        for (side, address) in [(&server, "192.0.2.1/30"), (&client, "192.0.2.2/30")] {
            side.ip(&format!("address add {address} dev {LINK}\nlink set {LINK} up")).unwrap();
        }
        let (burst, limit) = (QUEUE_BYTES, QUEUE_BYTES);
        let queue = format!("qdisc add dev {LINK} root tbf rate 16mbit burst {burst}b limit {limit}b");
        server.tc(&queue).unwrap();
        let inside = Spawn::new("sleep").arg("600").namespace(&server).start(&journal).unwrap();
        Some(Self { inside, server, client, folder })
    }

    /// A connection whose server sends for as long as it is read.
    fn connect(&self) -> (TcpStream, u16) {
        let listener = self.server.within(|| TcpListener::bind((SERVER, 0))).unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            while stream.write_all(&[5; 64 << 10]).is_ok() {}
        });
        let client = self.client.within(|| TcpStream::connect(address)).unwrap().unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        (client, address.port())
    }

    fn sources(&self, port: u16) -> Sources {
        let watch = Watch {
            tcp_port: Some(port),
            network_device: Some(LINK.to_owned()),
            network_namespace_pid: Some(self.inside.pid().unsigned_abs()),
            ..Watch::default()
        };
        let sources = Sources::open(Path::new("/"), &watch);
        assert!(sources.unavailable().is_empty(), "{:?}", sources.unavailable());
        for quantity in [
            Quantity::NetworkDrops,
            Quantity::NetworkQueue,
            Quantity::DeviceDrops,
            Quantity::Connections,
            Quantity::SenderLimited,
        ] {
            assert!(sources.offered().contains(&quantity), "{}", quantity.name());
        }
        sources
    }
}

/// Reads the sources and goes on with `work` until they have looked at the connections `looks` times more.
fn after_looks(sources: &mut Sources, looks: u32, mut work: impl FnMut()) -> Snapshot {
    let deadline = Deadline::after(LONG);
    let mut raw = sources.read();
    let mut seen = 0;
    while seen < looks {
        assert!(!deadline.passed(), "no look at the connections within {LONG:?}");
        work();
        let next = sources.read();
        seen += u32::from(next.senders != raw.senders);
        raw = next;
    }
    raw
}

#[test]
fn full_link_drops_and_limits_its_senders() {
    let Some(world) = World::make("full") else { return };
    let (mut client, port) = world.connect();
    let mut sources = world.sources(port);
    let before = sources.read();
    // Reads in a thread of its own: while one that also samples is kept off its CPU, the reader holds the
    // sender back.
    let end = client.try_clone().unwrap();
    let reading = std::thread::spawn(move || std::io::copy(&mut client, &mut std::io::sink()));
    let deadline = Deadline::after(LONG);
    // A look at a moment when the reader was kept off its CPU is none at a full link.
    let sample = loop {
        let after = after_looks(&mut sources, 3, || std::thread::sleep(Duration::from_millis(10)));
        let sample = rates(&before, &after);
        if sample.get(Quantity::SenderLimited) > Some(50.0) || deadline.passed() {
            break sample;
        }
    };
    assert!(sample.get(Quantity::NetworkDrops) > Some(0.0), "{sample:?}");
    assert!(sample.get(Quantity::NetworkQueue).is_some(), "{sample:?}");
    assert_eq!(
        sample.get(Quantity::DeviceDrops),
        Some(0.0),
        "the device's own counter does not see its queue"
    );
    assert_eq!(sample.get(Quantity::Connections), Some(1.0));
    assert!(sample.get(Quantity::SenderLimited) > Some(50.0), "{sample:?}");
    end.shutdown(Shutdown::Both).unwrap();
    // Data in flight may cause an error; the thread ends.
    drop(reading.join().unwrap());
    drop(world.folder);
}

#[test]
fn client_that_does_not_read_is_not_network_limited() {
    let Some(world) = World::make("idle") else { return };
    let (client, port) = world.connect();
    // Once its window is full and everything is acknowledged, nothing is in flight.
    let mut queue = sys::netlink::Queue::open(LINK, Some(world.inside.pid())).unwrap().unwrap();
    let deadline = Deadline::after(LONG);
    let mut sent = queue.read().unwrap().bytes;
    while deadline.pause(Duration::from_millis(300)) {
        let now = queue.read().unwrap().bytes;
        if now == sent {
            break;
        }
        sent = now;
    }
    let mut sources = world.sources(port);
    sources.read();
    let after = after_looks(&mut sources, 1, || std::thread::sleep(Duration::from_millis(10)));
    let sample = rates(&after, &after);
    assert_eq!(sample.get(Quantity::Connections), Some(1.0));
    assert!(sample.get(Quantity::SenderLimited) < Some(50.0), "{sample:?}");
    assert!(sample.get(Quantity::SenderLimited).is_some(), "{sample:?}");
    drop(client);
}
