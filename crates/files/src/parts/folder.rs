//! The folder of kagiri's own in the directory under test: kind `files.folder`.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use base::part::{HostContext, PartError, Say, Watch};
use serde::{Deserialize, Serialize};
use sys::file::OwnedFolder;
use sys::journal::{Journal, Outcome};
use sys::tree::{Identity, OwnPaths};
use workload::part::{Part, Peers};

/// A removal that takes longer is announced.
const QUICKLY: Duration = Duration::from_secs(2);
/// Removing ends when nothing was removed for this time.
const NO_PROGRESS: Duration = Duration::from_secs(10);
/// Folders of this process in one directory.
const FOLDERS_MAX: u32 = 1000;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FolderEndpoint {
    pub path: PathBuf,
    /// Another folder at `path` is not the one that was made.
    pub identity: Identity,
    /// What is kagiri's in it.
    pub own: OwnPaths,
    pub watch: Watch,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FolderTask {
    /// The directory under test; `None`: the storage of the host.
    pub dir: Option<PathBuf>,
    /// The setting that gives it, for errors.
    pub key: String,
    /// What the parts make in the folder. All else stays.
    pub own: OwnPaths,
}

/// Dropping it removes the folder and everything in it.
pub struct FolderPart {
    task: FolderTask,
    owned: Option<Owned>,
}

struct Owned {
    folder: OwnedFolder,
    say: Say,
}

impl Part for FolderPart {
    const KIND: &'static str = "files.folder";
    type Task = FolderTask;
    type Endpoint = FolderEndpoint;
    type Report = ();

    fn new(task: FolderTask) -> Result<Self, PartError> {
        Ok(Self { task, owned: None })
    }

    fn prepare(&mut self, _: &Peers<'_>, host: &HostContext) -> Result<FolderEndpoint, PartError> {
        let dir = self.task.directory(host)?;
        let journal = Journal::open(&host.journal_dir).map_err(PartError::new)?;
        let folder = make(&journal, &dir, &self.task.own)?;
        let path = folder.path().to_owned();
        let identity = Identity::of(folder.as_fd()).map_err(PartError::new)?;
        self.owned = Some(Owned { folder, say: host.say.clone() });
        let mut watch = workload::watch::this_program(host, None, 0);
        let device = sys::proc::block_device_of_path(Path::new("/"), &path).ok().flatten();
        watch.block_device = device.map(|device| device.numbers());
        Ok(FolderEndpoint { path, identity, own: self.task.own.clone(), watch })
    }

    fn stop(&mut self) -> Result<(), PartError> {
        self.remove();
        Ok(())
    }
}

impl FolderTask {
    fn directory(&self, host: &HostContext) -> Result<PathBuf, PartError> {
        let key = &self.key;
        let given = self.dir.as_ref().or(host.storage.as_ref()).ok_or_else(|| {
            PartError::usage(format!(
                "{key}: give the directory to be measured on host {}; kagiri works in a folder of its own in \
                 it (only a lab's host with a mount or a disk has one by itself)",
                host.name
            ))
        })?;
        let shown = given.display();
        if !given.is_absolute() {
            return Err(PartError::usage(format!(
                "{key}: {shown} is no absolute path on host {}",
                host.name
            )));
        }
        let dir = given.canonicalize().map_err(|error| {
            PartError::usage(format!(
                "{key}: {shown}: {error}; give a directory on the storage to be measured"
            ))
        })?;
        if !dir.is_dir() {
            return Err(PartError::usage(format!("{key}: {shown} is not a directory")));
        }
        host.permit.directory(&dir)?;
        Ok(dir)
    }
}

fn make(journal: &Journal, dir: &Path, own: &OwnPaths) -> Result<OwnedFolder, PartError> {
    for number in 0..FOLDERS_MAX {
        let name = format!("kagiri-files-{}-{number}", std::process::id());
        let made = OwnedFolder::create_with(journal, &dir.join(name), own.clone()).map_err(|error| {
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
        let Some(Owned { folder, say }) = self.owned.take() else { return };
        let (path, removed) = (folder.path().to_owned(), Arc::new(AtomicU64::new(0)));
        let (send, receive) = sync_channel(1);
        let counted = removed.clone();
        // Calls on a mount that lost its server can hang, and cannot be cancelled.
        let thread = std::thread::Builder::new().name("files-remove".to_owned()).spawn(move || {
            // Undoing has a deadline that many files can pass; what is left of them is left to it.
            let _ = folder.empty(&counted);
            let _ = send.send(folder.remove().map(|result| result.outcome));
        });
        if thread.is_err() {
            return;
        }
        let mut outcome = receive.recv_timeout(QUICKLY);
        if outcome == Err(RecvTimeoutError::Timeout) {
            say(&format!("removing {}; Ctrl-C leaves it to 'kagiri undo'", path.display()));
        }
        let mut before = 0;
        while outcome == Err(RecvTimeoutError::Timeout) {
            outcome = receive.recv_timeout(NO_PROGRESS);
            if outcome != Err(RecvTimeoutError::Timeout) {
                break;
            }
            let now = removed.load(Ordering::Relaxed);
            if now == before {
                let (path, s) = (path.display(), NO_PROGRESS.as_secs());
                say(&format!(
                    "{path} could not be removed within {s} s; run 'kagiri undo' when the storage answers \
                     again"
                ));
                return;
            }
            before = now;
        }
        match outcome {
            Ok(Some(Outcome::NotOurs(why))) => say(&format!("{}: {why}", path.display())),
            Ok(Some(Outcome::Failed(why))) => {
                say(&format!("{why}; run 'kagiri undo' when that is mended"));
            }
            _ => {}
        }
    }
}

impl Drop for FolderPart {
    fn drop(&mut self) {
        self.remove();
    }
}
