//! Directories of results and of the undo journal.

use std::path::PathBuf;

use base::outcome::Run;
use store::Store;

/// Directory of results and generated content: `$KAGIRI_DATA`, or the user's data directory.
pub fn data_dir() -> anyhow::Result<PathBuf> {
    Ok(Store::default_dir(|name| std::env::var_os(name))?)
}

/// The report that a measurement writes beside the results.
pub fn report_file(run: &str) -> anyhow::Result<PathBuf> {
    Ok(data_dir()?.join("reports").join(format!("{run}.html")))
}

/// The mount of a lab's host, or else its disk.
pub fn lab_storage() -> Option<PathBuf> {
    ["KAGIRI_LAB_MOUNT", "KAGIRI_LAB_DISK"].into_iter().find_map(std::env::var_os).map(PathBuf::from)
}

pub fn journal_dir() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    sys::journal::default_folder(runtime.as_deref())
}

/// The stored runs, to read them; where there are none, no folder is made.
pub fn open_store_to_read() -> anyhow::Result<Store> {
    Ok(Store::open_to_read(&data_dir()?)?)
}

/// The run that is meant by `text`, with an outcome: the process of a stored run may have died before it
/// evaluated the trials.
pub fn find_run(store: &Store, text: &str) -> anyhow::Result<Run> {
    let mut run = store.resolve(text)?;
    run::recover::evaluate(&mut run, &run::registry::BUILT_IN);
    Ok(run)
}

pub fn open_store() -> anyhow::Result<Store> {
    Ok(Store::open(&data_dir()?)?)
}
