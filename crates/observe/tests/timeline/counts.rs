//! Every call is counted once, or reported as lost.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use observe::timeline::session::{Session, Wish};
use sys::trace::Target;

use crate::common::{
    BACKENDS, assert_balanced, backends, can_trace, count, has_python, python, rows, watch, ways, wish,
};

/// A loop of three calls; Python's start makes neither the first nor the last of them.
fn loop_of(times: u32) -> Vec<std::ffi::OsString> {
    python(&format!(
        "import os\nfd = os.open('/dev/null', os.O_RDWR)\nfor n in range({times}):\n  os.pwrite(fd, b'abc', \
         0)\n  os.pread(fd, 8, 0)\n  os.writev(fd, [b'1', b'23'])"
    ))
}

#[test]
fn loop_of_three_calls_is_counted_exactly() {
    let _alone = crate::common::alone();
    for (backend, picture) in ways(has_python) {
        let watched = watch(wish(backend, "", picture), &loop_of(2000), false);
        let times = &watched.times;
        assert_balanced(times);
        assert_eq!((times.events_lost, times.calls_lost), (0, 0), "{times:#?}");
        for name in ["pwrite64", "pread64", "writev"] {
            // Python's own start reads some files by pread.
            let found = count(times, name);
            assert!(found == 2000 || (name == "pread64" && found > 2000), "{backend:?} {name} {found}");
        }
        let [ready, _] = rows(times, "pwrite64");
        let ready = ready.expect("a write to nowhere does not wait");
        assert!(ready.p50_us > 0.0 && ready.p50_us <= ready.p99_us && ready.p99_us <= ready.max_us);
        let returned: u64 = rows(times, "pwrite64").into_iter().flatten().map(|row| row.returned).sum();
        assert_eq!(returned, 3 * 2000, "bytes");
        let spans = watched.picture.map(|picture| {
            let name = picture.names.iter().position(|name| name == "pwrite64").unwrap();
            let calls = picture.threads.iter().flat_map(|lane| &lane.calls);
            calls.filter(|call| usize::from(call.name) == name).count()
        });
        assert_eq!(spans, picture.then_some(2000));
        assert!(times.wall_s > 0.0 && times.calls.iter().all(|row| row.wall_share <= 1.0));
    }
}

#[test]
fn events_beyond_one_drain_are_delivered_later() {
    let _alone = crate::common::alone();
    // The other backend counts what is in its rings only.
    let [bpf, _] = BACKENDS;
    if !has_python() || !can_trace(bpf) {
        return;
    }
    let wish = Wish { ring_bytes: 64 << 20, ..wish(bpf, "pwrite64,writev", true) };
    let times = watch(wish, &loop_of(34_000), true).times;
    assert!(times.events > sys::trace::EVENTS_AT_ONCE as u64, "{times:#?}");
    assert_eq!((count(&times, "pwrite64"), count(&times, "writev")), (34_000, 34_000), "{times:#?}");
    assert_balanced(&times);
}

#[test]
fn losses_of_a_small_ring_are_counted_and_drawn() {
    let _alone = crate::common::alone();
    for backend in backends(has_python) {
        let mut wish = wish(backend, "pwrite64", true);
        wish.ring_bytes = 64 << 10;
        let watched = watch(wish, &loop_of(10_000), true);
        let times = &watched.times;
        assert_balanced(times);
        assert!(times.events_lost > 0, "{times:#?}");
        assert_eq!(count(times, "pwrite64") + times.calls_lost, 10_000, "{times:#?}");
        assert!(times.doubts.iter().any(|doubt| doubt.contains("lost")), "{:?}", times.doubts);
        let picture = watched.picture.unwrap();
        assert!(!picture.losses.is_empty());
        let lost: u64 = picture.losses.iter().map(|loss| loss.events).sum();
        // The records of threads are counted where a stretch is drawn, too.
        assert!(lost >= times.events_lost, "{lost} of {}", times.events_lost);
        let calls = picture.threads.iter().flat_map(|lane| &lane.calls).filter(|call| !call.unfinished);
        assert_eq!(calls.count() as u64, count(times, "pwrite64"), "the picture has what the table has");
    }
}

#[test]
fn full_picture_is_marked_and_the_table_continues() {
    let _alone = crate::common::alone();
    let [bpf, perf] = BACKENDS;
    let backend = if can_trace(bpf) { bpf } else { perf };
    if !has_python() || !can_trace(backend) {
        return;
    }
    let mut wish = wish(backend, "pwrite64", true);
    wish.spans_max = Some(100);
    let watched = watch(wish, &loop_of(2000), false);
    assert_eq!(count(&watched.times, "pwrite64"), 2000);
    assert!(watched.times.doubts.iter().any(|doubt| doubt.contains("picture is full")));
    let picture = watched.picture.unwrap();
    assert_eq!(picture.spans() + picture.threads.len(), 100);
    assert!(picture.left_out.is_some_and(|(count, _)| count >= 1900));
}

#[test]
fn softirqs_of_a_busy_network_are_counted() {
    let _alone = crate::common::alone();
    let busy = Busy::start();
    for (backend, picture) in ways(|| true) {
        for _ in 0..2 {
            let mut session =
                Session::open(Wish { softirqs: true, ..wish(backend, "sendto", picture) }).unwrap();
            session.follow(Target::Thread(busy.thread)).unwrap();
            let from = busy.datagrams();
            while busy.datagrams() < from + 2000 {
                session.pump();
            }
            let times = session.finish("sender", None).unwrap().times;
            assert_balanced(&times);
            assert!(times.softirqs.iter().any(|row| row.name == "NET_RX" && row.count > 0), "{times:#?}");
            // The first of them may have been under way when the watching began, and was not entered then.
            assert!(count(&times, "sendto") + times.calls_lost >= 1999, "{times:#?}");
        }
    }
}

/// A thread that sends datagrams to itself without a pause, until this is dropped.
struct Busy {
    thread: i32,
    sent: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    sending: Option<JoinHandle<()>>,
}

impl Busy {
    fn start() -> Self {
        let (sent, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, over) = (Arc::clone(&sent), Arc::clone(&is_over));
        let (sender, receiver) = std::sync::mpsc::channel();
        let sending = std::thread::spawn(move || {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
            let own = socket.local_addr().expect("it is bound");
            sender.send(sys::thread::thread_id()).expect("it is waited for");
            while !over.load(Ordering::Relaxed) {
                socket.send_to(b"x", own).expect("loopback takes it");
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { thread: receiver.recv().expect("it tells"), sent, is_over, sending: Some(sending) }
    }

    fn datagrams(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.sending.take().map(JoinHandle::join);
    }
}
