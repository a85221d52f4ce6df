//! What people type for a run: its id, the beginning of it, `last`, `last~1`, or a file.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use base::outcome::Run;
use rusqlite::{OptionalExtension, params};

use crate::{RunSummary, Store, StoreError, read_export_file};

/// How many ids a message lists.
const CANDIDATES_MAX: usize = 4;

/// How many runs before the last: 0 for `last`, 2 for `last~2`, `None` for another text.
fn back(text: &str) -> Option<u32> {
    match text.strip_prefix("last")? {
        "" => Some(0),
        rest => rest.strip_prefix('~')?.parse().ok(),
    }
}

/// Whether a text means something else than a run's id.
pub(crate) fn is_reserved(text: &str) -> bool {
    back(text).is_some()
}

/// The id that is meant by `text` among those that begin with it.
fn only_one(text: &str, ids: &[String]) -> Result<String, StoreError> {
    match ids {
        [only] => Ok(only.clone()),
        [] => Err(StoreError::NoRun { text: text.to_owned() }),
        several => {
            let mut candidates = several[..several.len().min(CANDIDATES_MAX)].join(" or ");
            if several.len() > CANDIDATES_MAX {
                candidates.push_str(" or others");
            }
            Err(StoreError::Ambiguous { text: text.to_owned(), candidates })
        }
    }
}

/// The id that is meant by `text` among the runs of another store, newest first, as
/// [`Store::resolve_id`] finds it here.
///
/// # Errors
/// Nothing or several runs are meant.
pub fn resolve_among(runs: &[RunSummary], text: &str) -> Result<String, StoreError> {
    if let Some(back) = back(text) {
        let mut measured = runs.iter().filter(|run| run.trials > 0);
        let found = measured.nth(back as usize).map(|run| run.run.clone());
        return found.ok_or_else(|| StoreError::NoneMeasured { text: text.to_owned() });
    }
    if runs.iter().any(|run| run.run == text) {
        return Ok(text.to_owned());
    }
    let begin = |run: &&RunSummary| !text.is_empty() && run.run.starts_with(text);
    let mut ids: Vec<String> = runs.iter().filter(begin).map(|run| run.run.clone()).collect();
    ids.sort();
    only_one(text, &ids)
}

impl Store {
    /// The run that is meant by `text`: a whole id, `last` (of those with at least one trial the one that
    /// began last), `last~N` (N before it), the path of an exported file, or the beginning of exactly one
    /// id.
    ///
    /// # Errors
    /// Nothing or several runs are meant; a file that is no exported run; a damaged store.
    pub fn resolve(&self, text: &str) -> Result<Run, StoreError> {
        if back(text).is_some() {
            return self.load(&self.resolve_id(text)?);
        }
        // The whole id first: it may be the beginning of another one, or the name of a file.
        match self.load(text) {
            Err(StoreError::NoRun { .. }) => {}
            found => return found,
        }
        let path = Path::new(text);
        if path.is_file() && !self.is_own_file(path) {
            return read_export_file(path);
        }
        match self.by_prefix(text) {
            Err(StoreError::NoRun { .. }) if text.contains('/') || text.ends_with(".json") => {
                let source = match fs::metadata(path) {
                    Err(error) => error,
                    Ok(_) => std::io::Error::other("it is not an exported run"),
                };
                Err(StoreError::File { path: path.to_owned(), source })
            }
            found => self.load(&found?),
        }
    }

    /// The id of the stored run that is meant by `text`, as in [`Self::resolve`], without files.
    pub fn resolve_id(&self, text: &str) -> Result<String, StoreError> {
        if let Some(back) = back(text) {
            return self.by_age(back)?.ok_or_else(|| StoreError::NoneMeasured { text: text.to_owned() });
        }
        let whole = self
            .db
            .query_row("SELECT id FROM run WHERE id = ?1", [text], |row| row.get(0))
            .optional()
            .map_err(|error| self.sql(error))?;
        whole.map_or_else(|| self.by_prefix(text), Ok)
    }

    /// The only id that begins with `text`.
    fn by_prefix(&self, text: &str) -> Result<String, StoreError> {
        only_one(text, &self.beginning_with(text)?)
    }

    /// Opening and closing the store's own file would drop the locks on it.
    fn is_own_file(&self, path: &Path) -> bool {
        let identity = |path: &Path| fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
        identity(path).is_some_and(|found| Some(found) == identity(self.path()))
    }

    /// A run that failed before its first trial is kept and listed, but `last` does not mean it.
    fn by_age(&self, back: u32) -> Result<Option<String>, StoreError> {
        self.db
            .query_row(
                "SELECT id FROM run WHERE EXISTS (SELECT 1 FROM trial WHERE trial.run = run.id) \
                 ORDER BY started_us DESC, id DESC LIMIT 1 OFFSET ?1",
                [back],
                |row| row.get(0),
            )
            .optional()
            .map_err(|error| self.sql(error))
    }

    fn beginning_with(&self, text: &str) -> Result<Vec<String>, StoreError> {
        if text.is_empty() {
            return Ok(Vec::new());
        }
        self.db
            .prepare_cached("SELECT id FROM run WHERE substr(id, 1, length(?1)) = ?1 ORDER BY id LIMIT ?2")
            .and_then(|mut select| {
                select.query_map(params![text, CANDIDATES_MAX as i64 + 1], |row| row.get(0))?.collect()
            })
            .map_err(|error| self.sql(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_last_is_a_reserved_name() {
        for (text, expected) in [
            ("last", Some(0)),
            ("last~12", Some(12)),
            ("last~", None),
            ("last~-1", None),
            ("last~99999999999", None),
            ("lasting", None),
            ("20261121", None),
        ] {
            assert_eq!(back(text), expected, "{text}");
        }
    }
}
