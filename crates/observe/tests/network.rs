//! The sampler at a link that is full, and at a client that does not read: what the kernel says held the server back.

#![allow(clippy::unwrap_used)] // clippy exempts test functions only, not their helpers

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use base::part::Watch;
use kagiri_observe::sampler::{Quantity, Raw, Sources, rates};
use sys::child::{Child, Spawn};
use sys::clock::Deadline;
use sys::journal::Journal;
use sys::netns::{Netns, Shape, Subnet};

const LONG: Duration = Duration::from_secs(30);
/// What may wait in front of the link: less than a window, so that it overflows.
const QUEUE_BYTES: u64 = 16_000;

/// A namespace behind a narrow link, with a process in it.
struct World {
    // Dropped first: it lives in the namespace.
    inside: Child,
    namespace: Netns,
    folder: tempfile::TempDir,
}

impl World {
    fn make(number: u8) -> Option<Self> {
        if !sys::environment::is_root() {
            eprintln!("skipped: needs root");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(&folder.path().join("journal")).unwrap();
        let subnet = Subnet::new([10, 214, number, 0].into(), 30).unwrap();
        let namespace = Netns::create(&journal, &format!("observe-{number}"), subnet).unwrap();
        let shape = Shape { rate_bit_per_s: 16_000_000, burst_bytes: QUEUE_BYTES, buffer_bytes: QUEUE_BYTES };
        namespace.shape(shape).unwrap();
        let inside = Spawn::new("sleep").arg("600").netns(&namespace).start(&journal).unwrap();
        Some(Self { inside, namespace, folder })
    }

    /// A connection whose server is in the namespace and sends for as long as it is read.
    fn connect(&self) -> (TcpStream, u16) {
        let listener = self.namespace.within(|| TcpListener::bind((self.namespace.inner_address(), 0)));
        let listener = listener.unwrap().unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            while stream.write_all(&[5; 64 << 10]).is_ok() {}
        });
        let client = TcpStream::connect((self.namespace.inner_address(), port)).unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        (client, port)
    }

    fn sources(&self, port: u16) -> Sources {
        let watch = Watch {
            tcp_port: Some(port),
            network_device: Some(self.namespace.inner_link().to_owned()),
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
fn after_looks(sources: &mut Sources, looks: u32, mut work: impl FnMut()) -> Raw {
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
fn a_full_link_drops_and_holds_its_senders_back() {
    let Some(world) = World::make(81) else { return };
    let (mut client, port) = world.connect();
    let mut sources = world.sources(port);
    let before = sources.read();
    let mut buffer = vec![0; 64 << 10];
    let after = after_looks(&mut sources, 3, || client.read_exact(&mut buffer).unwrap());
    let sample = rates(&before, &after);
    assert!(sample.get(Quantity::NetworkDrops) > Some(0.0), "{sample:?}");
    assert!(sample.get(Quantity::NetworkQueue).is_some(), "{sample:?}");
    assert_eq!(
        sample.get(Quantity::DeviceDrops),
        Some(0.0),
        "the device's own counter does not see its queue"
    );
    assert_eq!(sample.get(Quantity::Connections), Some(1.0));
    assert!(sample.get(Quantity::SenderLimited) > Some(50.0), "{sample:?}");
    drop(world.folder);
}

#[test]
fn a_client_that_does_not_read_is_not_the_networks_fault() {
    let Some(world) = World::make(82) else { return };
    let (client, port) = world.connect();
    // Once its window is full and all is acknowledged nothing is on its way any more.
    let link = world.namespace.inner_link().to_owned();
    let mut queue = sys::netlink::Queue::open(&link, Some(world.inside.pid())).unwrap();
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
