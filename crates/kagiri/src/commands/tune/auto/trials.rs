//! Trials of candidates beside the plan's settings.

use std::collections::BTreeMap;

use base::outcome::Run;
use base::plan::{Plan, Variant};
use run::order;
use tune::trials::{Better, Comparison, Verdict, blocks, compare};

use super::answer::{Answer, CandidateResult, Conclusion, Guard};
use super::goal::{CURRENT, Goal, metric_of};
use crate::args::MeasureArgs;
use crate::exit::Failure;
use crate::hosts::HostArgs;
use crate::session::Session;

/// Settings that are tried together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub settings: BTreeMap<String, String>,
}

impl Candidate {
    /// `tcp_wmem=4096 16384 8388608`, as the variant's name.
    pub fn name(&self) -> String {
        let short = |name: &str| name.rsplit('.').next().unwrap_or(name).to_owned();
        let all: Vec<String> =
            self.settings.iter().map(|(name, value)| format!("{}={value}", short(name))).collect();
        all.join("; ")
    }
}

/// The plan with its variant and one for each candidate, measured in blocks of two repetitions.
pub fn with_candidates(plan: &Plan, candidates: &[Candidate], blocks: u32) -> Plan {
    let mut plan = Plan { repeats: 2 * blocks, ..plan.clone() };
    let current = plan.variants[0].clone();
    plan.variants.extend(candidates.iter().map(|candidate| {
        let mut variant = Variant { name: candidate.name(), ..current.clone() };
        let tuning = variant.tune.get_or_insert_default();
        tuning.settings.extend(candidate.settings.clone());
        variant
    }));
    plan
}

/// The best of the candidates that are better and make no guarded metric worse.
fn winner(results: &[CandidateResult]) -> Option<usize> {
    let accepted = results.iter().enumerate().filter(|(_, one)| one.is_accepted());
    let size = |one: &CandidateResult| one.change.map_or(0.0, f64::abs);
    accepted.max_by(|(_, a), (_, b)| size(a).total_cmp(&size(b))).map(|(at, _)| at)
}

pub struct Trials<'a> {
    /// With the current settings as its only variant.
    pub plan: &'a Plan,
    pub goal: &'a Goal,
    pub blocks: u32,
    pub common: &'a MeasureArgs,
    pub hosts: &'a HostArgs,
    pub say: &'a dyn Fn(&str),
}

impl Trials<'_> {
    /// Compares candidates with the current settings, and a winner once more on fresh blocks.
    pub fn decide(
        &self,
        session: &mut Session,
        candidates: &[Candidate],
        answer: &mut Answer,
    ) -> Result<(), Failure> {
        self.announce(candidates.len(), "");
        let run = self.measure(session, candidates, self.plan.seed)?;
        answer.candidates = self.results(&run, candidates)?;
        answer.runs.push(run.run.clone());
        let Some(at) = winner(&answer.candidates) else {
            answer.conclusion = Conclusion::of_verdicts(&answer.candidates);
            return Ok(());
        };
        let winner = std::slice::from_ref(&candidates[at]);
        self.announce(1, " to confirm it");
        let fresh = self.measure(session, winner, self.plan.seed.wrapping_add(1_000_003))?;
        answer.runs.push(fresh.run.clone());
        let confirmed = self.results(&fresh, winner)?.pop();
        answer.conclusion = match &confirmed {
            Some(one) if one.is_accepted() => Conclusion::Better,
            Some(one) if one.verdict == Verdict::Better => Conclusion::WorseElsewhere,
            _ => Conclusion::NotConfirmed,
        };
        answer.winner = Some(winner[0].settings.clone());
        answer.confirmation = confirmed;
        Ok(())
    }

    /// The planned size and power, before anything is measured.
    fn announce(&self, candidates: usize, why: &str) {
        let trials = 2 * self.blocks as usize * (candidates + 1);
        let power = match tune::statistics::detectable_scatters(self.blocks as usize, candidates) {
            Some(scatters) => format!(
                "they find a difference of {} times the scatter of a block with a probability of 80 %",
                base::format::number(scatters)
            ),
            None => "too few to decide: use more --blocks".to_owned(),
        };
        let blocks = self.blocks;
        (self.say)(&format!("{blocks} blocks, {trials} trials of {candidates} candidates{why}; {power}"));
    }

    fn measure(&self, session: &mut Session, candidates: &[Candidate], seed: u64) -> Result<Run, Failure> {
        let plan = Plan { seed, ..with_candidates(self.plan, candidates, self.blocks) };
        session.add_fact(order::FACT, order::random_blocks(seed));
        let run = session.measure_on(&plan, self.common, self.hosts)?;
        match session.is_stopped() {
            true => {
                Err(Failure::Interrupted(format!("interrupted; the trials so far are in run {}", run.run)))
            }
            false => Ok(run),
        }
    }

    fn results(&self, run: &Run, candidates: &[Candidate]) -> Result<Vec<CandidateResult>, Failure> {
        let names: Vec<String> =
            [CURRENT.to_owned()].into_iter().chain(candidates.iter().map(Candidate::name)).collect();
        let goal = |name: &str, repetition| self.goal.of_repetition(run, name, repetition);
        let (compared, left_out) = self.compared(&names, self.goal.better, &goal);
        let compared = compared.ok_or_else(|| {
            Failure::runtime(format!(
                "no block has a usable {} of every variant; 'kagiri runs show {}' says why",
                self.goal.name, run.run
            ))
        })?;
        let mut results: Vec<CandidateResult> = candidates
            .iter()
            .zip(compared)
            .map(|(candidate, one)| CandidateResult::new(candidate.name(), one, left_out))
            .collect();
        for guard in &self.goal.guards {
            let offset = offset_of(&guard.name);
            let of = |name: &str, repetition| {
                metric_of(run, name, repetition, &guard.name).map(|value| value + offset)
            };
            let (compared, _) = self.compared(&names, guard.better, &of);
            let compared = compared.unwrap_or_default();
            if compared.is_empty() {
                (self.say)(&format!("{} is unknown or 0 in these trials: it guards nothing", guard.name));
            }
            for (result, one) in results.iter_mut().zip(compared) {
                if let (Verdict::Worse, Some(change)) = (one.verdict, one.change) {
                    let (metric, refuses) = (guard.name.clone(), guard.refuses);
                    result.worse.push(Guard { metric, change, refuses });
                }
            }
        }
        Ok(results)
    }

    /// Comparisons of all candidates in one metric, and the number of blocks without a value.
    fn compared(
        &self,
        names: &[String],
        better: Better,
        value: &dyn Fn(&str, u32) -> Option<f64>,
    ) -> (Option<Vec<Comparison>>, usize) {
        let repetition = |number: u32| names.iter().map(|name| value(name, number)).collect::<Vec<_>>();
        let made = blocks(&(1..=2 * self.blocks).map(repetition).collect::<Vec<_>>());
        (compare(&made.values, better, self.plan.seed), made.left_out)
    }
}

/// Is added to the values of a guard that is 0 on a quiet path: changes are compared as ratios, and 0 has
/// none.
fn offset_of(metric: &str) -> f64 {
    match metric {
        "retransmits" => 1.0,
        name if name.ends_with("_ratio") => 1e-4,
        _ => 0.0,
    }
}
