//! `--json-lines`: one JSON object per line while a command measures.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::outcome::{Run, Trial};
use base::part::Live;
use run::search::Step;
use serde_json::{Value, json};

use crate::args::MeasureArgs;
use crate::exit::Failure;
use crate::output;

/// Least time between two lines of progress within a trial, unless the command says another.
const EVERY: Duration = Duration::from_secs(1);

/// Where the lines go; shared by all runs of a command.
#[derive(Clone)]
pub struct JsonLines {
    out: Arc<Mutex<Box<dyn Write + Send>>>,
    every: Duration,
}

impl JsonLines {
    /// The lines that `--json-lines` asks for, if it is given.
    /// Errors: The file cannot be made; or two kinds of JSON would be mixed on standard output.
    pub fn open(common: &MeasureArgs) -> Result<Option<Self>, Failure> {
        let Some(path) = &common.json_lines else { return Ok(None) };
        let out: Box<dyn Write + Send> = match common.has_json_lines_on_stdout() {
            true if common.json => {
                return Err(Failure::usage(
                    "--json and --json-lines both write to standard output; give --json-lines=FILE",
                ));
            }
            true => Box::new(std::io::stdout()),
            false => Box::new(file(path)?),
        };
        let every = common.progress_every.map_or(EVERY, |every| every.duration());
        Ok(Some(Self { out: Arc::new(Mutex::new(out)), every }))
    }

    /// The lines of one run; `unit` is that of its loads.
    pub fn of_run(&self, run: &str, workload: &str, name: &str, unit: &str) -> RunLines {
        let lines = RunLines { lines: self.clone(), run: run.to_owned(), shown: Arc::default() };
        lines.line(
            "run",
            json!({
                "schema": base::outcome::SCHEMA, "kagiri": env!("CARGO_PKG_VERSION"), "workload": workload,
                "name": name, "unit": unit,
            }),
        );
        lines
    }
}

fn file(path: &Path) -> Result<File, Failure> {
    File::create(path).map_err(|error| {
        let problem = format!("--json-lines: cannot write {}: {error}", path.display());
        Failure::of_named(anyhow::Error::new(error).context(problem))
    })
}

/// The lines of one run.
#[derive(Clone)]
pub struct RunLines {
    lines: JsonLines,
    run: String,
    /// When progress was last written.
    shown: Arc<Mutex<Option<Instant>>>,
}

/// How long a run has taken, and may still take, in s.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    pub elapsed_s: f64,
    /// `None`: unknown.
    pub left_s: Option<f64>,
}

impl RunLines {
    pub fn preparing(&self, variant: &str, repetition: u32) {
        self.line("preparing", json!({ "variant": variant, "repetition": repetition }));
    }

    pub fn trial_began(&self, variant: &str, step: Step, clock: Clock) {
        self.line(
            "trial_began",
            json!({
                "variant": variant, "load": step.load, "phase": step.phase, "elapsed_s": clock.elapsed_s,
                "left_s": clock.left_s,
            }),
        );
    }

    /// The share of the trial that is done, and live values; at most once in the interval of these lines.
    pub fn progress(&self, done: f64, live: &Live, clock: Clock) {
        {
            let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
            if shown.is_some_and(|at| at.elapsed() < self.lines.every) {
                return;
            }
            *shown = Some(Instant::now());
        }
        self.line(
            "progress",
            json!({ "done": done, "live": live, "elapsed_s": clock.elapsed_s, "left_s": clock.left_s }),
        );
    }

    pub fn trial(&self, trial: &Trial) {
        self.line("trial", json!({ "trial": without_samples(trial) }));
    }

    /// What came of the run.
    pub fn end(&self, run: &Run) {
        let variants: Vec<Value> = run
            .variants
            .iter()
            .map(|variant| {
                json!({
                    "name": variant.name, "capacity": variant.capacity, "findings": variant.findings,
                    "limit": variant.limit, "doubts": variant.doubts,
                })
            })
            .collect();
        self.line(
            "end",
            json!({
                "state": run.state, "failure": run.failure, "variants": variants,
                "requirements": run.requirements, "doubts": run.doubts,
            }),
        );
    }

    /// One object: the event and the run's id first.
    fn line(&self, event: &str, content: Value) {
        let mut object = serde_json::Map::new();
        object.insert("event".to_owned(), json!(event));
        object.insert("run".to_owned(), json!(self.run));
        if let Value::Object(content) = content {
            object.extend(content);
        }
        let text = store::printable_json(Value::Object(object).to_string()) + "\n";
        let mut out = self.lines.out.lock().unwrap_or_else(PoisonError::into_inner);
        // A reader that has gone does not end the measurement.
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                output::error_line(&format!("--json-lines: cannot write: {error}"));
            }
            _ => {}
        }
    }
}

/// A trial without its samples and figures, which are large; the stored run has them.
fn without_samples(trial: &Trial) -> Trial {
    let mut short = Trial { series: Vec::new(), ..trial.clone() };
    short.account.figures.clear();
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_begins_with_event_and_run_and_progress_is_rare() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_owned();
        let common = MeasureArgs { json_lines: Some(path.clone()), json: true, ..MeasureArgs::default() };
        let lines = JsonLines::open(&common).unwrap().unwrap();
        let run = lines.of_run("r1", "stream", "a name\u{85}", "streams");
        let clock = Clock { elapsed_s: 1.5, left_s: None };
        for _ in 0..3 {
            run.progress(0.5, &Live::new(), clock);
        }
        let text = std::fs::read_to_string(path).unwrap();
        let read: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(read.len(), 2, "{text}");
        assert!(text.starts_with("{\"event\":\"run\",\"run\":\"r1\",") && text.contains("\\u0085"), "{text}");
        assert_eq!((&read[1]["done"], &read[1]["left_s"]), (&json!(0.5), &Value::Null));
    }

    #[test]
    fn two_documents_on_standard_output_are_refused() {
        let common = MeasureArgs { json_lines: Some("-".into()), json: true, ..MeasureArgs::default() };
        assert!(matches!(JsonLines::open(&common), Err(Failure::Usage(_))));
        assert!(JsonLines::open(&MeasureArgs::default()).unwrap().is_none());
    }
}
