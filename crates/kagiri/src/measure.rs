//! What every measuring verb does around the engine: stop signals, leftovers of crashes, store, bus, result.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use base::outcome::Run;
use base::part::HostContext;
use base::plan::Plan;
use fleet::local::LocalBus;
use run::engine::{self, Setting};
use serde_json::Value;
use store::Store;
use sys::stop::StopSignal;

use crate::cli::Common;
use crate::exit::{Code, Failure, Outcome};
use crate::output;
use crate::progress::Progress;

/// How long the parts may take to put everything back after the second Ctrl-C.
const LEAVE: Duration = Duration::from_millis(200);

/// Where results and made content live: `$KAGIRI_DATA`, or the user's data directory.
pub fn data_dir() -> anyhow::Result<PathBuf> {
    Ok(Store::default_dir(|name| std::env::var_os(name))?)
}

/// Where changes to the system are written down before they are made.
pub fn journal_dir() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    sys::journal::default_folder(runtime.as_deref())
}

/// Open the results store.
pub fn open_store() -> anyhow::Result<Store> {
    Ok(Store::open(&data_dir()?)?)
}

/// A flag that is raised by Ctrl-C or SIGTERM. A second one leaves at once: what is still changed on the system then
/// stands in the undo journal.
pub fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let signal = StopSignal::install().context("cannot watch for Ctrl-C")?;
    let flag = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&flag);
    std::thread::Builder::new().name("stop".into()).spawn(move || {
        loop {
            if signal.wait_timeout(Duration::from_secs(3600)) {
                raised.store(true, Ordering::Relaxed);
                while signal.count() < 2 {
                    std::thread::sleep(LEAVE);
                }
                eprintln!("kagiri: left at once; 'kagiri undo' puts back what is still changed");
                std::process::exit(Code::Interrupted as i32);
            }
        }
    })?;
    Ok(flag)
}

/// Put back what a crashed kagiri left, before anything new is changed.
pub fn clean_leftovers(say: &dyn Fn(&str)) {
    match crate::verbs::undo::replay_all() {
        Ok(results) => results.iter().flat_map(|leftover| &leftover.lines).for_each(|line| say(line)),
        Err(error) => say(&format!("what crashes may have left cannot be looked at: {error}")),
    }
}

/// Facts of this host.
fn environment() -> BTreeMap<String, Value> {
    let facts = serde_json::to_value(sys::environment::describe(Path::new("/"))).ok();
    let facts = facts.and_then(|facts| facts.as_object().cloned()).unwrap_or_default();
    facts.into_iter().collect()
}

/// Measure a plan on this host, store it, print what came of it.
pub fn run_plan(plan: &Plan, common: &Common) -> Outcome {
    let (run, failure) = make_run(plan, common)?;
    // With nothing measured one line says it all; a script still gets its document.
    let presented = match run.trials.is_empty() && !common.json {
        true => Err(Failure::Interrupted("interrupted before the first trial had ended".into())),
        false => output::present(&run, common),
    };
    // Why it could not be measured says more than that a report could not be written.
    match failure {
        Some(failure) if failure.usage => Err(Failure::Usage(failure.message)),
        Some(failure) => Err(Failure::World(anyhow::Error::msg(failure.message))),
        None => presented,
    }
}

/// Measure a plan on this host and store it.
pub fn make_run(plan: &Plan, common: &Common) -> Result<(Run, Option<engine::RunError>), Failure> {
    let stop = stop_flag()?;
    let workload = run::registry::workload(&plan.workload).map_err(Failure::usage)?;
    let mut progress = Progress::new(workload.load_unit(), common.quiet, Arc::clone(&stop));
    clean_leftovers(&|line| progress.line(line));
    let mut store = open_store()?;
    let said = progress.clone();
    let host = HostContext {
        data_dir: data_dir()?,
        journal_dir: journal_dir(),
        program: std::env::current_exe().context("cannot find this program's own file")?,
        stop,
        say: Arc::new(move |line| said.note(line)),
    };
    let mut bus = LocalBus::new(run::registry::kinds(), host);
    let id = store::new_run_id(jiff::Timestamp::now(), sys::clock::realtime_ns());
    let setting = Setting { version: env!("CARGO_PKG_VERSION"), id, environment: environment() };
    let made = engine::make(plan, &mut bus, &mut store, &mut progress, setting);
    progress.clear();
    made.map_err(|error| match error.usage {
        true => Failure::Usage(error.message),
        false => Failure::World(anyhow::Error::msg(error.message)),
    })
}
