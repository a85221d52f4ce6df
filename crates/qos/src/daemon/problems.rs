//! What went wrong while a policy was in force.

use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Different problems that are kept for the status.
const PROBLEMS_MAX: usize = 8;
/// What is not limited is tried again every 10 s, so that a problem that lasts comes as often.
const PROBLEM_FRESH: Duration = Duration::from_secs(15);

#[derive(Debug, Default)]
pub struct Problems {
    kept: Vec<Problem>,
    /// Kinds that [`Self::take_new`] has returned.
    taken: HashSet<String>,
}

/// What went wrong, and when last.
#[derive(Debug)]
struct Problem {
    kind: String,
    text: String,
    last: Instant,
}

impl Problems {
    pub fn note(&mut self, problem: Option<String>) {
        let Some(text) = problem else { return };
        self.note_of_kind(text.clone(), text);
    }

    /// Takes the place of an earlier problem of this kind, or else of the one that was noted longest ago if
    /// there are too many.
    pub fn note_of_kind(&mut self, kind: String, text: String) {
        let last = Instant::now();
        if let Some(known) = self.kept.iter_mut().find(|known| known.kind == kind) {
            (known.text, known.last) = (text, last);
            return;
        }
        if self.kept.len() >= PROBLEMS_MAX {
            let oldest = (0..self.kept.len()).min_by_key(|at| self.kept[*at].last);
            oldest.map(|at| self.kept.remove(at));
        }
        self.kept.push(Problem { kind, text, last });
    }

    /// Those of kinds that were not returned before.
    pub fn take_new(&mut self) -> Vec<String> {
        let Self { kept, taken } = self;
        let new = kept.iter().filter(|problem| taken.insert(problem.kind.clone()));
        new.map(|problem| problem.text.clone()).collect()
    }

    /// As the status shows them: what has not happened again says so.
    pub fn shown(&self) -> Vec<String> {
        self.kept.iter().map(Problem::shown).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_problem_replaces_the_oldest_and_each_kind_is_new_once() {
        let mut problems = Problems::default();
        (0..8).for_each(|at| problems.note(Some(at.to_string())));
        assert_eq!(problems.take_new().len(), 8);
        problems.note(Some("0".to_owned()));
        problems.note_of_kind("sockets".to_owned(), "2 sockets".to_owned());
        problems.note_of_kind("sockets".to_owned(), "3 sockets".to_owned());
        assert_eq!(problems.take_new(), ["3 sockets"]);
        assert_eq!(problems.shown(), ["0", "2", "3", "4", "5", "6", "7", "3 sockets"]);
        problems.note(Some("1".to_owned()));
        assert!(problems.take_new().is_empty());
    }
}
