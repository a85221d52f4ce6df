//! The children of a started program are followed; a running program is followed with all its threads, and
//! goes on afterwards.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use observe::timeline::session::Session;
use sys::trace::Target;

use crate::common::{
    BACKENDS, Tally, assert_balanced, backends, can_trace, count, has_python, program, python, reads, rows,
    watch, ways, wish, words,
};

#[test]
fn short_program_is_traced() {
    let _alone = crate::common::alone();
    for backend in backends(|| true) {
        let times = watch(wish(backend, "", true), &words(&["true"]), false).times;
        assert_balanced(&times);
        assert_eq!((times.processes, times.threads), (1, 1));
        assert!(times.wall_s > 0.0 && times.wall_s < 10.0, "{times:#?}");
        assert!(times.ended.is_some_and(|ended| ended.contains('0')));
    }
}

#[test]
fn thousand_children_are_traced() {
    let _alone = crate::common::alone();
    for (backend, picture) in ways(|| true) {
        // Each writes once, in a process of its own.
        let lines = "n=0; while [ $n -lt 1000 ]; do (echo $n >/dev/null) & n=$((n+1)); done; wait";
        let watched = watch(wish(backend, "write", picture), &words(&["sh", "-c", lines]), false);
        let times = watched.times;
        assert_balanced(&times);
        assert_eq!((times.processes, times.events_lost), (1001, 0), "{backend:?} {:?}", times.doubts);
        assert_eq!(count(&times, "write"), 1000);
        if let Some(picture) = watched.picture {
            let writers = picture.threads.iter().filter(|lane| !lane.calls.is_empty()).count();
            assert_eq!(writers, 1000);
        }
    }
}

#[test]
fn trace_waits_for_orphans() {
    let _alone = crate::common::alone();
    for backend in backends(|| true) {
        // The shell ends at once; its child writes later.
        let lines = "(sleep 0.2; echo late >/dev/null) &";
        let times = watch(wish(backend, "write", false), &words(&["sh", "-c", lines]), false).times;
        assert_eq!(count(&times, "write"), 1, "{times:#?}");
        assert!(times.wall_s >= 0.2);
    }
}

#[test]
fn exec_in_a_thread_is_traced() {
    let _alone = crate::common::alone();
    for (backend, picture) in ways(has_python) {
        // It takes over the number of its process, whose first thread ends by it.
        let lines = "
import os, threading, time
shell = ['sh', '-c', 'echo one >/dev/null; echo two >/dev/null']
threading.Thread(target=lambda: os.execv('/bin/sh', shell)).start()
time.sleep(60)
";
        let times = watch(wish(backend, "write", picture), &python(lines), false).times;
        assert_balanced(&times);
        assert_eq!((times.processes, count(&times, "write")), (1, 2), "{backend:?} {times:#?}");
        assert!(times.wall_s < 50.0);
    }
}

#[test]
fn threads_have_names_and_lanes() {
    let _alone = crate::common::alone();
    for backend in backends(has_python) {
        let lines = "
import os, threading
def work():
  open('/proc/self/task/%d/comm' % threading.get_native_id(), 'w').write('worker')
  for _ in range(10): os.pwrite(fd, b'x', 0)
fd = os.open('/dev/null', os.O_WRONLY)
threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
";
        let watched = watch(wish(backend, "pwrite64", true), &python(lines), false);
        let picture = watched.picture.unwrap();
        assert_eq!(watched.times.threads, 9);
        let workers: Vec<_> = picture.threads.iter().filter(|lane| lane.name == "worker").collect();
        assert_eq!(workers.len(), 8, "{:?}", picture.threads.iter().map(|l| &l.name).collect::<Vec<_>>());
        assert!(workers.iter().all(|lane| lane.calls.len() == 10 && lane.process != lane.thread));
        let apart =
            |calls: &[base::timeline::CallSpan]| calls.windows(2).all(|two| two[0].to_ns <= two[1].from_ns);
        assert!(picture.threads.iter().all(|lane| apart(&lane.calls)));
        assert!(picture.cpus.iter().any(|cpu| !cpu.runs.is_empty()), "who ran on which CPU");
        let within =
            |span: &base::timeline::CpuSpan| span.from_ns <= span.to_ns && span.to_ns <= picture.length_ns;
        assert!(picture.cpus.iter().all(|cpu| cpu.runs.iter().all(within)));
    }
}

#[test]
fn running_process_is_traced_and_continues() {
    let _alone = crate::common::alone();
    for backend in backends(has_python) {
        let lines = "
import os, threading, time
def work(n):
  fd = os.open('/dev/null', os.O_WRONLY)
  while True:
    os.pwrite(fd, b'xy', 0)
    count(n)
    time.sleep(0.001)
for n in range(3): threading.Thread(target=work, args=(n,), daemon=True).start()
print('on', flush=True)
time.sleep(60)
";
        let tally = Tally::new(3);
        let mut child =
            program(&python(&tally.with(lines))).stdout(Stdio::piped()).spawn().expect("python starts");
        let mut said = [0; 2];
        child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        let pid = child.id().cast_signed();
        let mut session = Session::open(wish(backend, "pwrite64", true)).unwrap();
        session.follow(Target::Process(pid)).unwrap();
        // The first count may include earlier writes.
        tally.pump_until(&mut session, 2);
        let watched = session.finish("python", None).unwrap();
        let times = watched.times;
        assert_balanced(&times);
        assert_eq!((times.processes, times.threads), (1, 4), "{times:#?}");
        let writers = watched.picture.unwrap().threads.iter().filter(|lane| !lane.calls.is_empty()).count();
        assert_eq!(writers, 3, "all threads that were there");
        assert!(rows(&times, "pwrite64")[0].is_some_and(|row| row.returned == 2 * row.count));
        assert!(child.try_wait().unwrap().is_none(), "it goes on");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// Waits until a process waits for a line of its input.
fn await_read(pid: i32, mut meanwhile: impl FnMut()) {
    let deadline = sys::clock::Deadline::after(Duration::from_secs(20));
    while !reads(pid, 0) {
        assert!(deadline.pause(Duration::from_millis(2)), "it reads");
        meanwhile();
    }
}

#[test]
fn calls_in_progress_at_the_start_are_reported() {
    let _alone = crate::common::alone();
    for (backend, picture) in ways(|| true) {
        // A program that it executes in between does not start the trace.
        let lines = "read first; sh -c :; echo on >&2; read second";
        let mut shell = Command::new("sh");
        shell.args(["-c", lines]).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = shell.spawn().expect("a shell starts");
        let pid = child.id().cast_signed();
        await_read(pid, || ());
        // For as long as it waits in the first, and until it waits in the second.
        for (answers, unfinished) in [(0, 1), (1, 0)] {
            let mut session = Session::open(wish(backend, "read", picture)).unwrap();
            session.follow(Target::Process(pid)).unwrap();
            let began = Instant::now();
            std::thread::sleep(Duration::from_millis(50));
            if answers > 0 {
                child.stdin.as_mut().unwrap().write_all(b"x\n").unwrap();
                // Only then it goes on to the second; before, it may be in the first, or in a call of another
                // kind.
                let mut said = [0; 3];
                child.stderr.as_mut().unwrap().read_exact(&mut said).unwrap();
                await_read(pid, || session.pump());
            }
            let watched = began.elapsed();
            let times = session.finish("shell", None).unwrap().times;
            assert_balanced(&times);
            assert_eq!(times.calls_lost, 0, "{times:#?}");
            let before: u64 = times.unfinished.iter().map(|row| row.began_before).sum();
            assert_eq!(before, unfinished, "{backend:?} {picture} {times:#?}");
            assert!(times.wall_s >= watched.as_secs_f64(), "{watched:?} {times:#?}");
            if answers > 0 {
                // The first read's end is seen, its beginning is not: it has no time.
                assert!(count(&times, "read") >= 1, "the rest of the line: {times:#?}");
                assert_eq!(times.unfinished.len(), 1, "the second: {times:#?}");
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn socket_queues_are_drawn() {
    let _alone = crate::common::alone();
    let [bpf, perf] = BACKENDS;
    let backend = if can_trace(bpf) { bpf } else { perf };
    if !has_python() || !can_trace(backend) {
        return;
    }
    let (folder, path) = crate::common::folder();
    let sign = path.join("written");
    let lines = format!(
        "import os, socket, time\nserver = socket.create_server(('127.0.0.1', 0))\n\
         client = socket.create_connection(server.getsockname())\nother = server.accept()[0]\n\
         client.sendall(bytes(5000))\nopen({:?}, 'w').close()\ntime.sleep(60)",
        sign.display().to_string()
    );
    let mut session = Session::open(wish(backend, "", true)).unwrap();
    let mut family = crate::common::start(&mut session, &python(&lines));
    let deadline = sys::clock::Deadline::after(Duration::from_secs(20));
    while !sign.exists() {
        assert!(!family.has_ended() && deadline.pause(Duration::from_millis(2)));
        session.pump();
    }
    // Whose sockets are whose is looked up five times a second, and less often where looking takes long.
    for _ in 0..200 {
        std::thread::sleep(Duration::from_millis(10));
        session.pump();
    }
    let picture = session.finish("python", None).unwrap().picture.unwrap();
    family.end().unwrap();
    let most = |name: &str| {
        let found = picture.counters.iter().find(|counter| counter.name == name);
        found.map(|counter| counter.points.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0))
    };
    assert_eq!(most("receive queues"), Some(5000), "{:?}", picture.counters);
    assert!(most("congestion windows") > Some(1000), "{:?}", picture.counters);
    let in_order = |points: &[(u64, u64)]| points.windows(2).all(|two| two[0].0 < two[1].0);
    assert!(picture.counters.iter().all(|counter| in_order(&counter.points)));
    drop(folder);
}
