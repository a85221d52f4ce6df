//! Removes a folder of ours that a crash left, with all that is in it.

use std::io;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use super::Outcome;
use super::file_system::FileSystem;
use super::ownership::OWNER_FILE;
use crate::held_folder::{HeldFolder, Removal};
use crate::proc::mounts::mounts;
use crate::tree::{OwnPaths, open_above};

type Step = Result<Outcome, String>;

/// What is said of a removal of a folder that was at `path`.
pub(crate) fn outcome_of(path: &Path, removal: io::Result<Removal>) -> Outcome {
    match removal {
        Ok(Removal::Done) => Outcome::Done,
        Ok(Removal::Gone) => Outcome::AlreadyGone,
        Ok(Removal::Moved(place)) => Outcome::NotOurs(format!(
            "another program renamed or replaced it; what kagiri made in the folder is removed, and the \
             folder is left at {}",
            place.display()
        )),
        Ok(Removal::Shared(foreign)) => Outcome::NotOurs(format!(
            "it holds what kagiri did not make: {foreign}; all else was removed, move these and remove the \
             folder"
        )),
        Err(error) => Outcome::Failed(format!("{}: {error}", path.display())),
    }
}

pub(super) fn remove_tree(
    path: &Path,
    owner: &str,
    own: Option<&OwnPaths>,
    file_system: Option<&FileSystem>,
    removed: &AtomicU64,
) -> Step {
    let say = |error: io::Error| error.to_string();
    let not_ours = || Ok(Outcome::NotOurs("it is not marked as ours".to_owned()));
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return not_ours() };
    let above = match open_above(above) {
        Ok(above) => above,
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => {
            return absent(path, file_system);
        }
        Err(error) => return Err(say(error)),
    };
    let folder = match HeldFolder::open(above, name) {
        Ok(folder) => folder,
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT) => return absent(path, file_system),
            Some(libc::ENOTDIR | libc::ELOOP) => return not_ours(),
            _ => return Err(say(error)),
        },
    };
    match folder.text(OWNER_FILE).map_err(say)? {
        Some(found) if found == owner => {}
        // An interrupted making can end so: nothing is in it but the mark, and the mark says nothing yet.
        Some(found) if found.is_empty() && folder.count().map_err(say)? == 1 => {}
        // An interrupted removal ends so: the mark goes last.
        None if folder.count().map_err(say)? == 0 => {}
        _ => return not_ours(),
    }
    let mounts = mounts(Path::new("/")).map_err(say)?;
    if let Some(mount) = mounts.iter().find(|mount| mount.target.starts_with(path)) {
        return Err(format!("{} is mounted on {}", mount.source.display(), mount.target.display()));
    }
    Ok(outcome_of(path, folder.remove(OWNER_FILE, own, removed)))
}

/// A folder that is not there is gone if its file system is.
fn absent(path: &Path, file_system: Option<&FileSystem>) -> Step {
    match file_system {
        Some(kept_on) if !kept_on.would_hold(path).map_err(|error| error.to_string())? => {
            Err(format!("its file system {kept_on} is not mounted there"))
        }
        _ => Ok(Outcome::AlreadyGone),
    }
}
