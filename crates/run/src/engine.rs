//! The engine: a plan in, a run out.
//!
//! It knows a workload only by its registry entry. For every repetition and variant the standing parts (a
//! server) are prepared, then the search chooses loads until it is over. Every trial is stored as soon as it
//! has ended.

use std::time::Instant;

use base::doubt::Doubt;
use base::outcome::{Run, State, Trial};
use base::part::{Endpoints, Live, PartSpec};
use base::placement::Placement;
use base::plan::{LoadPlan, Plan, Variant};
use base::workload::TrialContext;
use fleet::{Bus, BusError};
use jiff::Timestamp;
use serde_json::Value;
use store::Store;
use workload::AnyWorkload;

use crate::companions::Beside;
pub use crate::outcome::ConfiguredVariant;
use crate::outcome::check_requirements;
pub use crate::run_error::RunError;
pub use crate::sampled::own_facts;
use crate::sampled::{Standing, Target, watch};
use crate::search::{self, Step, TrialResult};
pub use crate::start::Setting;
use crate::{alike, companions, order, outcome, placed, resume, start, trial, tuning};

pub enum Event<'a> {
    /// A search that had ended before the run broke off is left out.
    Skipped {
        variant: &'a str,
    },
    Preparing {
        variant: &'a str,
        repetition: u32,
        /// Trials of this search that a continued run has already.
        kept: &'a [TrialResult],
    },
    TrialBegan {
        step: Step,
        variant: &'a str,
    },
    TrialAt {
        /// The share of it that is done, 0..1.
        done: f64,
        /// What the target's sampler and the parts that offer the load see now.
        live: &'a Live,
    },
    TrialEnded(&'a Trial),
}

/// Observes a run, and may end it.
pub trait Observer {
    fn event(&mut self, event: Event<'_>);
    /// Whether the run should end now; called many times a second.
    fn stop_requested(&self) -> bool;
}

/// Read the settings of every variant of a plan, and check the plan's requirements and places against its
/// workload.
/// Errors: Settings, a requirement or a place that the workload does not have.
pub fn configure<'a>(
    plan: &'a Plan,
    workload: &'a dyn AnyWorkload,
) -> Result<Vec<ConfiguredVariant<'a>>, RunError> {
    check_requirements(plan, workload.metrics())?;
    let configured = |variant: &'a Variant| {
        base::placement::check(&variant.place, workload.roles())?;
        Ok(ConfiguredVariant { variant, workload: workload.configure(&variant.settings)? })
    };
    plan.variants.iter().map(configured).collect()
}

/// Makes a run. A run that ended early is returned too, with its `state` and `failure`.
/// Errors: Nothing could be begun: see [`configure`]; or no results store.
pub fn make(
    workload: &dyn AnyWorkload,
    plan: &Plan,
    bus: &mut dyn Bus,
    store: &mut Store,
    observer: &mut dyn Observer,
    setting: Setting<'_>,
) -> Result<(Run, Option<RunError>), RunError> {
    let variants = configure(plan, workload)?;
    let beside = setting.beside.clone();
    let mut run = start::started(plan, &variants, setting, bus, store)?;
    let mut unavailable = resume::take_unavailable(&mut run);
    let mut engine = Engine {
        plan,
        variants: &variants,
        beside: &beside,
        bus,
        store,
        observer,
        run: &mut run,
        unavailable: &mut unavailable,
    };
    let ended = engine.all();
    let ended = ended.and_then(|whole| match outcome::nothing_measured(&run.trials) {
        Some(error) if whole => Err(error),
        _ => Ok(whole),
    });
    run.doubts.extend(bus.doubts().into_iter().map(Into::into));
    if !unavailable.is_empty() {
        run.doubts.push(Doubt::NotSampled { what: unavailable }.into());
    }
    let failure = match ended {
        Ok(true) => {
            run.state = State::Complete;
            None
        }
        Ok(false) => {
            run.state = State::Interrupted;
            run.doubts.push(Doubt::Interrupted.into());
            None
        }
        Err(error) => {
            run.state = State::Failed;
            run.failure = Some(error.message.clone());
            Some(error)
        }
    };
    run.ended_at = Some(Timestamp::now());
    let concluded = outcome::conclude(&mut run, plan, &variants);
    if let Err(error) = &concluded {
        run.state = State::Failed;
        run.failure.get_or_insert_with(|| error.message.clone());
    }
    // What was measured is handed out even if it could not be stored.
    let stored = store.finish(&run);
    Ok((run, failure.or(concluded.err()).or(stored.err().map(RunError::from))))
}

struct Engine<'a> {
    plan: &'a Plan,
    variants: &'a [ConfiguredVariant<'a>],
    beside: &'a Beside,
    bus: &'a mut dyn Bus,
    store: &'a mut Store,
    observer: &'a mut dyn Observer,
    run: &'a mut Run,
    /// What the samplers could not sample, each sentence once.
    unavailable: &'a mut Vec<String>,
}

impl Engine<'_> {
    /// Measures all repetitions of all variants; `false` if interrupted.
    fn all(&mut self) -> Result<bool, RunError> {
        // A continued run is at the search of its last trial; those before it have ended.
        let mut reached = self.run.trials.last().map(|last| (last.repetition, last.variant.clone()));
        for repetition in 1..=self.plan.repeats {
            for at in order::of_repetition(&self.run.environment, repetition, self.variants.len()) {
                let variant = &self.variants[at];
                let name = &variant.variant.name;
                if reached.as_ref().is_some_and(|(at, of)| (*at, of) != (repetition, name)) {
                    self.observer.event(Event::Skipped { variant: name });
                    continue;
                }
                reached = None;
                if !self.variant(variant, repetition)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Starts the standing parts of a variant, searches its capacity and stops the parts.
    fn variant(&mut self, variant: &ConfiguredVariant<'_>, repetition: u32) -> Result<bool, RunError> {
        let name = &variant.variant.name;
        let kept: Vec<TrialResult> = self.kept(name, repetition).into_iter().map(Into::into).collect();
        if !kept.is_empty() && search::next(&variant.workload.load_plan(), &kept).is_none() {
            self.observer.event(Event::Skipped { variant: name });
            return Ok(true);
        }
        self.observer.event(Event::Preparing { variant: name, repetition, kept: &kept });
        let began = Instant::now();
        let placement = self.placement(variant)?;
        self.note_differences(variant.variant, &placement);
        let specs = variant.workload.standing(&placement)?;
        let names: Vec<String> = specs.iter().map(|spec| spec.name.clone()).collect();
        // Sockets take some settings of the kernel when they are made.
        let settings = self.beside.settings_of(&variant.variant.name, &*self.bus)?;
        let setting_names: Vec<&str> = settings.iter().map(|spec| spec.name.as_str()).collect();
        let set = companions::prepare(self.bus, &settings, &setting_names, &Endpoints::new());
        let searched = set.map_err(RunError::from).and_then(|()| self.stand_up(specs));
        let searched = searched.and_then(|standing| self.search(variant, repetition, &standing, began));
        let searched = match searched {
            // An interrupted part returns an error.
            Err(_) if self.observer.stop_requested() => Ok(false),
            other => other,
        };
        let names: Vec<&str> = names.iter().rev().map(String::as_str).collect();
        let mut put_back = Ok(());
        for ended in self.bus.stop(&names).into_values() {
            match ended {
                // A part that was never placed, or on a lost host, needs no end.
                Ok(_) | Err(BusError::Unknown(_) | BusError::HostLost { .. }) => {}
                Err(error) => put_back = Err(error.into()),
            }
        }
        put_back = put_back.and(self.restore_settings(&setting_names));
        searched.and_then(|whole| put_back.map(|()| whole))
    }

    /// The trials that a search has already.
    fn kept(&self, variant: &str, repetition: u32) -> Vec<&Trial> {
        let trials = self.run.trials.iter();
        trials.filter(|trial| trial.variant == variant && trial.repetition == repetition).collect()
    }

    /// Ends the parts that set the kernel's settings. A setting that another program changed is a doubt.
    fn restore_settings(&mut self, names: &[&str]) -> Result<(), RunError> {
        let mut restored = Ok(());
        for ended in self.bus.stop(names).into_values() {
            match ended {
                Ok(report) => {
                    let doubts = tuning::doubts_of(&report)?;
                    self.run.doubts.extend(doubts.into_iter().map(|doubt| Doubt::from(doubt).into()));
                }
                Err(BusError::Unknown(_) | BusError::HostLost { .. }) => {}
                Err(error) => restored = Err(error.into()),
            }
        }
        restored
    }

    fn placement(&self, variant: &ConfiguredVariant<'_>) -> Result<Placement, RunError> {
        placed::placement(&variant.variant.place, variant.workload.roles(), &*self.bus)
    }

    /// Adds one doubt for each difference among the hosts of a role.
    fn note_differences(&mut self, variant: &Variant, placement: &Placement) {
        let facts = self.bus.facts();
        for role in variant.place.keys() {
            for doubt in alike::differences(&placement.hosts(role), &facts) {
                if self.run.doubts.iter().all(|note| note.doubt != doubt) {
                    self.run.doubts.push(doubt.into());
                }
            }
        }
    }

    /// Places and prepares the standing parts in order; each gets the endpoints of those before it.
    fn stand_up(&mut self, specs: Vec<PartSpec>) -> Result<Standing, RunError> {
        let mut standing = Standing::default();
        for spec in specs {
            let (name, host) = (spec.name.clone(), spec.host.clone());
            self.bus.place(vec![spec])?;
            let endpoints = self.bus.prepare(&[&name], &standing.peers)?;
            for (part, endpoint) in &endpoints {
                if let Some(watch) = watch(part, endpoint)?.filter(|_| standing.target.is_none()) {
                    standing.target = Some(Target { host: host.clone(), watch });
                }
            }
            standing.peers.extend(endpoints);
            standing.names.push(name);
        }
        Ok(standing)
    }

    fn search(
        &mut self,
        configured: &ConfiguredVariant<'_>,
        repetition: u32,
        standing: &Standing,
        began: Instant,
    ) -> Result<bool, RunError> {
        let variant = configured.variant;
        let kept = self.kept(&variant.name, repetition);
        let (mut budget, spent) = resume::budget_after(configured.workload.time_budget(), &kept);
        let mut results: Vec<TrialResult> = kept.into_iter().map(Into::into).collect();
        let loads = configured.workload.load_plan();
        self.note_ceilings(variant, standing.target.as_ref())?;
        while let Some(step) = search::next(&loads, &results) {
            if self.observer.stop_requested() {
                return Ok(false);
            }
            let context = self.context(&loads, &step, repetition);
            if !budget.allows(spent + began.elapsed(), context.hold.duration()) {
                return Ok(true);
            }
            let trial_began = Instant::now();
            let placement = self.placement(configured)?;
            self.observer.event(Event::TrialBegan { step, variant: &variant.name });
            let companions = self.beside.of_variant(&variant.name, &*self.bus)?;
            let scope = trial::TrialScope {
                workload: &*configured.workload,
                variant: &variant.name,
                repetition,
                number: self.run.trials.last().map_or(0, |last| last.number) + 1,
                placement: &placement,
                standing,
                companions: &companions,
            };
            let observer = &mut *self.observer;
            let mut tick = |done: f64, live: &Live| {
                observer.event(Event::TrialAt { done, live });
                !observer.stop_requested()
            };
            let Some(made) = trial::make(self.bus, &scope, &context, &mut tick)? else { return Ok(false) };
            let (mut trial, is_interrupted) = (made.trial, made.is_interrupted);
            trial.account.is_cut = is_interrupted;
            for sentence in made.unavailable {
                if !self.unavailable.contains(&sentence) {
                    self.unavailable.push(sentence);
                }
            }
            let stored = self.store.add_trial(&self.run.run, &trial);
            if stored.is_ok() {
                self.observer.event(Event::TrialEnded(&trial));
            }
            budget.note(trial_began.elapsed(), context.hold.duration());
            results.push((&trial).into());
            self.run.trials.push(trial);
            stored?;
            if is_interrupted {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// All loads of a repetition share one seed, so that N and N + 1 differ by one unit of load only;
    /// repetitions have different seeds.
    fn context(&self, loads: &LoadPlan, step: &Step, repetition: u32) -> TrialContext {
        let hold = if trial::is_full_hold(step.phase) { loads.hold } else { loads.search_hold };
        let seed = self.plan.seed.wrapping_add(u64::from(repetition - 1));
        TrialContext { load: step.load, phase: step.phase, hold, seed }
    }

    /// Stores the ceilings of a variant in the run, for a later explanation.
    fn note_ceilings(&mut self, variant: &Variant, target: Option<&Target>) -> Result<(), RunError> {
        let Some(target) = target else { return Ok(()) };
        let ceilings = serde_json::to_value(&target.watch.ceilings).map_err(RunError::new)?;
        let all = self
            .run
            .environment
            .entry("ceilings".into())
            .or_insert_with(|| Value::Object(Default::default()));
        if all[&variant.name] != ceilings {
            all[&variant.name] = ceilings;
            // A later explanation needs them even if this process is killed.
            self.store.note(self.run)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
