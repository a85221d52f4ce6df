//! A call is blocked if its thread was switched out, however long the call took.

use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use observe::timeline::calls;
use observe::timeline::session::{Session, Wish};
use sys::trace::Target;

use crate::common::{
    Tally, WAYS, assert_balanced, backends, can_trace, count, has_python, program, python, rows, start,
    watch, ways, wish,
};

/// 40 reads of a pipe that a second thread fills 2 ms after they were seen to wait, and 40 that find it full.
/// It looks with another call than those that are counted.
const PIPE: &str = "
import os, select, threading, time
r, w = os.pipe()
asked = threading.Semaphore(0)
call = os.open('/proc/self/task/%d/syscall' % threading.get_native_id(), os.O_RDONLY)
waiting = b'%d 0x%x ' % (read_call, r)
def feed():
  for _ in range(40):
    asked.acquire()
    while not os.pread(call, 100, 0).startswith(waiting): time.sleep(0.0002)
    time.sleep(0.002)
    os.write(w, b'x')
thread = threading.Thread(target=feed)
thread.start()
for _ in range(40):
  asked.release()
  os.read(r, 1)
for _ in range(40):
  os.write(w, b'y')
  select.select([r], [], [])
  os.read(r, 1)
for _ in range(40):
  select.select([r], [], [], 0.001)
thread.join()
";

#[test]
fn blocked_and_ready_calls_are_separated() {
    let _alone = crate::common::alone();
    for (backend, picture) in ways(has_python) {
        let read = calls::read("read").expect("a call")[0].number;
        let lines = format!("read_call = {read}\n{PIPE}");
        let watched = watch(wish(backend, "", picture), &python(&lines), false);
        let times = watched.times;
        assert_balanced(&times);
        let [_, waited] = rows(&times, "read");
        let waited = waited.expect("40 reads waited");
        assert!(waited.count >= 40 && waited.p50_us > 1500.0, "{waited:?}");
        // The C library's select() is this call.
        let [ready, blocked] = rows(&times, "pselect6").map(|row| row.cloned().expect("in both states"));
        assert!(ready.count + blocked.count == 80 && blocked.count >= 40, "{ready:?} {blocked:?}");
        assert!(
            blocked.count - blocked.preempted.expect("a count") >= 40,
            "those that timed out gave up the CPU"
        );
        assert!(blocked.p50_us > 900.0 && ready.p50_us < 900.0, "{ready:?} {blocked:?}");
        assert_eq!(times.threads, 2);
    }
}

#[test]
fn unfinished_call_is_reported() {
    let _alone = crate::common::alone();
    for (backend, picture) in ways(has_python) {
        let mut session = Session::open(wish(backend, "", picture)).unwrap();
        let (folder, path) = crate::common::folder();
        let sign = path.join("waits");
        let lines = format!(
            "import os, select\nr, w = os.pipe()\nopen({:?}, 'w').close()\nselect.select([r], [], [])",
            sign.display().to_string()
        );
        let mut family = start(&mut session, &python(&lines));
        while !sign.exists() {
            assert!(!family.has_ended(), "it waits");
            session.pump();
        }
        // It is about to wait; asleep it does (proc(5), "State").
        let deadline = sys::clock::Deadline::after(Duration::from_secs(20));
        while !is_asleep(family.pid()) && deadline.pause(Duration::from_millis(5)) {
            session.pump();
        }
        let times = session.finish("test", None).unwrap().times;
        assert_balanced(&times);
        assert!(times.unfinished.iter().any(|row| row.name == "pselect6" && row.count == 1), "{times:#?}");
        assert_eq!(count(&times, "pselect6"), 0);
        family.end().unwrap();
        drop(folder);
    }
}

#[test]
fn single_thread_can_be_traced() {
    let _alone = crate::common::alone();
    for backend in backends(|| true) {
        let wish = Wish { cost_within: Duration::from_secs(1), ..wish(backend, "write", false) };
        let mut session = Session::open(wish).unwrap();
        session.follow(Target::Thread(sys::thread::thread_id())).unwrap();
        for _ in 0..1000 {
            sys::trace::call_nothing();
        }
        let times = session.finish("own thread", None).unwrap().times;
        assert!(count(&times, "write") >= 1000, "{times:#?}");
        assert!(times.cost.is_some_and(|cost| cost.traced_ns > 0.0 && cost.batches > 10), "{:?}", times.cost);
    }
}

/// 20 threads that sleep again and again, for a time from the call on: to a moment that has passed one does
/// not.
const SLEEPERS: &str = "
import select, threading, time
def sleep(n):
  while True:
    select.select([], [], [], 0.003)
    count(n)
for n in range(20): threading.Thread(target=sleep, args=(n,), daemon=True).start()
print('on', flush=True)
time.sleep(60)
";

#[test]
fn waiting_call_at_the_end_is_not_counted_as_ready() {
    let _alone = crate::common::alone();
    if !has_python() {
        return;
    }
    let tally = Tally::new(20);
    let mut child = program(&python(&tally.with(SLEEPERS))).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = [0; 2];
    child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    for (backend, picture) in WAYS.into_iter().filter(|(backend, _)| can_trace(*backend)) {
        let mut session = Session::open(wish(backend, "pselect6", picture)).unwrap();
        session.follow(Target::Process(child.id().cast_signed())).unwrap();
        // Each has slept once from beginning to end since.
        tally.pump_until(&mut session, 2);
        let times = session.finish("sleepers", None).unwrap().times;
        assert_balanced(&times);
        assert_eq!(times.calls_lost, 0, "{times:#?}");
        let [ready, blocked] = rows(&times, "pselect6");
        assert!(ready.is_none() && blocked.is_some_and(|row| row.count >= 20), "{times:#?}");
        let unfinished: u64 = times.unfinished.iter().map(|row| row.count).sum();
        assert!(unfinished <= 20, "one of each thread: {times:#?}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

fn is_asleep(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
}
