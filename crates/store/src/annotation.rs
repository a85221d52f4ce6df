//! Tags and notes that people add to stored runs.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{OptionalExtension, params};
use serde::{Deserialize, Serialize};

use crate::word::json;
use crate::{Store, StoreError};

pub const NOTE_BYTES_MAX: usize = 10_000;
pub const TAGS_MAX: usize = 20;
pub const TAG_BYTES_MAX: usize = 60;

/// What people add to a run. It is not exported with it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Annotation {
    pub tags: Vec<String>,
    pub note: String,
}

impl Annotation {
    /// With trimmed tags, each of them once.
    /// Errors: too long, too many, or control characters.
    pub fn checked(tags: &[String], note: &str) -> Result<Self, String> {
        let mut seen = BTreeSet::new();
        let mut kept = Vec::new();
        for tag in tags.iter().map(|tag| tag.trim()).filter(|tag| !tag.is_empty()) {
            if tag.len() > TAG_BYTES_MAX || tag.contains(char::is_control) {
                return Err(format!(
                    "tag {:?}: write at most {TAG_BYTES_MAX} bytes, without line breaks",
                    tag.chars().take(20).collect::<String>()
                ));
            }
            if seen.insert(tag.to_owned()) {
                kept.push(tag.to_owned());
            }
        }
        if kept.len() > TAGS_MAX {
            return Err(format!("{} tags; a run has at most {TAGS_MAX}", kept.len()));
        }
        if note.len() > NOTE_BYTES_MAX {
            return Err(format!("the note has {} bytes; at most {NOTE_BYTES_MAX} are kept", note.len()));
        }
        Ok(Self { tags: kept, note: note.to_owned() })
    }
}

impl Store {
    /// The annotations of all runs that have one, by the runs' ids.
    pub fn annotations(&self) -> Result<BTreeMap<String, Annotation>, StoreError> {
        let read = || {
            let mut select = self.db.prepare_cached("SELECT run, tags, note FROM annotation")?;
            let rows = select
                .query_map([], |row| Ok((row.get(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?)))?;
            rows.collect::<rusqlite::Result<Vec<(String, String, String)>>>()
        };
        let rows = read().map_err(|error| self.sql(error))?;
        let annotation = |(run, tags, note): (String, String, String)| {
            // Tags that were changed by hand into something else are none.
            (run, Annotation { tags: serde_json::from_str(&tags).unwrap_or_default(), note })
        };
        Ok(rows.into_iter().map(annotation).collect())
    }

    /// Errors: there is no run with this whole id.
    pub fn check_known(&self, run_id: &str) -> Result<(), StoreError> {
        let known = self.db.query_row("SELECT 1 FROM run WHERE id = ?1", [run_id], |_| Ok(())).optional();
        match known.map_err(|error| self.sql(error))? {
            Some(()) => Ok(()),
            None => Err(StoreError::NoRun { text: run_id.to_owned() }),
        }
    }

    /// Replaces the annotation of a run.
    /// Errors: there is no such run; a full disk.
    pub fn annotate(&mut self, run_id: &str, annotation: &Annotation) -> Result<(), StoreError> {
        self.check_known(run_id)?;
        let tags = json("the tags", &annotation.tags)?;
        let put = "INSERT INTO annotation (run, note, tags) VALUES (?1, ?2, ?3) \
             ON CONFLICT (run) DO UPDATE SET note = excluded.note, tags = excluded.tags";
        let written = self.db.execute(put, params![run_id, annotation.note, tags]);
        written.map(drop).map_err(|error| self.sql(error))
    }

    /// The runs that living processes of this host measure now, with the ids of the processes.
    pub fn measured_now(&self) -> Result<Vec<(String, u32)>, StoreError> {
        let read = || {
            let mut select = self.db.prepare_cached(
                "SELECT id, state, owner_pid, owner_start, owner_boot, owner_pid_space FROM run \
                 WHERE state = 'running'",
            )?;
            let rows =
                select.query_map([], |row| Ok((row.get::<_, String>("id")?, crate::read::living(row)?)))?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        let all = read().map_err(|error| self.sql(error))?;
        Ok(all.into_iter().filter_map(|(run, pid)| Some((run, pid?))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotation_is_trimmed_and_bounded() {
        let tags = |all: &[&str]| all.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>();
        let checked = Annotation::checked(&tags(&[" night ", "", "ext4", "night"]), "as is\n").unwrap();
        assert_eq!(checked, Annotation { tags: tags(&["night", "ext4"]), note: "as is\n".into() });
        let many: Vec<String> = (0..=TAGS_MAX).map(|number| number.to_string()).collect();
        for (wrong, note) in
            [(tags(&["a\nb"]), ""), (tags(&[&"x".repeat(TAG_BYTES_MAX + 1)]), ""), (many, "")]
        {
            assert!(Annotation::checked(&wrong, note).is_err(), "{wrong:?}");
        }
        assert!(Annotation::checked(&[], &"n".repeat(NOTE_BYTES_MAX + 1)).is_err());
    }
}
