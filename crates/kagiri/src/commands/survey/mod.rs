//! `kagiri survey`: measures this machine with every workload in a few minutes and writes one report.

mod questions;

use std::collections::BTreeMap;

use base::outcome::{Ceiling, Resource, Run};
use clap::Args;
use report::survey::SurveyRow;
use serde_json::json;

use self::questions::Question;
use crate::args::MeasureArgs;
use crate::exit::{Code, Failure, Outcome};
use crate::hosts::HostArgs;
use crate::output;
use crate::placement_check::Places;
use crate::session::{self, Session};

/// Measure this machine: CPU, disk, memory, loopback, transfers, messages, events, file work and streams.
#[derive(Args)]
#[command(
    after_help = "Measures the maxima of CPU, disk, memory and loopback; throughput and response times \
    over loopback ('kagiri transfer'); replies to messages ('kagiri exchange'); data acquisition from 100 \
    sources ('kagiri daq'); the work of a file server ('kagiri files'); and how many video streams of 25 \
    Mbit/s this machine serves and plays at once ('kagiri stream'). Takes two to three minutes and about 700 \
    MB of disk, needs no root, prints one table and the path of its report.\n\n\
    Examples:\n  \
    kagiri survey\n  \
    kagiri survey --out survey/                   write all files to one directory\n  \
    kagiri survey --json --quiet > survey.json    for a script"
)]
pub struct Survey {
    #[command(flatten)]
    common: MeasureArgs,
}

impl Survey {
    pub fn run(self) -> Outcome {
        let say = output::say_unless(self.common.quiet);
        // Find errors before the first measurement.
        let last = questions::streams(&BTreeMap::new(), &self.common)?;
        session::check_plan(&last.plan, &HostArgs::default(), Places::Options)?;
        let mut session = Session::open(&self.common, &say)?;
        say("Surveying this machine takes two to three minutes if it is idle. Ctrl-C keeps finished trials.");
        say(&format!("1 of {}: ceilings of CPU, disk and loopback (some seconds)", questions::COUNT + 1));
        let ceilings = measure_ceilings(&session, &say);
        if session.is_stopped() {
            return Err(Failure::Interrupted("interrupted before anything was measured".into()));
        }
        let mut answers = Answers { rows: questions::ceiling_rows(&ceilings), ..Answers::default() };
        let questions = questions::all(&ceilings, session.data_dir(), &self.common)?;
        for (at, question) in (2..).zip(&questions) {
            say(&format!("{at} of {}: {}", questions.len() + 1, question.what));
            session.add_fact(output::SURVEY, json!(question.fact(&answers.rows)));
            let measured = session.measure(&question.plan, &self.progress_of(question));
            answers.add(question, measured, &say);
            if session.is_stopped() {
                answers.is_interrupted = true;
                break;
            }
        }
        answers.present(&self.common)
    }

    /// Short measurements show a line each; only a long one shows its trials.
    fn progress_of(&self, question: &Question) -> MeasureArgs {
        MeasureArgs { quiet: self.common.quiet || !question.is_long, ..self.common.clone() }
    }
}

fn measure_ceilings(session: &Session, say: &dyn Fn(&str)) -> BTreeMap<Resource, Ceiling> {
    let stopped = || session.is_stopped();
    let ceilings =
        observe::calibrate::all(session.data_dir(), &mut |line| say(&format!("  {line}")), &stopped);
    for (resource, ceiling) in &ceilings {
        say(&format!("  {resource}: {} ({})", questions::ceiling_words(*resource, ceiling), ceiling.source));
    }
    ceilings
}

/// What was measured so far.
#[derive(Default)]
struct Answers {
    rows: Vec<SurveyRow>,
    runs: Vec<Run>,
    has_failed: bool,
    is_interrupted: bool,
}

impl Answers {
    /// Adds what came of a question. One that could not be measured does not end the survey.
    fn add(&mut self, question: &Question, measured: Result<Run, Failure>, say: &dyn Fn(&str)) {
        match measured {
            Ok(run) => {
                let rows = report::survey::rows(&run, question.name, question.main);
                rows.iter().for_each(|row| say(&format!("  {}", row.sentence())));
                self.rows.extend(rows);
                self.runs.push(run);
            }
            // An interrupted question is not in the table.
            Err(Failure::Interrupted(_)) => {}
            Err(failure) => {
                output::error_line(&format!("{}: {failure}", question.name));
                self.rows.push(SurveyRow::unanswered(question.name, "not measured"));
                self.has_failed = true;
            }
        }
    }

    fn present(&self, common: &MeasureArgs) -> Outcome {
        let Some(last) = self.runs.last() else {
            return Err(match self.is_interrupted {
                true => Failure::Interrupted("interrupted before the first trial ended".into()),
                false => Failure::runtime("nothing could be measured; see the errors above"),
            });
        };
        output::present_survey(&self.rows, &self.runs, common)?;
        Ok(match (self.is_interrupted, self.has_failed) {
            (true, _) => Code::Interrupted,
            (false, true) => Code::Failed,
            (false, false) => output::code(last),
        })
    }
}
