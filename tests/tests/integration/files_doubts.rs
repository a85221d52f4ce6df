//! What weakens a result of `files` is said with its numbers.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kagiri_tests::{World, beside_others, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(120);

fn doubt<'a>(document: &'a Value, kind: &str) -> &'a Value {
    let trial = &document["trials"][0];
    let doubts = trial["doubts"].as_array().unwrap_or_else(|| panic!("no doubts: {trial:#}"));
    doubts.iter().find(|doubt| doubt["kind"] == kind).unwrap_or_else(|| panic!("no {kind}: {trial:#}"))
}

fn world_with_directory() -> World {
    let world = World::new();
    std::fs::create_dir(world.path("dir")).expect("a directory");
    world
}

#[test]
fn small_cold_set_that_is_read_again_is_doubted_with_the_share_of_the_cache() {
    let _beside = beside_others();
    let world = world_with_directory();
    let program = "define fileset name=a,path=$dir,size=64k,entries=20,prealloc\n\
        define process name=p { thread name=t { flowop openfile name=open,filesetname=a,fd=1\n\
        flowop readwholefile name=read,fd=1\n flowop closefile name=close,fd=1 } }\nrun";
    world.write("again.f", program);
    let words = ["files", "dir", "--wml", "again.f", "--cold", "--time", "1s", "--json"];
    let document = world.measure(&words, PATIENCE).code(0).json();
    let doubt = doubt(&document, "files_in_memory");
    let message = doubt["message"].as_str().expect("a sentence");
    match doubt["cached_percent"].as_f64() {
        Some(percent) => {
            // A thousand times 64 KiB of 1.25 MiB, on the slowest disk.
            assert!(percent > 80.0 && message.contains("the page cache served"), "{doubt:#}");
            let metric = document["trials"][0]["metrics"]["reads_cached_percent"].as_f64();
            assert_eq!(metric, Some(percent));
        }
        // The directory is on no block device.
        None => assert!(message.contains("what share of the reads it served is unknown"), "{doubt:#}"),
    }
}

/// A file that a run appends to.
fn growing(path: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).find_map(|path| match path.is_dir() {
        true => growing(&path),
        false => path.metadata().is_ok_and(|facts| facts.size() > 4096).then_some(path),
    })
}

#[test]
fn stopped_run_is_doubted_with_the_time_that_it_stood() {
    const STOPPED: Duration = Duration::from_secs(2);
    let _beside = beside_others();
    let world = world_with_directory();
    let program = "define fileset name=a,path=$dir,size=4k,entries=1,prealloc\n\
        define process name=p { thread name=t { flowop openfile name=open,filesetname=a,fd=1\n\
        flowop appendfile name=append,fd=1,iosize=1k\n flowop closefile name=close,fd=1\n\
        flowop delay name=rest,value=1 } }\nrun";
    world.write("grow.f", program);
    let live = world.start(&["files", "dir", "--wml", "grow.f", "--time", "12s", "--json"]);
    wait_until("the run appends", PATIENCE, || growing(&world.path("dir")).is_some());
    live.signal(Signal::SIGSTOP);
    std::thread::sleep(STOPPED);
    live.signal(Signal::SIGCONT);
    let document = live.end(PATIENCE).code(0).json();
    let doubt = doubt(&document, "paused");
    let paused_s = doubt["paused_s"].as_f64().expect("seconds");
    // No worker is late for a stop; the continuation may be.
    assert!((1.5..9.0).contains(&paused_s), "{doubt:#}");
    assert!(
        doubt["message"].as_str().is_some_and(|text| text.contains("kagiri did not run for")),
        "{doubt:#}"
    );
}
