//! What a case comes to: plain data, kept as one JSON line a case so that a table can be made again without
//! measuring.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use base::statistics;
use serde::{Deserialize, Serialize};

use crate::noise::Noise;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Goal {
    /// In words: ">= 0.9".
    pub words: String,
    /// `None`: nothing was measured.
    pub reached: Option<bool>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Row {
    pub what: String,
    /// The unit of `ours` and `peer`.
    pub unit: String,
    /// Our values in the order in which they were measured.
    pub ours: Vec<f64>,
    pub peer: Vec<f64>,
    /// Ours over the peer's, pair by pair.
    pub ratios: Vec<f64>,
    pub goal: Option<Goal>,
    /// What else the machine did, per pair (or per value without a peer).
    pub noise: Vec<Noise>,
    /// What a reader must know about this line.
    pub note: Option<String>,
}

impl Row {
    pub fn new(what: impl Into<String>, unit: &str) -> Self {
        Self { what: what.into(), unit: unit.to_owned(), ..Self::default() }
    }

    pub fn single(what: impl Into<String>, unit: &str, value: f64) -> Self {
        Self { ours: vec![value], ..Self::new(what, unit) }
    }

    pub fn pair(&mut self, ours: f64, peer: f64) {
        self.ours.push(ours);
        self.peer.push(peer);
        if peer != 0.0 {
            self.ratios.push(ours / peer);
        }
    }

    /// The median of our values must be as the words say: see [`holds`].
    pub fn goal_ours(self, words: &str) -> Self {
        let reached = statistics::median(&self.ours).map(|value| holds(words, value));
        self.goal(words, reached)
    }

    /// Every one of our values must be so.
    pub fn goal_each(self, words: &str) -> Self {
        let reached = (!self.ours.is_empty()).then(|| self.ours.iter().all(|value| holds(words, *value)));
        self.goal(words, reached)
    }

    /// The median of the ratios must be so.
    pub fn goal_ratio(self, words: &str) -> Self {
        let reached = statistics::median(&self.ratios).map(|value| holds(words, value));
        self.goal(words, reached)
    }

    fn goal(mut self, words: &str, reached: Option<bool>) -> Self {
        self.goal = Some(Goal { words: words.to_owned(), reached });
        self
    }

    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }
}

/// Whether a value is as a goal says: `<= 20 us`, `within 1 %` (of zero), `0.9 to 1.1`, or the number alone.
fn holds(words: &str, value: f64) -> bool {
    let mut words = words.trim_start_matches("ratio ").split([' ', ',', ':']);
    let number =
        |word: Option<&str>| word.and_then(|word| word.parse::<f64>().ok()).expect("a goal names a number");
    match words.next() {
        Some("<=") => value <= number(words.next()),
        Some(">=") => value >= number(words.next()),
        Some("<") => value < number(words.next()),
        Some(">") => value > number(words.next()),
        Some("within") => value.abs() <= number(words.next()),
        least if words.next() == Some("to") => (number(least)..=number(words.next())).contains(&value),
        only => value == number(only),
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Section {
    /// Its name on the command line.
    pub case: String,
    pub at: String,
    pub compared: String,
    pub command: String,
    pub versions: BTreeMap<String, String>,
    pub rows: Vec<Row>,
    /// What a reader must know about the whole.
    pub notes: Vec<String>,
    pub took_s: f64,
}

pub fn append(path: &Path, section: &Section) -> anyhow::Result<()> {
    let mut line = serde_json::to_string(section)?;
    line.push('\n');
    let file = OpenOptions::new().append(true).create(true).open(path);
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .with_context(|| format!("cannot append to {}", path.display()))
}

/// The last result of every case in the file.
pub fn latest(path: &Path) -> anyhow::Result<Vec<Section>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read {}: measure something first", path.display()))?;
    let mut found: Vec<Section> = Vec::new();
    for line in text.lines() {
        let section: Section = serde_json::from_str(line)
            .with_context(|| format!("{} holds a line that is no result", path.display()))?;
        found.retain(|other| other.case != section.case);
        found.push(section);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_held_against_medians_of_pairs() {
        let mut row = Row::new("rate", "Gbit/s");
        for (ours, peer) in [(9.0, 10.0), (20.0, 20.0), (5.0, 10.0)] {
            row.pair(ours, peer);
        }
        let row = row.goal_ratio(">= 0.9");
        assert_eq!(row.goal.and_then(|goal| goal.reached), Some(true));
        let none = Row::new("nothing", "").goal_ours("> 1");
        assert_eq!(none.goal.and_then(|goal| goal.reached), None);
    }

    #[test]
    fn goal_is_read_from_its_words() {
        for (words, holds_for, fails_for) in [
            ("<= 20 us, each", 20.0, 20.1),
            ("ratio >= 0.95", 0.95, 0.9),
            ("< 20 ms", 19.9, 20.0),
            ("> 0: every flow moved", 0.1, 0.0),
            ("within 0.2 ms", -0.2, 0.3),
            ("0.85 to 1.15", 1.15, 1.2),
            ("0, each", 0.0, 1.0),
            ("15000 exactly", 15_000.0, 14_999.0),
            ("<= 4000 KiB: 4 events", 4000.0, 4001.0),
        ] {
            assert!(holds(words, holds_for) && !holds(words, fails_for), "{words}");
        }
    }
}
