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

/// A goal, and whether it was reached.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Goal {
    /// In words: ">= 0.9".
    pub words: String,
    /// `None`: nothing was measured that could tell.
    pub reached: Option<bool>,
}

/// One line of a table.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Row {
    /// What was measured.
    pub what: String,
    /// The unit of `ours` and `peer`.
    pub unit: String,
    /// Our values in the order in which they were measured.
    pub ours: Vec<f64>,
    /// The peer's, where there is one.
    pub peer: Vec<f64>,
    /// Ours over the peer's, pair by pair.
    pub ratios: Vec<f64>,
    /// What is to be reached.
    pub goal: Option<Goal>,
    /// What else the machine did, per pair (or per value without a peer).
    pub noise: Vec<Noise>,
    /// What a reader must know about this line.
    pub note: Option<String>,
}

impl Row {
    /// A line without values.
    pub fn new(what: impl Into<String>, unit: &str) -> Self {
        Self { what: what.into(), unit: unit.to_owned(), ..Self::default() }
    }

    /// Adds a pair.
    pub fn pair(&mut self, ours: f64, peer: f64) {
        self.ours.push(ours);
        self.peer.push(peer);
        if peer != 0.0 {
            self.ratios.push(ours / peer);
        }
    }

    /// Sets the goal that the median of our values is held against.
    pub fn goal_ours(mut self, words: &str, holds: impl Fn(f64) -> bool) -> Self {
        let reached = statistics::median(&self.ours).map(holds);
        self.goal = Some(Goal { words: words.to_owned(), reached });
        self
    }

    /// Sets the goal that every one of our values is held against.
    pub fn goal_each(mut self, words: &str, holds: impl Fn(f64) -> bool) -> Self {
        let reached = (!self.ours.is_empty()).then(|| self.ours.iter().all(|&value| holds(value)));
        self.goal = Some(Goal { words: words.to_owned(), reached });
        self
    }

    /// Sets the goal that the median of the ratios is held against.
    pub fn goal_ratio(mut self, words: &str, holds: impl Fn(f64) -> bool) -> Self {
        let reached = statistics::median(&self.ratios).map(holds);
        self.goal = Some(Goal { words: words.to_owned(), reached });
        self
    }

    /// Adds a remark.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }
}

/// One case.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Section {
    /// Its name on the command line.
    pub case: String,
    /// When it was measured.
    pub at: String,
    /// What was compared with what, and how.
    pub compared: String,
    /// Repeats it.
    pub command: String,
    /// The peers' versions.
    pub versions: BTreeMap<String, String>,
    /// The lines.
    pub rows: Vec<Row>,
    /// What a reader must know about the whole.
    pub notes: Vec<String>,
    /// Seconds that the case took.
    pub took_s: f64,
}

/// Appends a case to the results.
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
        let row = row.goal_ratio(">= 0.9", |ratio| ratio >= 0.9);
        assert_eq!(row.goal.and_then(|goal| goal.reached), Some(true));
        let none = Row::new("nothing", "").goal_ours("> 1", |value| value > 1.0);
        assert_eq!(none.goal.and_then(|goal| goal.reached), None);
    }
}
