//! Measurements of several workloads as one table: a row for each, with its number, its limit and how sure
//! both are.

use base::format::{UNKNOWN, metric, metric_words, unit_of};
use base::outcome::{Certainty, LoadMetric, Resource, Run, State, Trial, VariantOutcome};
use base::verdict::Verdict;
use serde::{Deserialize, Serialize};

use crate::{doubts, findings, words};

/// What is stored with each run of a survey: its own question, and the answers before it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SurveyFact {
    /// The name of the run's row; several variants have their own.
    pub name: String,
    /// The metric that answers it; `None`: the workload's first.
    pub main: Option<String>,
    /// The rows before.
    pub rows: Vec<SurveyRow>,
}

/// What came of one question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SurveyRow {
    /// What was measured: `TCP, 1 flow`.
    pub measured: String,
    /// The number with its unit: `31.4 Gbit/s`.
    pub result: String,
    /// How often it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n: Option<usize>,
    /// What limits it, in a word or two.
    pub limit: String,
    /// How sure the limit is, or why there is no answer.
    pub certainty: String,
    /// Doubts of this result; the report lists them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubts: Option<usize>,
    /// The run that it was measured in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
}

impl SurveyRow {
    /// A question that got no answer; `why` in one or two words.
    pub fn unanswered(measured: &str, why: &str) -> Self {
        Self {
            measured: measured.to_owned(),
            result: UNKNOWN.to_owned(),
            n: None,
            limit: UNKNOWN.to_owned(),
            certainty: why.to_owned(),
            doubts: None,
            run: None,
        }
    }

    /// A sentence for the progress: `TCP, 1 flow: 31.4 Gbit/s, limited by cpu (confirmed)`.
    pub fn sentence(&self) -> String {
        let limit = match self.limit.as_str() {
            UNKNOWN => self.certainty.clone(),
            limit => format!("limited by {limit} ({})", self.certainty),
        };
        format!("{}: {}, {limit}", self.measured, self.result)
    }
}

/// A row for each variant of a run. `name` is what the only variant of a run is called; several have their
/// own names. `main` is the metric that answers the question, of variants that have it; else the first of the
/// findings.
pub fn rows(run: &Run, name: &str, main: Option<&str>) -> Vec<SurveyRow> {
    let is_one = run.variants.len() < 2;
    let row = |variant: &VariantOutcome| row(run, variant, if is_one { name } else { &variant.name }, main);
    match run.variants.is_empty() {
        true => vec![SurveyRow::unanswered(name, words::state_word(run.state))],
        false => run.variants.iter().map(row).collect(),
    }
}

fn row(run: &Run, variant: &VariantOutcome, name: &str, main: Option<&str>) -> SurveyRow {
    let is_measured = !variant.findings.is_empty() || !words::is_one_load(run, variant);
    let Some(result) = result(variant, main).filter(|_| is_measured) else {
        let why = if run.state == State::Complete { "not measured" } else { words::state_word(run.state) };
        return SurveyRow::unanswered(name, why);
    };
    let limit = &variant.limit;
    let (limit, certainty) = match (limit.resource, not_passed(run, variant)) {
        (_, Some(why)) => (UNKNOWN.to_owned(), why.to_owned()),
        // A load that failed once and passed later had a limit, which was not found.
        (Resource::None, None) if limit.certainty == Certainty::Unknown || has_failed(run, variant) => {
            (UNKNOWN.to_owned(), "limit unknown".to_owned())
        }
        (Resource::None, None) => (UNKNOWN.to_owned(), "no limit found".to_owned()),
        (resource, None) => (
            words::limit_word(resource, limit.certainty).to_owned(),
            words::certainty_word(limit.certainty).to_owned(),
        ),
    };
    SurveyRow {
        measured: name.to_owned(),
        result,
        n: Some(variant.findings.first().map_or(variant.repetitions.len(), |found| found.values.len())),
        limit,
        certainty,
        doubts: Some(doubts::of_variant(run, variant)),
        run: Some(run.run.clone()),
    }
}

/// The number of the answer: a metric of one load, or the capacity of a search.
fn result(variant: &VariantOutcome, main: Option<&str>) -> Option<String> {
    let named = |finding: &&LoadMetric| main.is_some_and(|main| finding.metric == main);
    match variant.findings.iter().find(named).or(variant.findings.first()) {
        Some(found) if unit_of(&found.metric).0 == "s" => {
            let words = metric_words(&found.metric);
            let kind = words.rsplit(' ').next().unwrap_or_default();
            Some(format!("{kind} {}", metric(&found.metric, found.median())))
        }
        Some(found) => Some(findings::median(found)),
        None => {
            let value = variant.capacity.value?;
            let least = if variant.capacity.is_lower_bound() { "at least " } else { "" };
            Some(format!("{least}{}", words::load(value, &variant.capacity.unit)))
        }
    }
}

fn has_failed(run: &Run, variant: &VariantOutcome) -> bool {
    run.trials_of(&variant.name).any(|trial| trial.verdict == Verdict::Fail)
}

/// Why the number of a single load is no full answer.
fn not_passed(run: &Run, variant: &VariantOutcome) -> Option<&'static str> {
    if !words::is_one_load(run, variant) {
        return None;
    }
    let has = |verdict| run.trials_of(&variant.name).any(|trial: &Trial| trial.verdict == verdict);
    match (has(Verdict::Pass), has(Verdict::Fail)) {
        (true, _) => None,
        (false, true) => Some("failed"),
        (false, false) => Some("not judged"),
    }
}
