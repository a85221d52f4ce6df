//! What each flowop does, against what a listing of the directory finds.

use std::time::Duration;

use files::engine::report::Ended;

use super::{run, run_alone, run_in};

/// A program of one thread, which ends after `count` runs of the flowop `target`.
fn program(sets: &str, flowops: &str, target: &str, count: u64) -> String {
    format!(
        "set mode quit firstdone\n{sets}\ndefine process name=p {{ thread name=t,memsize=1m {{\n{flowops}\n\
         flowop finishoncount name=finish,target={target},value={count}\n}} }}\nrun"
    )
}

const SET: &str = "define fileset name=a,path=$dir,size=10k,entries=100,dirwidth=10,prealloc=50";

#[test]
fn created_and_written_files_are_there_with_their_size() {
    let flowops = "flowop createfile name=create,filesetname=a,fd=1\n\
        flowop writewholefile name=write,fd=1,iosize=4k\nflowop closefile name=close,fd=1";
    let outcome = run(&program(SET, flowops, "close", 20));
    let files = outcome.files("a");
    let before = files.len() - 20;
    assert!((30..70).contains(&before), "{before} existed before");
    assert!(files.iter().all(|(_, bytes)| *bytes == 10 << 10), "no file is longer than its size");
    assert_eq!((outcome.row("create").count, outcome.row("close").count), (20, 20));
    assert_eq!(outcome.row("write").bytes, 20 * (10 << 10));
    assert_eq!(outcome.report.ended, Ended::Done);
}

#[test]
fn strict_writes_whole_pieces_as_filebench_does() {
    let flowops = "flowop createfile name=create,filesetname=a,fd=1\n\
        flowop writewholefile name=write,fd=1,iosize=4k\nflowop closefile name=close,fd=1";
    let text = program(&SET.replace("prealloc=50", "prealloc=0"), flowops, "close", 5);
    let outcome = run_in(tempfile::tempdir().unwrap(), &text, &[], |settings| settings.is_strict = true);
    let sizes: Vec<u64> = outcome.files("a").into_iter().map(|(_, bytes)| bytes).collect();
    assert_eq!(sizes, [12 << 10; 5], "10 KiB in pieces of 4 KiB are 12 KiB");
}

#[test]
fn deleted_files_are_gone_and_no_delete_is_skipped() {
    let set = SET.replace("prealloc=50", "prealloc=100");
    let outcome = run(&program(&set, "flowop deletefile name=delete,filesetname=a", "delete", 30));
    assert_eq!((outcome.files("a").len(), outcome.row("delete").count), (70, 30));
    let own = "flowop openfile name=open,filesetname=a,fd=3\nflowop deletefile name=delete,fd=3";
    let outcome = run(&program(&set, own, "delete", 10));
    assert_eq!((outcome.files("a").len(), outcome.row("open").count), (90, 10));
}

#[test]
fn appends_lengthen_files_by_what_is_reported() {
    let set = SET.replace("prealloc=50", "prealloc=100");
    let flowops = "flowop openfile name=open,filesetname=a,fd=1\n\
        flowop appendfilerand name=rand,fd=1,iosize=16k\n\
        flowop appendfile name=append,fd=1,iosize=3k,iters=2\n\
        flowop closefile name=close,fd=1";
    let outcome = run(&program(&set, flowops, "close", 50));
    let grown: u64 = outcome.files("a").iter().map(|(_, bytes)| bytes - (10 << 10)).sum();
    assert_eq!(grown, outcome.row("rand").bytes + outcome.row("append").bytes);
    assert_eq!(outcome.row("append").bytes, 100 * (3 << 10));
    let mean = outcome.row("rand").bytes as f64 / 50.0;
    assert!((4_000.0..12_000.0).contains(&mean), "{mean}: uniform below 16 KiB");
}

#[test]
fn whole_reads_return_all_bytes() {
    let set = SET.replace("prealloc=50", "prealloc=100");
    for iosize in ["1k", "4k", "10k", "1m"] {
        let flowops = format!(
            "flowop openfile name=open,filesetname=a,fd=1\n\
             flowop readwholefile name=read,fd=1,iosize={iosize}\nflowop closefile name=close,fd=1"
        );
        let outcome = run(&program(&set, &flowops, "close", 25));
        assert_eq!(outcome.row("read").bytes, 25 * (10 << 10), "{iosize}");
    }
}

#[test]
fn sequential_and_random_reads_and_writes_stay_within_the_file() {
    let file = "define file name=b,path=$dir,size=64k,prealloc";
    for (flowop, bytes) in [
        ("read name=io,filesetname=b,iosize=8k", 100 * (8 << 10)),
        ("read name=io,filesetname=b,iosize=8k,random", 100 * (8 << 10)),
        ("write name=io,filesetname=b,iosize=8k", 100 * (8 << 10)),
        ("write name=io,filesetname=b,iosize=8k,random,workingset=16k,dsync", 100 * (8 << 10)),
    ] {
        let outcome = run(&program(file, &format!("flowop {flowop}"), "io", 100));
        assert_eq!((outcome.row("io").count, outcome.row("io").bytes), (100, bytes), "{flowop}");
        let size = std::fs::metadata(outcome.dir.path().join("b")).unwrap().len();
        assert_eq!(size, 64 << 10, "{flowop}");
    }
}

#[test]
fn asynchronous_writes_are_done_before_the_wait_ends() {
    let file = "define file name=b,path=$dir,size=0,prealloc";
    let flowops =
        "flowop aiowrite name=io,filesetname=b,iosize=4k,iters=10\nflowop aiowait name=wait,iters=5";
    let outcome = run(&program(file, flowops, "wait", 5));
    assert_eq!(outcome.row("io").bytes, 10 * (4 << 10));
    assert_eq!(std::fs::metadata(outcome.dir.path().join("b")).unwrap().len(), 40 << 10);
}

#[test]
fn leaf_directories_are_made_removed_and_listed() {
    let leaf = "define fileset name=a,path=$dir,entries=0,leafdirs=40,dirwidth=10,prealloc=0";
    let dirs = |outcome: &super::Outcome| -> usize {
        let count = |path: &std::path::Path| {
            std::process::Command::new("find").arg(path).args(["-type", "d", "-empty"]).output().unwrap()
        };
        String::from_utf8(count(&outcome.dir.path().join("a")).stdout).unwrap().lines().count()
    };
    let made = run(&program(leaf, "flowop makedir name=mkdir,filesetname=a", "mkdir", 40));
    assert_eq!((dirs(&made), made.row("mkdir").count), (40, 40));
    let removed = run(&program(
        &leaf.replace("prealloc=0", "prealloc=100"),
        "flowop removedir name=rmdir,filesetname=a",
        "rmdir",
        15,
    ));
    assert_eq!(removed.row("rmdir").count, 15);
    assert!(dirs(&removed) >= 25, "emptied parents count as empty, too");
    let set = SET.replace("prealloc=50", "prealloc=100");
    let listed = run(&program(&set, "flowop listdir name=list,filesetname=a", "list", 200));
    assert!(listed.row("list").bytes >= 100 * 8, "{} bytes of names", listed.row("list").bytes);
}

#[test]
fn stat_and_sync_count_and_change_nothing() {
    let set = SET.replace("prealloc=50", "prealloc=100");
    let flowops = "flowop statfile name=stat,filesetname=a\nflowop openfile name=open,filesetname=a,fd=1\n\
        flowop statfile name=fstat,filesetname=a,fd=1\nflowop fsync name=sync,fd=1\n\
        flowop fsyncset name=syncset,filesetname=a\nflowop closefile name=close,fd=1";
    let outcome = run(&program(&set, flowops, "close", 10));
    for name in ["stat", "open", "fstat", "sync", "syncset"] {
        assert_eq!(outcome.row(name).count, 10, "{name}");
    }
    assert_eq!(outcome.files("a").len(), 100);
}

#[test]
fn two_groups_hand_over_by_semaphore() {
    let text = "set mode quit firstdone\ndefine fileset name=a,path=$dir,size=1k,entries=50,prealloc=0\n\
        define process name=p {\n\
        thread name=maker { flowop createfile name=create,filesetname=a,fd=1\n\
        flowop closefile name=close,fd=1\n \
        flowop sempost name=post,target=wait,value=1,blocking }\n\
        thread name=eater { flowop semblock name=wait,value=1,highwater=3\n\
        flowop deletefile name=delete,filesetname=a\n\
        flowop finishoncount name=finish,target=delete,value=200 } }\nrun";
    let outcome = run(text);
    assert_eq!(outcome.row("delete").count, 200);
    let left = outcome.files("a").len() as u64;
    assert_eq!(outcome.row("create").all_count, 200 + left);
    assert!(left <= 5, "{left} were ahead of the eater");
}

/// The kernel's own words: field 19 of proc_pid_stat(5), and what ionice(1) reads by ioprio_get(2).
#[test]
fn threads_have_the_priorities_of_their_program() {
    let text = "define process name=p,nice=3 { thread name=low,instances=2,ioprio=6 {\
        flowop delay name=wait,value=1 } thread name=usual { flowop delay name=other,value=1 } }\nrun";
    let found = |name: &str| {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
        let has_name = |task: &std::path::PathBuf| {
            std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.starts_with(name))
        };
        let priorities = |task: std::path::PathBuf| {
            let stat = std::fs::read_to_string(task.join("stat")).ok()?;
            let nice: i32 = stat.rsplit(')').next()?.split_whitespace().nth(16)?.parse().ok()?;
            let id = task.file_name()?.to_str()?.to_owned();
            let io = std::process::Command::new("ionice").args(["-p", &id]).output().ok()?;
            Some((nice, String::from_utf8_lossy(&io.stdout).trim().to_owned()))
        };
        tasks.filter(has_name).filter_map(priorities).collect::<Vec<_>>()
    };
    let own = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let own: i32 = own.rsplit(')').next().unwrap().split_whitespace().nth(16).unwrap().parse().unwrap();
    let is_set =
        |all: &[(i32, String)], count: usize| all.len() == count && all.iter().all(|it| it.0 == own + 3);
    let seen = std::thread::scope(|scope| {
        let seen = scope.spawn(|| {
            let until = std::time::Instant::now() + Duration::from_secs(10);
            loop {
                let (low, usual) = (found("low-"), found("usual-"));
                if is_set(&low, 2) && is_set(&usual, 1) || std::time::Instant::now() > until {
                    return (low, usual);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        run_in(tempfile::tempdir().unwrap(), text, &[], |settings| settings.hold_ns = 1_500_000_000);
        seen.join().unwrap()
    });
    assert!(is_set(&seen.0, 2) && is_set(&seen.1, 1), "{seen:?}, and this thread has {own}");
    assert!(seen.0.iter().all(|(_, io)| io == "best-effort: prio 6"), "{seen:?}");
    assert!(seen.1.iter().all(|(_, io)| io != "best-effort: prio 6"), "{seen:?}");
}

#[test]
fn threads_that_never_get_a_cpu_are_ready_and_not_blocked() {
    let text =
        "define process name=p { thread name=t,instances=1500 { flowop hog name=h,value=1000000 } }\nrun";
    let outcome = run_alone(text, |settings| settings.hold_ns = 1_000_000_000);
    let cpu = outcome.report.cpu;
    let Some(ready_s) = cpu.ready_s else { panic!("the kernel does not say how long threads are ready") };
    let all_s = 1500.0 * (outcome.report.to_s - outcome.report.from_s);
    let share = (cpu.user_s + cpu.system_s + ready_s) / all_s;
    assert!(
        share > 0.8,
        "{share} of the time of threads that only compute was neither run nor ready: {cpu:?}"
    );
}

#[test]
fn events_limit_the_rate() {
    let text = "eventgen rate=400\ndefine fileset name=a,path=$dir,size=1k,entries=50,prealloc\n\
        define process name=p { thread name=t,instances=3 { flowop statfile name=stat,filesetname=a\n\
        flowop opslimit name=limit } }\nrun";
    let outcome =
        run_in(tempfile::tempdir().unwrap(), text, &[], |settings| settings.hold_ns = 1_000_000_000);
    let count = outcome.row("stat").count;
    assert!((300..=410).contains(&count), "{count} in a second");
}

#[test]
fn open_loop_keeps_its_rate_and_counts_lateness() {
    let text = "define fileset name=a,path=$dir,size=1k,entries=50,prealloc\n\
        define process name=p { thread name=t,instances=2 { flowop statfile name=stat,filesetname=a } }\nrun";
    let outcome = run_in(tempfile::tempdir().unwrap(), text, &[], |settings| {
        (settings.rate_per_s, settings.hold_ns) = (Some(500.0), 1_000_000_000);
    });
    let count = outcome.row("stat").count;
    assert!((480..=501).contains(&count), "{count} in a second");
    // Between the last round and the end there is nothing to do, and the run lasts nevertheless.
    let outcome = run_in(tempfile::tempdir().unwrap(), text, &[], |settings| {
        (settings.rate_per_s, settings.hold_ns) = (Some(2.0), 1_000_000_000);
    });
    let (report, count) = (&outcome.report, outcome.row("stat").count);
    assert_eq!((count, report.to_s - report.from_s, &report.ended), (2, 1.0, &Ended::Time), "{report:?}");
    // A delay in each round makes every later one late: 10 rounds a second take a second each.
    let slow = text.replace("filesetname=a }", "filesetname=a\n flowop delay name=slow,value=1 }");
    let outcome = run_in(tempfile::tempdir().unwrap(), &slow, &[], |settings| {
        (settings.rate_per_s, settings.hold_ns) = (Some(20.0), 2_500_000_000);
    });
    let latest = outcome.row("stat").times.max_ns().unwrap();
    assert!(latest > 1_500_000_000, "{latest} ns from the intended start");
    assert!(outcome.report.late_rounds >= 2);
}

#[test]
fn times_and_counts_of_a_run_are_those_of_its_interval() {
    let text = "define fileset name=a,path=$dir,size=1k,entries=50,prealloc\n\
        define process name=p { thread name=t,instances=2 { flowop statfile name=stat,filesetname=a } }\nrun";
    let outcome = run_in(tempfile::tempdir().unwrap(), text, &[], |settings| {
        (settings.omit_ns, settings.hold_ns) = (200_000_000, 500_000_000);
    });
    let (report, row) = (&outcome.report, outcome.row("stat"));
    assert!((report.from_s - 0.2).abs() < 1e-9 && (report.to_s - 0.7).abs() < 1e-9, "{report:?}");
    assert!(row.all_count > row.count && row.count > 0, "the warm-up is left out");
    assert_eq!((row.times.count(), report.intervals.iter().sum::<u64>()), (row.count, row.count));
    assert!(row.sum_ns <= 2 * 500_000_000 + Duration::from_millis(50).as_nanos() as u64);
    assert!(report.cpu.user_s + report.cpu.system_s <= 1.2, "{:?}", report.cpu);
    assert_eq!((report.ended.clone(), report.threads), (Ended::Time, 2));
}
