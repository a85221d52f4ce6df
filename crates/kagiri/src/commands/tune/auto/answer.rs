//! What the trials decided.

use std::collections::BTreeMap;

use base::format::number;
use report::terminal::{Style, words_table};
use serde::Serialize;
use tune::export::assignment;
use tune::trials::{Comparison, Verdict};

use super::super::COLUMNS;
use super::goal::Goal;

const NAME_COLUMNS: usize = 28;

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    /// No connection sent anything in the first trial.
    NothingSeen,
    BuffersNotTheLimit,
    /// The program has fixed its buffers; no setting of the kernel changes them.
    FixedByProgram,
    /// Something limits it that no known setting changes.
    NoCandidate,
    /// A candidate is better, also on fresh blocks.
    Better,
    /// A candidate was better, but not on fresh blocks.
    NotConfirmed,
    /// Each candidate that is better makes another metric worse.
    WorseElsewhere,
    NoDifference,
    /// All candidates that differ are worse.
    Worse,
    /// Too few blocks.
    Undecided,
}

impl Conclusion {
    /// Where no candidate is accepted.
    pub fn of_verdicts(results: &[CandidateResult]) -> Self {
        let has = |verdict| results.iter().any(|one| one.verdict == verdict);
        match () {
            () if has(Verdict::Better) => Self::WorseElsewhere,
            () if has(Verdict::NoDifference) => Self::NoDifference,
            () if has(Verdict::Worse) => Self::Worse,
            () => Self::Undecided,
        }
    }
}

#[derive(Debug, Serialize)]
pub struct Diagnosis {
    pub sndbuf_limited_ratio: Option<f64>,
    pub rwnd_limited_ratio: Option<f64>,
    /// Sentences with their counters.
    pub limits: Vec<String>,
    pub run: String,
}

/// A metric that is worse with a candidate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Guard {
    pub metric: String,
    pub change: f64,
    /// Whether the candidate is not accepted for this reason.
    pub refuses: bool,
}

#[derive(Debug, Serialize)]
pub struct CandidateResult {
    pub candidate: String,
    pub verdict: Verdict,
    pub change: Option<f64>,
    pub interval: Option<[f64; 2]>,
    pub probability: f64,
    pub detectable_change: Option<f64>,
    pub blocks: usize,
    /// Blocks with a trial that was not usable.
    pub blocks_left_out: usize,
    pub worse: Vec<Guard>,
}

impl CandidateResult {
    pub fn new(candidate: String, one: Comparison, blocks_left_out: usize) -> Self {
        Self {
            candidate,
            verdict: one.verdict,
            change: one.change,
            interval: one.interval,
            probability: one.probability,
            detectable_change: one.detectable_change,
            blocks: one.blocks,
            blocks_left_out,
            worse: Vec::new(),
        }
    }

    /// Whether it is better, and makes no guarded metric worse.
    pub fn is_accepted(&self) -> bool {
        self.verdict == Verdict::Better && !self.worse.iter().any(|guard| guard.refuses)
    }
}

#[derive(Debug, Serialize)]
pub struct Answer {
    pub goal: String,
    /// Metrics that a winner must not make worse.
    pub guards: Vec<String>,
    /// Seed of the random order of the trials within each block.
    pub order_seed: u64,
    pub conclusion: Conclusion,
    pub diagnosis: Diagnosis,
    pub candidates: Vec<CandidateResult>,
    /// Settings of the best candidate.
    pub winner: Option<BTreeMap<String, String>>,
    /// Of the winner, on fresh blocks.
    pub confirmation: Option<CandidateResult>,
    /// Stored runs of the trials.
    pub runs: Vec<String>,
}

impl Answer {
    pub fn new(goal: &Goal, order_seed: u64, diagnosis: Diagnosis) -> Self {
        Self {
            goal: goal.name.clone(),
            guards: goal.guards.iter().filter(|one| one.refuses).map(|one| one.name.clone()).collect(),
            order_seed,
            conclusion: Conclusion::NoCandidate,
            diagnosis,
            candidates: Vec::new(),
            winner: None,
            confirmation: None,
            runs: Vec::new(),
        }
    }

    /// At most 15 lines of 80 columns, unless `is_full`.
    pub fn text(&self, is_full: bool, style: Style) -> String {
        let style = Style { width: COLUMNS, ..style };
        let mut text = style.wrapped("", &self.sentence());
        let limits = self.diagnosis.limits.len();
        for limit in self.diagnosis.limits.iter().take(if is_full { limits } else { 1 }) {
            text += &style.wrapped("First trial: ", limit);
        }
        if !self.candidates.is_empty() {
            let rows: Vec<Vec<String>> = self.candidates.iter().map(row).collect();
            text += &words_table(&["candidate", "change", "95 % interval", "p", "verdict"], &rows, &style);
        }
        let compared = self.candidates.iter().chain(&self.confirmation);
        for one in compared.filter(|one| one.verdict == Verdict::Better && !one.worse.is_empty()) {
            text += &style.wrapped("", &format!("{}: worse in {}", one.candidate, guards(&one.worse)));
        }
        if self.conclusion == Conclusion::Better {
            text += &style.wrapped("Set it: ", &format!("kagiri tune set {} --keep", self.assignments()));
        }
        let mut lines: Vec<&str> = text.lines().collect();
        if !is_full {
            lines.truncate(15);
        }
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    fn assignments(&self) -> String {
        let settings = self.winner.iter().flatten();
        settings.map(|(name, value)| assignment(name, value)).collect::<Vec<_>>().join(" ")
    }

    fn sentence(&self) -> String {
        let goal = &self.goal;
        let ratio = |ratio: Option<f64>| base::format::quantity(ratio.map(|ratio| 100.0 * ratio), "%");
        match self.conclusion {
            Conclusion::NothingSeen => {
                "Nothing to decide: no TCP connection of the watched hosts sent anything (tcpi_busy_time). \
                 Name the sending hosts with --on, or a candidate with --try."
                    .to_owned()
            }
            Conclusion::BuffersNotTheLimit => format!(
                "Buffers are not the limit: connections were send-buffer-limited {} and \
                 receive-window-limited {} of their busy time (TCP_INFO). No trial of buffer sizes was \
                 made; --try makes one anyway.",
                ratio(self.diagnosis.sndbuf_limited_ratio),
                ratio(self.diagnosis.rwnd_limited_ratio)
            ),
            Conclusion::FixedByProgram => {
                "The program has fixed its send buffer (SO_SNDBUF): no setting of the kernel changes it, and \
                 no trial was made. Change the program, or name another candidate with --try."
                    .to_owned()
            }
            Conclusion::NoCandidate => {
                "No setting that kagiri knows changes what limits this; name a candidate with --try."
                    .to_owned()
            }
            Conclusion::Better => format!(
                "{}: {goal} {}, confirmed on fresh blocks.",
                self.winner_name(),
                self.confirmation.as_ref().map(change_with_interval).unwrap_or_default()
            ),
            Conclusion::NotConfirmed => format!(
                "No difference that lasts: {} was better at first; fresh blocks show {goal} {}.",
                self.winner_name(),
                self.confirmation.as_ref().map(change_with_interval).unwrap_or_default()
            ),
            Conclusion::WorseElsewhere => format!(
                "Not accepted: what makes {goal} better makes another metric worse. Set it only if you can \
                 do without the other."
            ),
            Conclusion::NoDifference => format!(
                "No difference in {goal}. {} would have been found with a probability of 80 % ({} blocks).",
                self.detectable(),
                self.candidates.first().map_or(0, |one| one.blocks)
            ),
            Conclusion::Worse => format!("No candidate is better: {goal} is worse with each that differs."),
            Conclusion::Undecided => {
                format!("Undecided: too few usable blocks to show a difference in {goal}; use more --blocks.")
            }
        }
    }

    fn winner_name(&self) -> String {
        self.confirmation.as_ref().map_or_else(|| "A candidate".to_owned(), |one| one.candidate.clone())
    }

    /// The largest of the smallest changes that would have been found.
    fn detectable(&self) -> String {
        let changes = self.candidates.iter().filter_map(|one| one.detectable_change);
        let largest = changes.max_by(|a, b| a.abs().total_cmp(&b.abs()));
        largest.map_or_else(|| "No change".to_owned(), |change| format!("A change of {}", percent(change)))
    }
}

fn row(one: &CandidateResult) -> Vec<String> {
    let verdict = match one.verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::NoDifference => "no difference",
        Verdict::Undecided => "undecided",
    };
    let interval = one.interval.map(|[low, high]| format!("{} to {}", percent(low), percent(high)));
    vec![
        report::text::clipped(&one.candidate, NAME_COLUMNS),
        one.change.map(percent).unwrap_or_default(),
        interval.unwrap_or_default(),
        number(one.probability),
        verdict.to_owned(),
    ]
}

fn guards(worse: &[Guard]) -> String {
    let one = |guard: &Guard| format!("{} ({})", guard.metric, percent(guard.change));
    worse.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn change_with_interval(one: &CandidateResult) -> String {
    let interval = one.interval.map(|[low, high]| format!(" (95 %: {} to {})", percent(low), percent(high)));
    one.change.map(percent).unwrap_or_default() + &interval.unwrap_or_default()
}

/// A share as a change: `-12 %`, `+3.1 %`.
fn percent(share: f64) -> String {
    let sign = if share > 0.0 { "+" } else { "" };
    format!("{sign}{} %", number(100.0 * share))
}

#[cfg(test)]
mod tests {
    use tune::trials::Better;

    use super::*;

    fn answer(conclusion: Conclusion, count: usize) -> Answer {
        let goal = Goal { name: "response_p99_ms".into(), better: Better::Lower, guards: Vec::new() };
        let diagnosis = Diagnosis {
            sndbuf_limited_ratio: Some(0.003),
            rwnd_limited_ratio: Some(0.0),
            limits: vec![
                "Send buffers limit the connection to 10.0.0.2:80 (tcpi_sndbuf_limited).".repeat(3);
                3
            ],
            run: "r1".into(),
        };
        let one = || CandidateResult {
            candidate: "tcp_wmem=4096 16384 8388608; tcp_sack=0".into(),
            verdict: Verdict::NoDifference,
            change: Some(0.0123),
            interval: Some([-0.1234, 0.1456]),
            probability: 0.1234,
            detectable_change: Some(-0.08),
            blocks: 8,
            blocks_left_out: 0,
            worse: vec![Guard { metric: "retransmits".into(), change: 0.5, refuses: true }],
        };
        Answer {
            conclusion,
            candidates: (0..count).map(|_| one()).collect(),
            winner: Some([("net.ipv4.tcp_sack".to_owned(), "0".to_owned())].into()),
            confirmation: Some(one()),
            ..Answer::new(&goal, 1, diagnosis)
        }
    }

    #[test]
    fn answers_fit_15_lines_of_80_columns() {
        let style = Style { colour: false, width: 200, unicode: true };
        for conclusion in [
            Conclusion::NothingSeen,
            Conclusion::BuffersNotTheLimit,
            Conclusion::FixedByProgram,
            Conclusion::NoCandidate,
            Conclusion::Better,
            Conclusion::NotConfirmed,
            Conclusion::WorseElsewhere,
            Conclusion::NoDifference,
            Conclusion::Worse,
            Conclusion::Undecided,
        ] {
            let text = answer(conclusion, 6).text(false, style);
            assert!(text.lines().count() <= 15, "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        }
        let text = answer(Conclusion::NoDifference, 1).text(false, style);
        assert!(text.contains("A change of -8 % would have been found"), "{text}");
        assert!(text.contains("-12.3 % to +14.6 %"), "{text}");
        let mut traded = answer(Conclusion::WorseElsewhere, 1);
        traded.candidates[0].verdict = Verdict::Better;
        assert_eq!(Conclusion::of_verdicts(&traded.candidates), Conclusion::WorseElsewhere);
        assert!(!traded.candidates[0].is_accepted());
        traded.candidates[0].worse[0].refuses = false;
        assert!(traded.candidates[0].is_accepted());
        let text = traded.text(false, style);
        assert!(text.contains("tcp_sack=0: worse in retransmits (+50 %)"), "{text}");
        assert!(!text.contains("Set it: "), "{text}");
        let text = answer(Conclusion::BuffersNotTheLimit, 0).text(false, style);
        assert!(text.contains("send-buffer-limited 0.3 %"), "{text}");
    }
}
