//! Directories of results and of the undo journal.

use std::path::PathBuf;

use store::Store;

/// Directory of results and generated content: `$KAGIRI_DATA`, or the user's data directory.
pub fn data_dir() -> anyhow::Result<PathBuf> {
    Ok(Store::default_dir(|name| std::env::var_os(name))?)
}

pub fn journal_dir() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    sys::journal::default_folder(runtime.as_deref())
}

pub fn open_store() -> anyhow::Result<Store> {
    Ok(Store::open(&data_dir()?)?)
}
