//! Every run ends with a result and a reason.

use std::sync::Arc;
use std::time::{Duration, Instant};

use files::engine::report::{Durable, Ended};
use files::engine::{durable, sync_file_system};
use sys::clock::monotonic_ns;

use super::{run, run_alone, run_in};

const CREATE: &str = "define fileset name=a,path=$dir,size=1k,entries=30,prealloc=0\n\
    define process name=p { thread name=t { flowop createfile name=create,filesetname=a,fd=1\n\
    flowop closefile name=close,fd=1 } }\nrun";

#[test]
fn exhausted_slots_end_a_run_by_its_mode() {
    let outcome = run(CREATE);
    let Ended::Exhausted(why) = &outcome.report.ended else { panic!("{:?}", outcome.report.ended) };
    assert!(
        why.contains("the fileset a had no file left to create for create (line 2 of the program)"),
        "{why}"
    );
    assert_eq!(outcome.row("create").all_count, 30, "what was done is reported");
    for mode in ["firstdone", "alldone"] {
        let outcome = run(&format!("set mode quit {mode}\n{CREATE}"));
        assert_eq!((outcome.report.ended.clone(), outcome.row("create").count), (Ended::Done, 30), "{mode}");
    }
}

#[test]
fn program_that_cannot_work_says_its_line() {
    let twice = CREATE.replace("flowop closefile name=close,fd=1", "");
    let Ended::Failed(why) = run(&twice).report.ended else { panic!("it ended otherwise") };
    assert!(why.contains("line 2: create cannot run: its slot fd=1 has a file already"), "{why}");
    let nothing = "define process name=p { thread name=t { flowop read name=r,fd=5,iosize=4k } }\nrun";
    let Ended::Failed(why) = run(nothing).report.ended else { panic!("it ended otherwise") };
    assert!(why.contains("line 1: r cannot run: its slot fd=5 has no file"), "{why}");
}

#[test]
fn failed_calls_are_counted_with_their_reason() {
    // Another program removes the files under it.
    let dir = tempfile::tempdir().unwrap();
    let text = "define fileset name=a,path=$dir,size=1k,entries=5,prealloc\n\
        define process name=p { thread name=t { flowop delay name=wait,value=1\n\
        flowop openfile name=open,filesetname=a,fd=1\n flowop closefile name=close,fd=1 } }\nrun";
    let set = dir.path().join("a");
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            while std::fs::read_dir(&set).map_or(0, Iterator::count) < 5 {
                std::thread::sleep(Duration::from_millis(1));
            }
            super::listed(&set).into_iter().for_each(|(path, _)| std::fs::remove_file(path).unwrap());
        });
        run_in(dir, text, &[], |settings| settings.hold_ns = 2_500_000_000)
    });
    let errors = &outcome.row("open").errors;
    assert!(errors.keys().any(|message| message.contains("open: No such file or directory")), "{errors:?}");
}

#[test]
fn errors_of_asynchronous_writes_that_nobody_waits_for_are_counted() {
    // Another program puts a device that is always full in the place of the file.
    let dir = tempfile::tempdir().unwrap();
    let text = "define file name=a,path=$dir,size=4k,prealloc\n\
        define process name=p { thread name=t { flowop delay name=wait,value=1\n\
        flowop openfile name=open,filesetname=a,fd=1\n flowop aiowrite name=io,fd=1,iosize=4k\n\
        flowop closefile name=close,fd=1\n flowop finishoncount name=end,value=1,target=io } }\nrun";
    let file = dir.path().join("a");
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !file.metadata().is_ok_and(|facts| facts.len() == 4096) {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::fs::remove_file(&file).unwrap();
            std::os::unix::fs::symlink("/dev/full", &file).unwrap();
        });
        run_in(dir, text, &[], |_| {})
    });
    let errors: Vec<_> = outcome.row("io").errors.iter().map(|(why, n)| (why.as_str(), *n)).collect();
    assert_eq!(errors, [("write: No space left on device", 1)]);
    let Ended::Failed(why) = &outcome.report.ended else { panic!("{:?}", outcome.report.ended) };
    assert!(why.contains("io failed: write: No space left on device; use fewer"), "{why}");
}

#[test]
fn endless_failures_end_the_run() {
    let text = "define fileset name=a,path=$dir,size=1k,entries=5,prealloc,readonly\n\
        define process name=p { thread name=t { flowop openfile name=open,filesetname=a,fd=1\n\
        flowop appendfile name=append,fd=1,iosize=4k\n flowop closefile name=close,fd=1 } }\nrun";
    let began = Instant::now();
    let outcome = run(text);
    let Ended::Failed(why) = &outcome.report.ended else { panic!("{:?}", outcome.report.ended) };
    assert!(why.contains("append failed after"), "{why}");
    assert!(began.elapsed() < Duration::from_secs(15));
}

#[test]
fn synchronisation_is_timed_from_the_end_of_the_run_and_has_an_end() {
    let dir = tempfile::tempdir().unwrap();
    let stop = Arc::default();
    let open: std::os::fd::OwnedFd = std::fs::File::open(dir.path()).unwrap().into();
    let ended_ns = monotonic_ns() - 2_000_000_000;
    let synced = durable::within(Duration::from_secs(60), ended_ns, &stop, move |ended| {
        sync_file_system(&open, ended)
    });
    let Durable::After { s } = synced else { panic!("{synced:?}") };
    assert!(s >= 2.0, "calls that were under way at the end count: {s} s");
    // A call that hangs is waited for until the deadline, or until the run is stopped.
    let hanging = |within: Duration| {
        let (release, held) = std::sync::mpsc::channel::<()>();
        let found = durable::within(within, monotonic_ns(), &stop, move |_| {
            let _ = held.recv();
            Durable::After { s: 0.0 }
        });
        drop(release);
        found
    };
    let late = hanging(Duration::from_millis(100));
    assert!(matches!(late, Durable::NotWithin { .. }), "{late:?}");
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let stopped = hanging(Duration::from_secs(60));
    assert!(matches!(stopped, Durable::Unknown), "{stopped:?}");
}

#[test]
fn memory_and_files_of_many_threads_are_those_that_they_use() {
    // Reads of a random size may have 16 MiB.
    let text = "set $size=randvar(type=gamma,mean=1k)\n\
        define fileset name=a,path=$dir,size=$size,entries=50,prealloc\n\
        define process name=p { thread name=t,instances=1500 { flowop statfile name=stat,filesetname=a\n\
        flowop openfile name=open,filesetname=a,fd=1\n\
        flowop readwholefile name=read,fd=1\nflowop closefile name=close,fd=1 } }\nrun";
    let source = files::program::Source { name: "many.f".to_owned(), text: text.to_owned() };
    let ready = source.evaluate([].iter().copied(), None).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(ready.compiled.files_max(), 1500, "slot 0 has no file");
    let outcome = run_alone(text, |settings| settings.hold_ns = 500_000_000);
    assert!(outcome.row("read").count > 0);
    let most_mib = memory_mib("VmHWM:");
    assert!(most_mib < 2048, "{most_mib} MiB at most, also of other tests");
}

/// A line of this process's status.
fn memory_mib(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

#[test]
fn strict_threads_have_all_their_memory_from_the_start() {
    // Nothing here reads or writes: filebench clears the memory before its first flowop.
    let text = "define fileset name=a,path=$dir,size=1k,entries=5,prealloc\n\
        define process name=p { thread name=t,memsize=100m,instances=4 {\n\
        flowop statfile name=stat,filesetname=a } }\nrun";
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let most_mib = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most_mib = 0;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                most_mib = most_mib.max(memory_mib("VmRSS:"));
                std::thread::sleep(Duration::from_millis(5));
            }
            most_mib
        });
        run_alone(text, |settings| (settings.is_strict, settings.hold_ns) = (true, 500_000_000));
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        watcher.join().unwrap()
    });
    assert!(most_mib >= 400, "{most_mib} MiB at most");
}
