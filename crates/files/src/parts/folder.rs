//! The folder of kagiri's own in the directory under test: kind `files.folder`.

use std::path::{Path, PathBuf};

use base::part::{HostContext, PartError, Watch};
use serde::{Deserialize, Serialize};
use sys::file::OwnedFolder;
use sys::journal::Journal;
use workload::part::{Part, Peers};

use crate::tree::remove_tree;

/// Folders of this process in one directory.
const FOLDERS_MAX: u32 = 1000;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FolderEndpoint {
    pub path: PathBuf,
    pub watch: Watch,
}

/// Dropping it removes the folder and everything in it.
pub struct FolderPart {
    dir: PathBuf,
    folder: Option<OwnedFolder>,
}

impl Part for FolderPart {
    const KIND: &'static str = "files.folder";
    /// The directory under test.
    type Task = PathBuf;
    type Endpoint = FolderEndpoint;
    type Report = ();

    fn new(dir: PathBuf) -> Result<Self, PartError> {
        Ok(Self { dir, folder: None })
    }

    fn prepare(&mut self, _: &Peers<'_>, host: &HostContext) -> Result<FolderEndpoint, PartError> {
        let shown = self.dir.display();
        if !self.dir.is_absolute() {
            return Err(PartError::usage(format!(
                "files.dir: {shown} is no absolute path on host {}",
                host.name
            )));
        }
        let dir = self.dir.canonicalize().map_err(|error| {
            PartError::usage(format!(
                "files.dir: {shown}: {error}; give a directory on the storage to be measured"
            ))
        })?;
        if !dir.is_dir() {
            return Err(PartError::usage(format!("files.dir: {shown} is not a directory")));
        }
        host.permit.directory(&dir)?;
        let journal = Journal::open(&host.journal_dir).map_err(PartError::new)?;
        let folder = make(&journal, &dir)?;
        let path = folder.path().to_owned();
        self.folder = Some(folder);
        let mut watch = workload::watch::this_program(host, None, 0);
        let device = sys::proc::block_device_of_path(Path::new("/"), &path).ok().flatten();
        watch.block_device = device.map(|device| device.numbers());
        Ok(FolderEndpoint { path, watch })
    }

    fn stop(&mut self) -> Result<(), PartError> {
        self.remove();
        Ok(())
    }
}

fn make(journal: &Journal, dir: &Path) -> Result<OwnedFolder, PartError> {
    for number in 0..FOLDERS_MAX {
        let name = format!("kagiri-files-{}-{number}", std::process::id());
        let made = OwnedFolder::create(journal, &dir.join(name)).map_err(|error| {
            PartError::new(format!("{error}; give a directory in which this user can make files"))
        })?;
        if let Some(folder) = made {
            return Ok(folder);
        }
    }
    Err(PartError::new(format!(
        "{} holds {FOLDERS_MAX} folders named kagiri-files-{}-...; remove them, they are not this run's",
        dir.display(),
        std::process::id()
    )))
}

impl FolderPart {
    fn remove(&mut self) {
        let Some(folder) = self.folder.take() else { return };
        // Undoing has a deadline that many files can pass; what is left of them is left to it.
        let trees = std::fs::read_dir(folder.path()).into_iter().flatten().flatten();
        for tree in trees.filter(|tree| tree.file_type().is_ok_and(|kind| kind.is_dir())) {
            remove_tree(&tree.path());
        }
    }
}

impl Drop for FolderPart {
    fn drop(&mut self) {
        self.remove();
    }
}
