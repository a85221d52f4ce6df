//! What went wrong while a policy was in force.

use std::time::{Duration, Instant};

/// Different problems that are kept for the status.
const PROBLEMS_MAX: usize = 8;
/// What is not limited is tried again every 10 s, so that a problem that lasts comes as often.
const PROBLEM_FRESH: Duration = Duration::from_secs(15);

#[derive(Debug, Default)]
pub struct Problems(Vec<Problem>);

/// What went wrong, and when last.
#[derive(Debug)]
struct Problem {
    text: String,
    last: Instant,
}

impl Problems {
    pub fn note(&mut self, problem: Option<String>) {
        let Some(text) = problem else { return };
        if let Some(known) = self.0.iter_mut().find(|known| known.text == text) {
            known.last = Instant::now();
        } else if self.0.len() < PROBLEMS_MAX {
            self.0.push(Problem { text, last: Instant::now() });
        }
    }

    /// As the status shows them: what has not happened again says so.
    pub fn shown(&self) -> Vec<String> {
        self.0.iter().map(Problem::shown).collect()
    }
}

impl Problem {
    fn shown(&self) -> String {
        match self.last.elapsed() {
            ago if ago > PROBLEM_FRESH => format!("{} (last {} s ago)", self.text, ago.as_secs()),
            _ => self.text.clone(),
        }
    }
}
