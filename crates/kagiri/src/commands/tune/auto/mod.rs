//! `kagiri tune auto`: trials that decide whether a setting helps a workload.

mod answer;
mod export;
mod goal;
mod trials;

use std::ops::RangeInclusive;
use std::path::PathBuf;

use anyhow::Context;
use base::plan::{Plan, Variant};
use clap::Args;
use run::tuning::{RWND_LIMITED, SNDBUF_LIMITED, limits_of};
use tune::advise::LIMITED_MIN;
use tune::candidates::buffer_candidates;
use tune::catalogue::find;
use tune::kernel::Kernel;

use self::answer::{Answer, Conclusion, Diagnosis};
use self::export::Export;
use self::goal::Goal;
use self::trials::{Candidate, Trials};
use super::assignment;
use crate::args::MeasureArgs;
use crate::commands::qos::check_root;
use crate::commands::run::{in_lab_of, read_plan};
use crate::exit::{Code, Failure, Outcome};
use crate::hosts::HostArgs;
use crate::output;
use crate::placement_check::Places;
use crate::session::{self, Session};

/// One trial shows what limits it.
const DIAGNOSIS_REPEATS: u32 = 1;
/// More candidates need more blocks than the default.
const CANDIDATES_MAX: usize = 6;
const BLOCKS: RangeInclusive<i64> = 2..=100;

/// Find out by trials whether a setting helps a workload.
#[derive(Args)]
#[command(
    after_help = "First measures the plan once and reads what limits it (TCP_INFO). Without --try, it \
    stops if buffers are not the limit (below 5 % of the busy time). Else it measures the plan's \
    settings and the candidates in a random order, and then backwards; two such rounds are a block. It \
    compares blocks by the Hodges-Lehmann difference with its 95 % interval (bootstrap) and a \
    randomisation test (Holm), and measures a winner again. A candidate that makes a guarded metric worse \
    is not accepted. 'No difference' comes with the smallest difference that would have been found. Nothing \
    is kept. docs/tune.md explains the statistics. Needs root on the hosts of the settings.\n\n\
    Examples:\n  \
    kagiri tune auto plan.toml\n  \
    kagiri tune auto plan.toml --try tcp_notsent_lowat=131072 --on 'robot-*' --goal response_p99_ms\n  \
    kagiri tune auto plan.toml --export sysctl.d > 90-kagiri.conf"
)]
pub struct Auto {
    /// Plan whose workload judges; examples are in plans/ of kagiri's sources
    #[arg(value_name = "PLAN.toml")]
    plan: PathBuf,
    /// Try this setting; each use is a candidate, several settings in one are separated by ';'
    /// [default: buffer sizes, if buffers are the limit]
    #[arg(long = "try", value_name = "NAME=VALUE")]
    candidates: Vec<String>,
    /// Hosts that get the settings: names or patterns [default: tune.hosts of the plan, else this host]
    #[arg(long, value_name = "HOSTS")]
    on: Vec<String>,
    /// Metric that decides, or capacity [default: the workload's first that a trial can improve]
    #[arg(long, value_name = "METRIC")]
    goal: Option<String>,
    /// Accept no candidate that makes this metric worse, beside response times, retransmits, loss and errors;
    /// repeatable
    #[arg(long, value_name = "METRIC")]
    guard: Vec<String>,
    /// Variant of the plan, if it has several
    #[arg(long, value_name = "NAME")]
    variant: Option<String>,
    /// Blocks of two rounds: more find smaller differences
    #[arg(long, value_name = "N", default_value_t = 8)]
    #[arg(value_parser = clap::value_parser!(u32).range(BLOCKS))]
    blocks: u32,
    /// Print the accepted settings in this form; the answer goes to standard error
    #[arg(long, value_name = "FORM", conflicts_with = "json")]
    export: Option<Export>,
    #[command(flatten)]
    hosts: HostArgs,
    #[command(flatten)]
    common: MeasureArgs,
}

impl Auto {
    pub fn run(self) -> Outcome {
        let plan = self.current_plan()?;
        let wrong = |flag: &'static str| move |why: String| Failure::Usage(format!("{flag} {why}"));
        let mut goal = Goal::new(&plan.workload, self.goal.as_deref()).map_err(wrong("--goal"))?;
        goal.guard(&plan.workload, &self.guard).map_err(wrong("--guard"))?;
        let candidates = read_candidates(&self.candidates)?;
        session::check_plan(&plan, &self.hosts, Places::Plan)?;
        for candidate in &candidates {
            let with = trials::with_candidates(&plan, std::slice::from_ref(candidate), 1);
            session::check_plan(&with, &self.hosts, Places::Plan)?;
        }
        check_root("tune auto changes settings of the kernel")?;
        let answer = in_lab_of(&plan, &self.hosts, self.common.quiet, |hosts| {
            self.decide(&plan, &goal, candidates, hosts)
        })?;
        if let Some(form) = self.export {
            output::say(&answer.text(self.common.full, output::style()));
            output::print(&form.text(&plan, &answer, self.blocks)?)?;
            return Ok(Code::Measured);
        }
        match self.common.json {
            true => output::print(&crate::json_document::Document::new(&answer).text()?)?,
            false => output::print(&answer.text(self.common.full, output::style()))?,
        }
        Ok(Code::Measured)
    }

    /// The plan with one variant, whose hosts are watched.
    fn current_plan(&self) -> Result<Plan, Failure> {
        let mut plan = read_plan(&self.plan, &self.common)?;
        let names: Vec<&str> = plan.variants.iter().map(|variant| variant.name.as_str()).collect();
        let chosen = match &self.variant {
            None if names.len() == 1 => 0,
            None => {
                return Err(Failure::usage(format!(
                    "the plan has {} variants; name one with --variant: {}",
                    names.len(),
                    names.join(", ")
                )));
            }
            Some(name) => names.iter().position(|one| one == name).ok_or_else(|| {
                Failure::usage(format!("no variant '{name}' in the plan; it has {}", names.join(", ")))
            })?,
        };
        let mut current: Variant = plan.variants.swap_remove(chosen);
        let mut tuning = current.tune.take().unwrap_or_default();
        if !self.on.is_empty() {
            tuning.hosts = self.on.clone();
        }
        // A candidate replaces the plan's value, by whichever of its names the plan has it.
        let full_name = |name: String| find(&name).map_or(name, |setting| setting.name.to_owned());
        tuning.settings = tuning.settings.into_iter().map(|(name, value)| (full_name(name), value)).collect();
        current.tune = Some(tuning);
        current.name = goal::CURRENT.to_owned();
        plan.variants = vec![current];
        plan.require.clear();
        Ok(plan)
    }

    fn decide(
        &self,
        plan: &Plan,
        goal: &Goal,
        given: Vec<Candidate>,
        hosts: &HostArgs,
    ) -> Result<Answer, Failure> {
        let say = output::say_unless(self.common.quiet);
        let mut session = Session::open(&self.common, &say)?;
        say("First trial: what limits the plan with its settings as they are");
        let first = Plan { repeats: DIAGNOSIS_REPEATS, ..plan.clone() };
        let run = session.measure_on(&first, &self.common, hosts)?;
        goal.check(&run)?;
        let trial = run.trials.last().context("the first run has no trial")?;
        let goal = &goal.clone().with_classes(&trial.metrics);
        let ratio = |name: &str| trial.metrics.get(name).copied().flatten();
        let limits = limits_of(trial);
        let diagnosis = Diagnosis {
            sndbuf_limited_ratio: ratio(SNDBUF_LIMITED),
            rwnd_limited_ratio: ratio(RWND_LIMITED),
            limits: limits.iter().map(|(text, _)| text.clone()).collect(),
            run: run.run.clone(),
        };
        let mut answer = Answer::new(goal, plan.seed, diagnosis);
        let candidates = if given.is_empty() { derived(trial, &limits) } else { given };
        if candidates.is_empty() {
            answer.conclusion = stop_reason(&answer.diagnosis, &limits);
            return Ok(answer);
        }
        let trials = Trials { plan, goal, blocks: self.blocks, common: &self.common, hosts, say: &say };
        trials.decide(&mut session, &candidates, &mut answer)?;
        Ok(answer)
    }
}

/// Checks what the console is asked for, before it is queued.
/// Errors: the wrong option, by its key in the console's request, and what is wrong.
pub fn check(
    plan: &Plan,
    goal: Option<&str>,
    candidates: &[String],
    blocks: Option<u32>,
) -> Result<(), (&'static str, String)> {
    if let [_, _, ..] = plan.variants.as_slice() {
        let names: Vec<&str> = plan.variants.iter().map(|variant| variant.name.as_str()).collect();
        let why = format!("the plan has {} variants ({}); leave one", names.len(), names.join(", "));
        return Err(("toml", why));
    }
    Goal::new(&plan.workload, goal).map_err(|why| ("metric", why))?;
    read_candidates(candidates).map_err(|why| ("settings", why.to_string()))?;
    match blocks {
        Some(count) if !BLOCKS.contains(&i64::from(count)) => {
            Err(("blocks", format!("{count}: expected {} to {}", BLOCKS.start(), BLOCKS.end())))
        }
        _ => Ok(()),
    }
}

fn read_candidates(texts: &[String]) -> Result<Vec<Candidate>, Failure> {
    if texts.len() > CANDIDATES_MAX {
        return Err(Failure::usage(format!(
            "{} candidates; at most {CANDIDATES_MAX} are compared at once",
            texts.len()
        )));
    }
    texts.iter().map(|text| Candidate::read(text)).collect()
}

/// Buffer sizes, if buffers are the limit and a setting of the kernel can change them.
fn derived(trial: &base::outcome::Trial, limits: &[(String, String)]) -> Vec<Candidate> {
    let bytes = trial.metrics.get(run::tuning::BANDWIDTH_DELAY).copied().flatten();
    let is_limit = |setting: &str| limits.iter().any(|(_, name)| name == setting);
    let kernel = Kernel::live();
    ["net.ipv4.tcp_wmem", "net.ipv4.tcp_rmem"]
        .into_iter()
        .filter(|name| is_limit(name))
        .flat_map(|name| {
            buffer_candidates(name, bytes, &kernel).into_iter().map(move |value| Candidate::one(name, &value))
        })
        .take(CANDIDATES_MAX)
        .collect()
}

fn stop_reason(diagnosis: &Diagnosis, limits: &[(String, String)]) -> Conclusion {
    let is_small = |ratio: Option<f64>| ratio.is_some_and(|ratio| ratio < LIMITED_MIN);
    match (diagnosis.sndbuf_limited_ratio, diagnosis.rwnd_limited_ratio) {
        (None, _) => Conclusion::NothingSeen,
        (sndbuf, rwnd) if is_small(sndbuf) && is_small(rwnd) => Conclusion::BuffersNotTheLimit,
        _ if limits.iter().any(|(_, setting)| setting == "SO_SNDBUF") => Conclusion::FixedByProgram,
        _ => Conclusion::NoCandidate,
    }
}

impl Candidate {
    /// `NAME=VALUE;NAME=VALUE`.
    /// Errors: an unknown setting, a value out of range.
    fn read(text: &str) -> Result<Self, Failure> {
        let mut settings = std::collections::BTreeMap::new();
        for one in text.split(';').filter(|one| !one.trim().is_empty()) {
            let (setting, value) = assignment::split(one)?;
            settings.insert(setting.name.to_owned(), value);
        }
        match settings.is_empty() {
            true => Err(Failure::usage(format!("{text:?}: expected NAME=VALUE"))),
            false => Ok(Self { settings }),
        }
    }

    fn one(name: &str, value: &str) -> Self {
        Self { settings: [(name.to_owned(), value.to_owned())].into() }
    }
}
