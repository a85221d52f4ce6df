//! A workload without work for whole runs in milliseconds: at given moments its parts do what a script says.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::metric::MetricSpec;
use base::part::{HERE, HostContext, PartError, PartKind, PartSpec, Progress};
use base::placement::{Placement, Role};
use base::plan::LoadPlan;
use base::series::Series;
use base::units::Span;
use base::verdict::Verdict;
use base::workload::{Judgement, TrialContext};
use run::registry::Registry;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use workload::Workload;
use workload::part::{self, Part, Peers, Reports};
use workload::settings::Settings;

pub static REGISTRY: Registry = Registry::new(&[&Scripted]);

/// A call of the engine: to which part, which method, and in which trial (0 before the first one).
pub type Moment = (&'static str, &'static str, u32);

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Act {
    /// The call returns an error.
    Fail,
    /// The call returns an error of the user's.
    Misuse,
    /// The part goes on.
    Last,
    /// The user presses Ctrl-C.
    Interrupt,
    /// The user presses Ctrl-C, and the call returns an error for this reason.
    Break,
    /// The disk of the results fills up.
    Fill,
    /// There is room again.
    Free,
}

/// What is to happen in the run of this thread, and what has happened.
#[derive(Default)]
pub struct Script {
    pub acts: Vec<(Moment, Act)>,
    pub stop: Arc<AtomicBool>,
    pub disk: PathBuf,
    /// Trials that have begun.
    pub trials: u32,
    /// Parts that were made and not yet stopped.
    pub standing: Vec<&'static str>,
}

thread_local! {
    pub static SCRIPT: RefCell<Script> = RefCell::default();
}

/// Fills the disk to its last byte.
pub fn fill(disk: &Path) {
    let mut file = std::fs::File::create(disk.join("ballast")).unwrap();
    std::io::copy(&mut std::io::repeat(0), &mut file).unwrap_err();
}

/// Does what the script says for a call; returns whether it says something.
fn call(part: &'static str, method: &'static str) -> Result<bool, PartError> {
    SCRIPT.with_borrow(|script| {
        let now = (part, method, script.trials);
        let mut acts = script.acts.iter().filter(|(moment, _)| *moment == now).peekable();
        let is_scripted = acts.peek().is_some();
        for (_, act) in acts {
            match act {
                Act::Fail => return Err(PartError::new(format!("the {part} died in {method}"))),
                Act::Misuse => return Err(PartError::usage(format!("the {part} cannot {method} this"))),
                Act::Last => {}
                Act::Interrupt => script.stop.store(true, Ordering::Relaxed),
                Act::Break => {
                    script.stop.store(true, Ordering::Relaxed);
                    return Err(PartError::new("interrupted"));
                }
                Act::Fill => fill(&script.disk),
                Act::Free => std::fs::remove_file(script.disk.join("ballast")).unwrap(),
            }
        }
        Ok(is_scripted)
    })
}

macro_rules! scripted_part {
    ($name:ident, $word:literal, $usual:expr) => {
        struct $name;

        impl Part for $name {
            const KIND: &'static str = concat!("scripted.", $word);
            type Task = ();
            type Endpoint = ();
            type Report = ();

            fn new((): ()) -> Result<Self, PartError> {
                call($word, "new")?;
                SCRIPT.with_borrow_mut(|script| script.standing.push($word));
                Ok(Self)
            }
            fn prepare(&mut self, _: &Peers<'_>, _: &HostContext) -> Result<(), PartError> {
                call($word, "prepare").map(drop)
            }
            fn start(&mut self, _: u64) -> Result<(), PartError> {
                call($word, "start").map(drop)
            }
            fn progress(&mut self) -> Progress {
                match call($word, "progress") {
                    Err(error) => Progress::Failed(error),
                    // What something happens to has not finished.
                    Ok(true) => Progress::Running { done: Some(0.5) },
                    Ok(false) => $usual,
                }
            }
            fn stop(&mut self) -> Result<(), PartError> {
                SCRIPT.with_borrow_mut(|script| script.standing.retain(|name| *name != $word));
                call($word, "stop").map(drop)
            }
        }
    };
}

scripted_part!(Server, "server", Progress::Running { done: None });
scripted_part!(Load, "load", Progress::Finished);

/// Carries `carries`, is searched up to 4, confirmed once, and goes down again.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScriptedSettings {
    carries: u64,
    /// Offer this load alone.
    single: Option<u64>,
    /// Keep a trial that is interrupted.
    keeps_interrupted: bool,
}

impl Default for ScriptedSettings {
    fn default() -> Self {
        Self { carries: 3, single: None, keeps_interrupted: false }
    }
}

impl Settings for ScriptedSettings {}

struct Scripted;

impl Workload for Scripted {
    const NAME: &'static str = "scripted";
    type Settings = ScriptedSettings;

    fn metrics(&self) -> &'static [MetricSpec] {
        &[]
    }
    fn roles(&self) -> &'static [Role] {
        &[]
    }
    fn part_kinds(&self) -> &'static [PartKind] {
        const { &[part::kind::<Server>(), part::kind::<Load>()] }
    }
    fn load_unit(&self, _: &ScriptedSettings) -> &'static str {
        "loads"
    }
    fn load_plan(&self, settings: &ScriptedSettings) -> LoadPlan {
        let searched = LoadPlan::search(4, Span::from_s(1));
        LoadPlan { confirmations: 1, ramp_down: true, fixed: settings.single, ..searched }
    }
    fn keeps_interrupted(&self, settings: &ScriptedSettings) -> bool {
        settings.keeps_interrupted
    }
    fn standing(&self, _: &ScriptedSettings, _: &Placement) -> Result<Vec<PartSpec>, PartError> {
        Ok(vec![part::spec::<Server>("server".into(), HERE, &())?])
    }
    fn offering(
        &self,
        _: &ScriptedSettings,
        _: &TrialContext,
        _: &Peers<'_>,
        _: &Placement,
    ) -> Result<Vec<PartSpec>, PartError> {
        SCRIPT.with_borrow_mut(|script| script.trials += 1);
        Ok(vec![part::spec::<Load>("load".into(), HERE, &())?])
    }
    fn judge(
        &self,
        settings: &ScriptedSettings,
        trial: &TrialContext,
        _: &Reports,
    ) -> Result<Judgement, PartError> {
        call("workload", "judge")?;
        let verdict = if trial.load <= settings.carries { Verdict::Pass } else { Verdict::Fail };
        // Large enough to need further pages of the results file.
        let mut series = Series::new("load_sent", "loads");
        for tick in 0..2000 {
            series.at_s.push(f64::from(tick) / 2000.0);
            series.values.push(Some(f64::from(tick)));
        }
        let judgement = Judgement::new(verdict, (0.0, 1.0));
        Ok(Judgement { is_definite: true, series: vec![series], ..judgement })
    }
}
