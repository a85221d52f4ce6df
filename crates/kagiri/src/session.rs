//! A measuring session: stop flag, leftovers of crashes, store, bus and result around the engine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use base::outcome::{Run, Trial};
use base::part::HostContext;
use base::placement::Wishes;
use base::plan::Plan;
use clap::Args;
use fleet::coordinator::FleetBus;
use fleet::local::LocalBus;
use fleet::policy::OwnHost;
use fleet::{Bus, FleetError};
use lab::state::State;
use run::companions::{Beside, SteppingLink};
use run::engine::{self, Setting};
use run::registry::{BUILT_IN, Registry};
use serde_json::Value;
use store::Store;

use crate::args::MeasureArgs;
use crate::dirs::{data_dir, journal_dir};
use crate::estimate::Estimate;
use crate::exit::{Failure, Outcome};
use crate::host_facts::environment;
use crate::hosts::{HostArgs, PlaceArgs};
use crate::interval_lines::IntervalLines;
use crate::json_lines::JsonLines;
use crate::leftovers::clean_leftovers;
use crate::placement_check::{self, Places};
use crate::progress::{Progress, Shown};
use crate::stop::stop_flag;
use crate::{hosts, output, policies, resume, tunings};

/// Facts about this host, and the text of the plan's lab file.
pub fn run_environment(plan: &Plan) -> BTreeMap<String, Value> {
    let mut facts = environment();
    if let Some(file) = &plan.lab {
        match sys::file::read_text(file.as_ref(), lab::file::TEXT_BYTES_MAX as u64) {
            Ok(text) => drop(facts.insert("lab".to_owned(), Value::String(text))),
            // The command line may name other hosts than the lab's.
            Err(error) => output::say(&format!("{file} is not stored with the run: {error}")),
        }
    }
    facts
}

/// Arguments of every workload's command.
#[derive(Args)]
pub struct SessionArgs {
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    pub hosts: HostArgs,
    #[command(flatten)]
    pub common: MeasureArgs,
}

impl SessionArgs {
    /// The hosts of the roles that `--place` places.
    pub fn placed(&self) -> Result<Wishes, Failure> {
        self.place.wishes()
    }

    /// Measures a plan of one variant, whose roles `--place` places on hosts.
    pub fn measure(&self, mut plan: Plan) -> Outcome {
        plan.variants[0].place = self.place.wishes()?;
        run_plan(&self.common.over(plan), &self.common, &self.hosts, Places::Options)
    }
}

/// Opened before anything is measured: handles Ctrl-C, undoes leftovers, and checks that results can be
/// written.
pub struct Session {
    stop: Arc<AtomicBool>,
    store: Store,
    data_dir: PathBuf,
    facts: BTreeMap<String, Value>,
    registry: &'static Registry,
    json_lines: Option<JsonLines>,
}

impl Session {
    /// Opens a session; `say` prints what crashes left.
    /// Errors: Results cannot be stored, or not written to `--out`.
    pub fn open(common: &MeasureArgs, say: &dyn Fn(&str)) -> Result<Self, Failure> {
        let stop = stop_flag()?;
        clean_leftovers(&stop, say);
        let data_dir = data_dir()?;
        let store = Store::open(&data_dir)?;
        store.check_writable()?;
        check_out(common)?;
        let json_lines = JsonLines::open(common)?;
        Ok(Self { stop, store, data_dir, facts: BTreeMap::new(), registry: &BUILT_IN, json_lines })
    }

    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Measures a plan, stores the run and prints the result.
    pub fn run_plan(self, plan: &Plan, common: &MeasureArgs, hosts: &HostArgs) -> Outcome {
        self.run_or_resume(plan, None, common, hosts)
    }

    /// [`Self::run_plan`]; `stored` is the run of this plan to continue.
    fn run_or_resume(
        mut self,
        plan: &Plan,
        stored: Option<Run>,
        common: &MeasureArgs,
        hosts: &HostArgs,
    ) -> Outcome {
        let (run, failure) = self.make_run(plan, stored, common, hosts)?;
        conclude(&run, failure, common.has_json_on_stdout(), || output::present(&run, common))
    }

    /// Measures a plan and stores the run without printing the result.
    pub fn measure(&mut self, plan: &Plan, common: &MeasureArgs) -> Result<Run, Failure> {
        self.measure_on(plan, common, &HostArgs::default())
    }

    /// [`Self::measure`] on several hosts.
    pub fn measure_on(
        &mut self,
        plan: &Plan,
        common: &MeasureArgs,
        hosts: &HostArgs,
    ) -> Result<Run, Failure> {
        let (run, failure) = self.make_run(plan, None, common, hosts)?;
        failure.map_or(Ok(run), |failure| Err(run_failure(failure)))
    }

    /// Adds a fact to the environment of the next run.
    pub fn add_fact(&mut self, name: &str, fact: Value) {
        self.facts.insert(name.to_owned(), fact);
    }

    fn make_run(
        &mut self,
        plan: &Plan,
        stored: Option<Run>,
        common: &MeasureArgs,
        hosts: &HostArgs,
    ) -> Result<(Run, Option<engine::RunError>), Failure> {
        let workload = self.registry.workload(&plan.workload).map_err(Failure::usage)?;
        let variants = engine::configure(plan, workload).map_err(run_failure)?;
        let estimate = Estimate::of_plan(plan, &variants);
        let unit = variants.first().map_or("", |first| first.workload.load_unit());
        let new_id = || store::new_run_id(jiff::Timestamp::now(), sys::random::number());
        let id = stored.as_ref().map_or_else(new_id, |stored| stored.run.clone());
        let lines = self.json_lines.as_ref();
        let lines = lines.map(|lines| lines.of_run(&id, &plan.workload, &plan.name, unit));
        let shown = Shown {
            quiet: common.quiet,
            json_lines: lines.clone(),
            intervals: common.interval.map(|every| (IntervalLines::new(every), !common.has_json_on_stdout())),
        };
        let mut progress =
            Progress::new(unit, workload.presentation(), estimate, shown, Arc::clone(&self.stop));
        let (part_notes, needed, bus_notes) = (progress.clone(), progress.clone(), progress.clone());
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let host = HostContext {
            stop: Arc::clone(&self.stop),
            say: Arc::new(move |line| part_notes.note(line)),
            permit: Arc::new(OwnHost::new(&hosts.allow_peer)),
            announce: Some(Arc::new(move |line| needed.announce(line))),
            ..HostContext::here(self.data_dir.clone(), journal_dir(), program)
        };
        let local = LocalBus::new(self.registry.part_kinds(), host);
        let beside = beside(plan, hosts)?;
        let mut bus = open_bus(plan, local, hosts, &id, bus_notes)?;
        let environment = run_environment(plan).into_iter().chain(self.facts.clone()).collect();
        let setting = Setting { version: env!("CARGO_PKG_VERSION"), id, environment, beside, stored };
        let made = engine::make(workload, plan, &mut *bus, &mut self.store, &mut progress, setting);
        // The hosts clean up before the result is printed.
        drop(bus);
        progress.clear();
        if let (Some(lines), Ok((run, _))) = (&lines, &made) {
            lines.end(run);
        }
        if let Ok((run, _)) = &made {
            resume::say_how(run, hosts, common.quiet);
        }
        made.map_err(run_failure)
    }
}

/// Checks that `--out` can be written; makes the directory.
pub fn check_out(common: &MeasureArgs) -> Result<(), Failure> {
    let Some(out) = &common.out else { return Ok(()) };
    std::fs::create_dir_all(out)
        .with_context(|| format!("--out: cannot make {}", out.display()))
        .map_err(Failure::of_named)?;
    tempfile::tempfile_in(out).with_context(|| format!("--out: cannot write into {}", out.display()))?;
    Ok(())
}

/// The policies of a plan's variants, and the steps of its lab's links.
fn beside(plan: &Plan, hosts: &HostArgs) -> Result<Beside, Failure> {
    let policies = policies::of_plan(plan, hosts)?;
    let tunings = tunings::of_plan(plan, hosts)?;
    let Some(name) = &hosts.lab else { return Ok(Beside { policies, steps: None, tunings }) };
    let links = State::read(&hosts::lab_dir(name)?)?.map(|state| state.links).unwrap_or_default();
    let stepping = links.iter().filter(|link| !link.steps.is_empty());
    let stepping: Vec<SteppingLink> = stepping
        .map(|link| SteppingLink {
            number: link.number,
            first_bit_per_s: link.rate_up_bit_per_s.unwrap_or_default(),
        })
        .collect();
    let steps = (!stepping.is_empty()).then(|| (name.clone(), stepping));
    Ok(Beside { policies, steps, tunings })
}

/// The local bus, or the fleet's if the plan names other hosts.
fn open_bus(
    plan: &Plan,
    local: LocalBus,
    hosts: &HostArgs,
    run: &str,
    notes: Progress,
) -> Result<Box<dyn Bus>, Failure> {
    let wishes = hosts::wishes(plan);
    if wishes.is_empty() {
        return Ok(Box::new(local));
    }
    let mut coordinator = hosts.coordinator(run.to_owned())?;
    let gathered = coordinator.recruit(&wishes, hosts.wait().duration(), &|line| notes.note(line));
    gathered.map_err(|error| match error {
        FleetError::Interrupted => Failure::Interrupted(error.to_string()),
        FleetError::Missing(missing) => {
            // A missing host may have tried to join.
            let reason = hosts::connect_failure().map(|reason| format!("; {reason}")).unwrap_or_default();
            Failure::runtime(format!("{missing}; {}{reason}", hosts.invitation()))
        }
        other => Failure::from(other),
    })?;
    Ok(Box::new(FleetBus::new(coordinator, local)))
}

/// Presents a run, unless nothing was measured in it.
pub fn conclude(
    run: &Run,
    failure: Option<engine::RunError>,
    json: bool,
    present: impl FnOnce() -> Outcome,
) -> Outcome {
    // Without a trial, one line is enough; --json still prints its document.
    let is_empty = run.trials.iter().all(Trial::is_unmeasured);
    let presented = match is_empty && !json {
        true => Err(Failure::Interrupted("interrupted before the first trial ended".into())),
        false => present(),
    };
    // The failure of the run is more important than that of its report.
    failure.map_or(presented, |failure| Err(run_failure(failure)))
}

pub fn run_failure(error: engine::RunError) -> Failure {
    match error.usage {
        true => Failure::Usage(error.message),
        false => Failure::runtime(error.message),
    }
}

/// Checks a plan's requirements and placement before anything is measured. `places` is the syntax for
/// messages.
pub fn check_plan(plan: &Plan, hosts: &HostArgs, places: Places) -> Result<(), Failure> {
    let workload = BUILT_IN.workload(&plan.workload).map_err(Failure::usage)?;
    engine::configure(plan, workload).map_err(run_failure)?;
    policies::of_plan(plan, hosts)?;
    tunings::of_plan(plan, hosts)?;
    placement_check::check(hosts, plan, places)
}

/// Measures a plan, stores the run and prints the result.
pub fn run_plan(plan: &Plan, common: &MeasureArgs, hosts: &HostArgs, places: Places) -> Outcome {
    check_plan(plan, hosts, places)?;
    let say = output::say_unless(common.quiet);
    let session = Session::open(common, &say)?;
    resume::say_of_newest(&session.store, &say)?;
    session.run_plan(plan, common, hosts)
}

/// Measures what is left of a stored run, stores it and prints the result.
pub fn resume_run(plan: &Plan, stored: Run, common: &MeasureArgs, hosts: &HostArgs) -> Outcome {
    let say = output::say_unless(common.quiet);
    say(&format!("run {} continues after {}", stored.run, resume::kept_trials(&stored)));
    Session::open(common, &say)?.run_or_resume(plan, Some(stored), common, hosts)
}

#[cfg(test)]
mod tests;
