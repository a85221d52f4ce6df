//! The layout of the file, and the steps from older ones.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use crate::StoreError;

/// Step `i` leads from layout `i` to layout `i + 1`.
const STEPS: [&str; 3] = [include_str!("1.sql"), include_str!("2.sql"), include_str!("3.sql")];

pub(crate) const LAYOUT: i64 = STEPS.len() as i64;

/// The layout of an open file; zero for a new one.
///
/// # Errors
/// A newer layout, some other program's database, a damaged file.
pub(crate) fn check(db: &Connection, path: &Path) -> Result<i64, StoreError> {
    // Number and tables of one moment: another process may be making the file just now.
    let view = db.unchecked_transaction().map_err(|error| StoreError::from_sql(path, error))?;
    check_within(&view, path)
}

/// [`check`] within a transaction.
fn check_within(db: &Connection, path: &Path) -> Result<i64, StoreError> {
    let sql = |error| StoreError::from_sql(path, error);
    let found: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(sql)?;
    if found > LAYOUT {
        return Err(StoreError::NewerLayout { path: path.to_owned(), found, known: LAYOUT });
    }
    let tables: Vec<String> = db
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")
        .and_then(|mut select| select.query_map([], |row| row.get(0))?.collect())
        .map_err(sql)?;
    let ours = tables.iter().any(|name| name == "run");
    if found < 0 || (found == 0 && !tables.is_empty()) || (found > 0 && !ours) {
        return Err(StoreError::Foreign { path: path.to_owned() });
    }
    Ok(found)
}

/// Bring the file to [`LAYOUT`]: all steps, or none.
pub(crate) fn migrate(db: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let sql = |error| StoreError::from_sql(path, error);
    let step = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sql)?;
    // Asked again under the lock: another process may have been here first.
    let found = check_within(&step, path)?;
    for text in STEPS.iter().skip(usize::try_from(found).unwrap_or_default()) {
        step.execute_batch(text).map_err(sql)?;
    }
    if found < LAYOUT {
        step.pragma_update(None, "user_version", LAYOUT).map_err(sql)?;
    }
    step.commit().map_err(sql)
}
