//! Probes over real sockets, with whatever a network and its strangers do to them.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fleet::clock::wire::{DATAGRAM_BYTES, Message, Rejected, seal};
use fleet::clock::{BatchRequest, BatchResult, Counts, DatagramAddress, Key, Offset, Prober, Responder};
use proptest::prelude::*;

const LONG: Duration = Duration::from_secs(20);

fn loopback() -> DatagramAddress {
    DatagramAddress::Udp((Ipv4Addr::LOCALHOST, 0).into())
}

fn udp(address: &DatagramAddress) -> SocketAddr {
    match address {
        DatagramAddress::Udp(address) => *address,
        DatagramAddress::Unix(path) => panic!("{path:?} is no UDP address"),
    }
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket
}

fn message() -> impl Strategy<Value = Message> {
    (any::<u32>(), any::<[u64; 3]>(), any::<bool>()).prop_map(|(sequence, [t1_ns, t2_ns, t3_ns], asks)| {
        if asks {
            Message::Request { sequence, t1_ns }
        } else {
            Message::Response { sequence, t1_ns, t2_ns, t3_ns }
        }
    })
}

proptest! {
    #[test]
    fn probe_messages_round_trip(message in message(), key in any::<[u8; 32]>()) {
        let key = Key::new(key);
        prop_assert_eq!(Message::read(&message.write(&key), &key), Ok(message));
    }

    #[test]
    fn changed_or_foreign_probes_are_rejected(
        message in message(), keys in any::<[[u8; 32]; 2]>(), at in 0..DATAGRAM_BYTES, bits in 1_u8..,
    ) {
        let [key, other] = keys.map(Key::new);
        let mut bytes = message.write(&key);
        prop_assert_eq!(Message::read(&bytes, &other), Err(Rejected::OtherKey));
        bytes[at] ^= bits;
        prop_assert!(Message::read(&bytes, &key).is_err());
    }

    #[test]
    fn any_bytes_are_read_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Message::read(&bytes, &Key::new([7; 32])).is_err());
    }

    /// Also those of a sender that holds the key.
    #[test]
    fn only_canonical_probes_are_read(mut bytes in any::<[u8; DATAGRAM_BYTES]>(), kind in 0_u8..4) {
        let key = Key::new([7; 32]);
        (bytes[5], bytes[6], bytes[7]) = (kind, 0, bytes[7] & 1);
        seal(&mut bytes, &key);
        if let Ok(message) = Message::read(&bytes, &key) {
            prop_assert_eq!(message.write(&key), bytes);
        }
    }
}

#[test]
fn key_is_not_printed() {
    let key = Key::random();
    assert_ne!(key, Key::random());
    assert_eq!(format!("{key:?}"), format!("Key({:08x})", key.id()));
    let text = serde_json::to_string(&key).unwrap();
    assert_eq!(serde_json::from_str::<Key>(&text).unwrap(), key);
}

#[test]
fn only_key_holders_get_responses_and_all_are_counted() {
    let key = Key::random();
    let responder = Responder::start(&loopback(), key.clone()).unwrap();
    let stranger = socket();
    let say =
        |bytes: &[u8]| assert_eq!(stranger.send_to(bytes, udp(responder.address())).unwrap(), bytes.len());
    let question = Message::Request { sequence: 3, t1_ns: 4 };
    let good = question.write(&key);
    let changed = |at: usize| {
        let mut bytes = good;
        bytes[at] ^= 1;
        bytes
    };
    for len in 0..DATAGRAM_BYTES {
        say(&good[..len]);
    }
    say(&[&good[..], &[0]].concat());
    say(&[7; 60_000]);
    say(&changed(0));
    // An answer is no question, even if it is authentic.
    say(&Message::Response { sequence: 3, t1_ns: 4, t2_ns: 5, t3_ns: 6 }.write(&key));
    say(&changed(4));
    say(&question.write(&Key::random()));
    say(&changed(16));
    say(&changed(DATAGRAM_BYTES - 1));
    // The only answer is that to the last probe, because no other was answered.
    say(&good);
    let mut buffer = [0; 2000];
    let (len, from) = stranger.recv_from(&mut buffer).unwrap();
    assert_eq!((len, from), (DATAGRAM_BYTES, udp(responder.address())), "as long as the question");
    let Ok(Message::Response { sequence: 3, t1_ns: 4, t2_ns, t3_ns }) = Message::read(&buffer[..len], &key)
    else {
        panic!("{:?}", Message::read(&buffer[..len], &key));
    };
    assert!(t2_ns <= t3_ns && t3_ns <= sys::clock::monotonic_ns());
    stranger.set_nonblocking(true).unwrap();
    assert!(stranger.recv_from(&mut buffer).is_err(), "a second answer");
    // The last is counted a moment after it is sent.
    let until = Instant::now() + LONG;
    while responder.counts().answered == 0 && Instant::now() < until {
        std::thread::yield_now();
    }
    let malformed = DATAGRAM_BYTES as u64 + 4;
    let expected =
        Counts { answered: 1, malformed, other_version: 1, other_key: 1, forged: 2, ..Counts::default() };
    assert_eq!(responder.counts(), expected);
}

#[test]
fn dropped_responder_frees_its_address() {
    let key = Key::random();
    let responder = Responder::start(&loopback(), key.clone()).unwrap();
    let address = responder.address().clone();
    let taken = Responder::start(&address, key.clone()).unwrap_err();
    let port = address.to_string().trim_start_matches("udp/").to_owned();
    assert!(taken.to_string().contains(&format!("cannot listen at {port}")), "{taken}");
    drop(responder);
    let again = Responder::start(&address, key.clone()).unwrap();
    assert!(Prober::open(&address, key).unwrap().batch(BatchRequest::default()).unwrap().batch.is_some());
    assert!(again.counts().answered > 0);
}

#[test]
fn batch_without_responses_ends_in_time() {
    let silent = socket();
    let target = DatagramAddress::Udp(silent.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let no_file = DatagramAddress::Unix(folder.path().join("nobody.sock"));
    for target in [target, no_file] {
        let mut prober = Prober::open(&target, Key::random()).unwrap();
        let within = Duration::from_millis(250);
        let started = Instant::now();
        let probed = prober.batch(BatchRequest { within, ..BatchRequest::default() }).unwrap();
        assert!(started.elapsed() >= within, "it gave up early");
        assert_eq!((probed.batch, probed.lost), (None, probed.sent));
        assert!(probed.sent >= 1);
    }
    let nowhere = DatagramAddress::Unix(folder.path().join("none").join("clock.sock"));
    let error = Prober::open(&nowhere, Key::random()).unwrap_err();
    assert!(error.to_string().contains("clock.sock"), "{error}");
}

#[test]
fn flood_does_not_delay_a_batch() {
    let flooder = socket();
    let target = DatagramAddress::Udp(flooder.local_addr().unwrap());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (_, asker) = flooder.recv_from(&mut [0; DATAGRAM_BYTES]).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                // It may be gone already.
                drop(flooder.send_to(&[0; DATAGRAM_BYTES], asker));
            }
        });
        let mut prober = Prober::open(&target, Key::random()).unwrap();
        // A flooder without a CPU for a whole batch sends nothing in it: then the next batch counts.
        let (began, mut batches) = (Instant::now(), Vec::new());
        let is_flooded =
            |batches: &[(BatchResult, Duration)]| batches.iter().any(|(probed, _)| probed.rejected > 0);
        while !is_flooded(&batches) && began.elapsed() < LONG {
            let started = Instant::now();
            let ask =
                BatchRequest { count: 3, within: Duration::from_millis(250), ..BatchRequest::default() };
            batches.push((prober.batch(ask).unwrap(), started.elapsed()));
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(is_flooded(&batches), "{batches:?}");
        assert!(batches.iter().all(|(probed, took)| probed.batch.is_none() && *took < LONG), "{batches:?}");
    });
}

/// A relay between agent and coordinator that drops, duplicates, delays and forges.
fn on_the_way(between: &UdpSocket, coordinator: SocketAddr) {
    let mut buffer = [0; 2000];
    let (mut agent, mut held, mut number) = (None, Vec::new(), 0_u32);
    // An empty datagram of the test's ends it.
    while let Ok((len @ 1.., from)) = between.recv_from(&mut buffer) {
        let datagram = buffer[..len].to_vec();
        number += 1;
        if from != coordinator {
            agent = Some(from);
            if number % 5 != 0 {
                between.send_to(&datagram, coordinator).unwrap();
            }
            continue;
        }
        let Some(agent) = agent else { continue };
        held.push(datagram.clone());
        match number % 7 {
            0 => {}
            1 => {
                // Repeated and forged responses.
                for old in held.iter().rev().take(20) {
                    between.send_to(old, agent).unwrap();
                }
                between.send_to(&[0; DATAGRAM_BYTES], agent).unwrap();
            }
            2 => std::thread::sleep(Duration::from_millis(5)),
            _ => drop(between.send_to(&datagram, agent).unwrap()),
        }
    }
}

#[test]
fn loss_delay_and_forgery_widen_but_never_break_the_bound() {
    let key = Key::random();
    let responder = Responder::start(&loopback(), key.clone()).unwrap();
    let between = socket();
    let address = between.local_addr().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| on_the_way(&between, udp(responder.address())));
        let mut prober = Prober::open(&DatagramAddress::Udp(address), key.clone()).unwrap();
        let ask = BatchRequest { count: 100, good_ns: 0, within: LONG };
        let probed = [0; 4].map(|_| prober.batch(ask).unwrap());
        socket().send_to(b"", address).unwrap();
        for probed in probed {
            let batch = probed.batch.expect("most are answered");
            assert!(batch.lower.offset_ns <= 0 && 0 <= batch.upper.offset_ns, "{probed:?}");
            assert_eq!(batch.n + u64::from(probed.lost), u64::from(probed.sent), "{probed:?}");
            assert!(probed.lost > 0 && probed.stale > 0 && probed.rejected > 0, "{probed:?}");
        }
        let batches: Vec<_> = probed.iter().filter_map(|probed| probed.batch).collect();
        assert!(Offset::from_batches(&batches).is_ok());
    });
}

#[test]
fn batch_ends_early_with_a_good_bound() {
    let folder = tempfile::tempdir().unwrap();
    let key = Key::random();
    for address in [loopback(), DatagramAddress::Unix(folder.path().join("clock.sock"))] {
        let responder = Responder::start(&address, key.clone()).unwrap();
        let mut prober = Prober::open(responder.address(), key.clone()).unwrap();
        let ask = BatchRequest { good_ns: LONG.as_nanos() as u64, within: LONG, ..BatchRequest::default() };
        let probed = prober.batch(ask).unwrap();
        let batch = probed.batch.unwrap();
        assert!((8..64).contains(&batch.n), "{probed:?}");
        assert_eq!(batch.same_kernel, matches!(address, DatagramAddress::Unix(_)));
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a socket's file was left behind");
}
