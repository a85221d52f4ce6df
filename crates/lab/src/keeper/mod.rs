//! The keeper: the process that makes a lab, owns its undo journal, is the parent of its processes, and takes it down.

mod build;
mod children;
mod control;
mod disk;
mod network;
mod traffic;

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use sys::child::redirect_output;
use sys::file::OwnedFolder;
use sys::journal::Journal;
use sys::stop::StopSignal;

use crate::error::{Error, Result};
use crate::file::Lab;
use crate::state::{Answer, CONTROL_SOCKET, Folders, LOG_FILE, ProcessId, Request, State};
use build::Made;

pub(crate) use build::variables;

/// How soon a signal to end is heeded.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How this program is called again: for the keeper, agents and lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Its file.
    pub path: PathBuf,
    /// What comes before the verb; nothing for the program itself.
    pub arguments: Vec<OsString>,
}

/// What a keeper is to keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeepOptions {
    /// The lab file.
    pub file: PathBuf,
    /// Where things go.
    pub folders: Folders,
    /// How to start the lab's own processes.
    pub program: Program,
    /// The process that the lab is for: it goes down when that ends. `None`: it stays until it is asked to go.
    pub owner: Option<i32>,
}

/// Makes a lab and keeps it until it is asked to take it down, by a signal or through its socket. Says through `say`,
/// in one line of JSON, that it is up, or why not; `say` returns whether somebody listened.
///
/// Returns whether all went well.
pub fn keep(options: &KeepOptions, say: &dyn Fn(&str) -> bool) -> bool {
    let tell = |answer: &Answer| say(&serde_json::to_string(answer).unwrap_or_default());
    match begin(options) {
        Ok(up) => up.keep(&tell),
        Err(error) => {
            tell(&Answer::Error { message: error.to_string(), usage: error.is_usage() });
            false
        }
    }
}

struct Up {
    journal: Journal,
    made: Made,
    stop: StopSignal,
    control: control::Control,
    log: std::fs::File,
    owner: Option<ProcessId>,
}

/// Reads a lab file.
///
/// # Errors
/// It cannot be read, or is wrong.
pub fn read_file(path: &Path) -> Result<Lab> {
    let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::IsADirectory | std::io::ErrorKind::InvalidData => {
            Error::File {
                path: path.to_path_buf(),
                problem: base::plan::PlanError::new(format!("cannot read it: {error}")),
            }
        }
        _ => Error::io("read", path, error),
    })?;
    Lab::read(&text).map_err(|problem| Error::File { path: path.to_path_buf(), problem })
}

fn begin(options: &KeepOptions) -> Result<Up> {
    let lab = read_file(&options.file)?;
    let stop = StopSignal::install()
        .map_err(|error| Error::Refused(format!("cannot watch for signals: {error}")))?;
    let journal = Journal::open(&options.folders.journal)?;
    let path = options.folders.lab(&lab.name);
    let folder = OwnedFolder::create(&journal, &path)?.ok_or_else(|| taken(&path, &lab.name))?;
    let log_path = path.join(LOG_FILE);
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(&log_path);
    let log = log.map_err(|error| Error::io("write", &log_path, error))?;
    // Whatever goes wrong unforeseen is to be read there, not on the terminal of somebody long gone.
    redirect_output(&log, false)?;
    let control = control::Control::listen(&path.join(CONTROL_SOCKET))?;
    let made = Made::build(&journal, &lab, folder, options);
    match made {
        Ok(made) => {
            let owner = options.owner.and_then(ProcessId::of);
            Ok(Up { journal, made, stop, control, log, owner })
        }
        Err(error) => {
            // What was made is gone already, or is tried once more now.
            let left: Vec<String> = failures(&journal);
            match left.is_empty() {
                true => Err(error),
                false => Err(Error::Refused(format!("{error}\n{}", left.join("\n")))),
            }
        }
    }
}

/// What could not be put back.
fn failures(journal: &Journal) -> Vec<String> {
    let results = journal.undo_all();
    results.iter().filter(|result| !result.outcome.is_settled()).map(ToString::to_string).collect()
}

/// Somebody has the lab's folder.
fn taken(path: &Path, name: &str) -> Error {
    let keeper = State::read(path).ok().flatten().map(|state| state.keeper);
    Error::Refused(match keeper {
        Some(keeper) if !keeper.lives() => format!(
            "lab {name} was left by a keeper that is no more; 'kagiri undo' clears it away, then try again"
        ),
        _ => format!(
            "lab {name} is up already, or about to be; see 'kagiri lab status {name}', end it with 'kagiri lab down \
             {name}', or give the file another name"
        ),
    })
}

impl Up {
    fn keep(mut self, tell: &dyn Fn(&Answer) -> bool) -> bool {
        // Whoever started this has given up: then nobody wants the lab.
        let wanted = !self.stop.requested() && tell(&Answer::Ready(Box::new(self.made.state().clone())));
        // Nobody reads there any more.
        let silent = redirect_output(&self.log, true).is_ok();
        let asker = if wanted && silent { self.serve() } else { None };
        let Self { journal, made, control, .. } = self;
        made.take_down();
        let left = failures(&journal);
        // The journal goes with its last entry, before anybody hears that all is over.
        drop(journal);
        let well = left.is_empty();
        for line in &left {
            // The log may be on a full disk.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
        if let Some(asker) = asker {
            asker.answer(&Answer::Down { left });
        }
        drop(control);
        well
    }

    /// Whether the process that the lab is for goes on.
    fn is_owned(&self) -> bool {
        self.owner.as_ref().is_none_or(ProcessId::lives)
    }

    /// Answers until the lab is to end; returns who asked for that, if it was not a signal.
    fn serve(&mut self) -> Option<control::Asker> {
        loop {
            match self.control.next(LOOK_EVERY) {
                Ok((Request::Status, asker)) => {
                    asker.answer(&Answer::Status(Box::new(self.made.status())));
                }
                Ok((Request::Down, asker)) => return Some(asker),
                Err(RecvTimeoutError::Timeout) if !self.stop.requested() && self.is_owned() => {}
                // Without a listener there is only the signal; it is as good as one.
                Err(_) => return None,
            }
        }
    }
}
