//! Every run ends with a result and a reason.

use std::sync::Arc;
use std::time::{Duration, Instant};

use files::engine::report::{Durable, Ended};
use files::engine::sync_file_system;

use super::{run, run_in};

const CREATE: &str = "define fileset name=a,path=$dir,size=1k,entries=30,prealloc=0\n\
    define process name=p { thread name=t { flowop createfile name=create,filesetname=a,fd=1\n\
    flowop closefile name=close,fd=1 } }\nrun";

#[test]
fn exhausted_slots_end_a_run_by_its_mode() {
    let outcome = run(CREATE);
    let Ended::Exhausted(why) = &outcome.report.ended else { panic!("{:?}", outcome.report.ended) };
    assert!(why.contains("the fileset a had no file left to create for create (line 2)"), "{why}");
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
fn synchronisation_is_timed_and_has_an_end() {
    let dir = tempfile::tempdir().unwrap();
    let open = || std::fs::File::open(dir.path()).unwrap().into();
    let stop = Arc::default();
    let Durable::After { s } = sync_file_system(open(), Duration::from_secs(60), &stop) else {
        panic!("it ended")
    };
    assert!(s >= 0.0);
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let stopped = sync_file_system(open(), Duration::from_secs(60), &stop);
    assert!(matches!(stopped, Durable::Unknown | Durable::After { .. }));
}
