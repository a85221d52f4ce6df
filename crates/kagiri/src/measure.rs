//! What every measuring verb does around the engine: stop signals, leftovers of crashes, store, bus, result.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use base::outcome::{Run, Trial};
use base::part::HostContext;
use base::plan::{Plan, Variant};
use fleet::coordinator::FleetBus;
use fleet::local::LocalBus;
use fleet::{Bus, FleetError};
use run::engine::{self, Setting};
use serde_json::Value;
use store::Store;
use sys::stop::StopSignal;

use crate::cli::Common;
use crate::estimate::Estimate;
use crate::exit::{Code, Failure, Outcome};
use crate::hosts::{HostArgs, Places};
use crate::progress::Progress;
use crate::{hosts, output};

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

/// The process's flag, once it is watched.
static STOP: Mutex<Option<Arc<AtomicBool>>> = Mutex::new(None);

/// A flag that is raised by Ctrl-C or SIGTERM; the same one however often it is asked for. A second signal leaves at
/// once: what is still changed on the system then stands in the undo journal.
pub fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let mut known = STOP.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(flag) = &*known {
        return Ok(Arc::clone(flag));
    }
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
                output::say("kagiri: left at once; 'kagiri undo' puts back what is still changed");
                std::process::exit(Code::Interrupted as i32);
            }
        }
    })?;
    *known = Some(Arc::clone(&flag));
    Ok(flag)
}

/// Put back what a crashed kagiri left, before anything new is changed.
pub fn clean_leftovers(say: &dyn Fn(&str)) {
    match crate::verbs::undo::replay_all() {
        Ok(results) => results.iter().flat_map(|leftover| &leftover.lines).for_each(|line| say(line)),
        Err(error) => say(&format!("what crashes may have left cannot be looked at: {error}")),
    }
}

/// Who runs this program, as the environment has it.
pub fn user_name() -> String {
    std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "somebody".to_owned())
}

/// Facts of this host.
pub fn environment() -> BTreeMap<String, Value> {
    let facts = serde_json::to_value(sys::environment::describe(Path::new("/"))).ok();
    let facts = facts.and_then(|facts| facts.as_object().cloned()).unwrap_or_default();
    facts.into_iter().collect()
}

/// Facts of this host, and the lab that the plan names, as its file had it when it was measured.
fn surroundings(plan: &Plan) -> BTreeMap<String, Value> {
    let lab = plan.lab.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
    let lab = lab.map(|text| ("lab".to_owned(), Value::String(text)));
    environment().into_iter().chain(lab).collect()
}

/// What a measuring verb has from its first moment on: Ctrl-C is watched, leftovers are put back, and results can be
/// written, so that nothing is measured in vain.
pub struct Session {
    stop: Arc<AtomicBool>,
    store: Store,
    data_dir: PathBuf,
    facts: BTreeMap<String, Value>,
}

impl Session {
    /// Begin to measure; `say` is told of what crashes had left.
    ///
    /// # Errors
    /// Results cannot be stored, or not be written to the directory that was named.
    pub fn open(common: &Common, say: &dyn Fn(&str)) -> Result<Self, Failure> {
        let stop = stop_flag()?;
        clean_leftovers(say);
        let data_dir = data_dir()?;
        let store = Store::open(&data_dir)?;
        store.check_writable()?;
        if let Some(out) = &common.out {
            std::fs::create_dir_all(out)
                .with_context(|| format!("--out: cannot make {}", out.display()))
                .map_err(Failure::of_named)?;
            tempfile::tempfile_in(out)
                .with_context(|| format!("--out: cannot write into {}", out.display()))?;
        }
        Ok(Self { stop, store, data_dir, facts: BTreeMap::new() })
    }

    /// Where results and made content live.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Whether the user wants to stop.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Measure a plan, on this host or where it says, store it, print what came of it.
    pub fn run_plan(mut self, plan: &Plan, common: &Common, hosts: &HostArgs) -> Outcome {
        let (run, failure) = self.make_run(plan, common, hosts)?;
        // With nothing measured one line says it all; a script still gets its document.
        let is_empty = run.trials.iter().all(Trial::is_unmeasured);
        let presented = match is_empty && !common.json {
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

    /// Measure a plan and store it, without a word of what came of it.
    ///
    /// # Errors
    /// It could not be measured.
    pub fn measure(&mut self, plan: &Plan, common: &Common) -> Result<Run, Failure> {
        let (run, failure) = self.make_run(plan, common, &HostArgs::default())?;
        failure.map_or(Ok(run), |failure| Err(run_failure(failure)))
    }

    /// What is found out before a run and belongs to its environment.
    pub fn add_fact(&mut self, name: &str, fact: Value) {
        self.facts.insert(name.to_owned(), fact);
    }

    fn make_run(
        &mut self,
        plan: &Plan,
        common: &Common,
        hosts: &HostArgs,
    ) -> Result<(Run, Option<engine::RunError>), Failure> {
        let workload = run::registry::workload(&plan.workload).map_err(Failure::usage)?;
        let loads = |variant: &Variant| (variant.name.clone(), workload.load_plan(&variant.settings));
        let estimate = Estimate::new(plan.variants.iter().map(loads), plan.repeats);
        let mut progress = Progress::new(
            workload.load_unit(&plan.variants[0].settings),
            estimate,
            common.quiet,
            Arc::clone(&self.stop),
        );
        let (said, told) = (progress.clone(), progress.clone());
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let host = HostContext {
            stop: Arc::clone(&self.stop),
            say: Arc::new(move |line| said.note(line)),
            ..HostContext::here(self.data_dir.clone(), journal_dir(), program)
        };
        let local = LocalBus::new(run::registry::kinds(), host);
        let id = store::new_run_id(jiff::Timestamp::now(), sys::random::number());
        let mut bus = carrier(plan, local, hosts, &id, told)?;
        let environment = surroundings(plan).into_iter().chain(self.facts.clone()).collect();
        let setting = Setting { version: env!("CARGO_PKG_VERSION"), id, environment };
        let made = engine::make(plan, &mut *bus, &mut self.store, &mut progress, setting);
        // The hosts put everything back before anything is said of the result.
        drop(bus);
        progress.clear();
        made.map_err(run_failure)
    }
}

/// What carries parts to where the plan wants them: nothing but this process, unless it names other hosts.
fn carrier(
    plan: &Plan,
    local: LocalBus,
    hosts: &HostArgs,
    run: &str,
    told: Progress,
) -> Result<Box<dyn Bus>, Failure> {
    let wishes = hosts::wishes(plan);
    if wishes.is_empty() {
        return Ok(Box::new(local));
    }
    let mut coordinator = hosts.coordinator(run.to_owned())?;
    let gathered = coordinator.gather(&wishes, hosts.wait().duration(), &|line| told.note(line));
    gathered.map_err(|error| match error {
        FleetError::Interrupted => Failure::Interrupted(error.to_string()),
        FleetError::Missing(missing) => {
            // Who is missing may have tried.
            let reason = hosts::reason().map(|reason| format!("; {reason}")).unwrap_or_default();
            Failure::World(anyhow::anyhow!("{missing}; {}{reason}", hosts.invitation()))
        }
        other => Failure::from(other),
    })?;
    Ok(Box::new(FleetBus::new(coordinator, local, Box::new(move |line| told.note(line)))))
}

fn run_failure(error: engine::RunError) -> Failure {
    match error.usage {
        true => Failure::Usage(error.message),
        false => Failure::World(anyhow::Error::msg(error.message)),
    }
}

/// Make sure that a plan's requirements and places are those of its workload, and that the hosts that are named are
/// used, before anything is done for it. `places`: how the user says where parts run.
///
/// # Errors
/// One that is not.
pub fn check_plan(plan: &Plan, hosts: &HostArgs, places: Places) -> Result<(), Failure> {
    let workload = run::registry::workload(&plan.workload).map_err(Failure::usage)?;
    engine::check(plan, workload).map_err(run_failure)?;
    hosts.check_used(plan, places)
}

/// Measure a plan, store it, print what came of it.
pub fn run_plan(plan: &Plan, common: &Common, hosts: &HostArgs, places: Places) -> Outcome {
    check_plan(plan, hosts, places)?;
    let say = |line: &str| {
        if !common.quiet {
            output::say(line);
        }
    };
    Session::open(common, &say)?.run_plan(plan, common, hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_watches_for_its_end_once() {
        let first = stop_flag().unwrap();
        let again = stop_flag().unwrap();
        assert!(Arc::ptr_eq(&first, &again), "whoever asks sees the same signal");
        assert!(!first.load(Ordering::Relaxed));
    }
}
