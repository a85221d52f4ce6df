//! The engine on real directories.
#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

mod ends;
mod flowops;
mod hostile;
mod objects;
mod personalities;

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use files::engine::report::{RowReport, RunReport};
use files::engine::{Content, Run, RunSettings};
use files::program::{SetValue, Source};
use files::tree::{FileTree, Filling};

/// A program that was run in a directory of its own.
struct Outcome {
    dir: tempfile::TempDir,
    report: RunReport,
}

/// How it is run, unless a test says otherwise.
fn settings(hold: Duration) -> RunSettings {
    RunSettings {
        is_strict: false,
        quit: wml::Quit::Timeout,
        omit_ns: 0,
        hold_ns: hold.as_nanos() as u64,
        rate_per_s: None,
        event_rate: None,
        seed: 7,
    }
}

/// A program of many threads that compute leaves other tests no CPU: it has this to itself.
static MACHINE: RwLock<()> = RwLock::new(());

/// Makes the files of a program and runs it; `change` has the last word on the settings.
fn run_in(
    dir: tempfile::TempDir,
    text: &str,
    set: &[(&str, &str)],
    change: impl FnOnce(&mut RunSettings),
) -> Outcome {
    let _shared = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    run_now(dir, text, set, change)
}

/// The same while no other test runs a program.
fn run_alone(text: &str, change: impl FnOnce(&mut RunSettings)) -> Outcome {
    let _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    run_now(tempfile::tempdir().unwrap(), text, &[], change)
}

fn run_now(
    dir: tempfile::TempDir,
    text: &str,
    set: &[(&str, &str)],
    change: impl FnOnce(&mut RunSettings),
) -> Outcome {
    let source = Source { name: "test.f".to_owned(), text: text.to_owned() };
    let set: BTreeMap<String, SetValue> =
        set.iter().map(|(name, value)| ((*name).to_owned(), SetValue::Text((*value).to_owned()))).collect();
    let ready = source.evaluate(set.iter(), None).unwrap_or_else(|error| panic!("{error}"));
    let mut settings = settings(Duration::from_secs(20));
    (settings.quit, settings.event_rate) = (ready.program.quit, ready.program.event_rate);
    change(&mut settings);
    let content = Content::new(ready.compiled.io_bytes_max, Some(1));
    let stop = Arc::default();
    let opened = std::fs::File::open(dir.path()).unwrap();
    let filling = Filling {
        folder: dir.path(),
        opened: opened.as_fd(),
        seed: 7,
        content: content.all(),
        open_dirs: 100,
        is_cold: false,
        stop: &stop,
    };
    let populate = |set| FileTree::populate(set, &filling).unwrap_or_else(|error| panic!("{error}")).0;
    let trees: Vec<FileTree> = ready.program.filesets.iter().map(populate).collect();
    let mut run = Run::prepare(settings, ready.compiled, trees, content).unwrap();
    run.begin(sys::clock::monotonic_ns() + 20_000_000);
    Outcome { report: run.wait(&stop, &|| None), dir }
}

fn run(text: &str) -> Outcome {
    run_in(tempfile::tempdir().unwrap(), text, &[], |_| {})
}

impl Outcome {
    fn row(&self, name: &str) -> &RowReport {
        self.report.rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no row {name}"))
    }

    /// Every file below a set with its size, as a listing finds them.
    fn files(&self, set: &str) -> Vec<(PathBuf, u64)> {
        listed(&self.dir.path().join(set))
    }
}

fn listed(path: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap()) {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(listed(&entry.path())),
            false => found.push((entry.path(), entry.metadata().unwrap().len())),
        }
    }
    found
}
