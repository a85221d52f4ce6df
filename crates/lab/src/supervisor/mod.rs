//! The supervisor process: makes a lab, owns its undo journal, is the parent of its processes, and removes
//! the lab.

mod control;
mod disk;
mod initial_state;
mod link_counters;
mod mount;
mod network;
mod processes;
mod running_lab;
mod steps;

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
use crate::state::{CONTROL_SOCKET, Folders, LOG_FILE, ProcessId, Request, Response, State};
use running_lab::RunningLab;

pub use crate::program::Program;
pub(crate) use running_lab::variables;

const SIGNAL_POLL: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupervisorOptions {
    pub file: PathBuf,
    pub folders: Folders,
    pub program: Program,
    /// The lab ends with this process; `None`: it stays up until it is removed.
    pub owner: Option<i32>,
}

/// Makes a lab and supervises it until a signal or a request ends it. Passes a JSON line to `say` when the
/// lab is up or failed; `say` returns whether the parent process received it.
///
/// Returns whether everything succeeded.
pub fn supervise(options: &SupervisorOptions, say: &dyn Fn(&str) -> bool) -> bool {
    let send = |response: &Response| say(&serde_json::to_string(response).unwrap_or_default());
    match start(options) {
        Ok(up) => up.keep(&send),
        Err(error) => {
            send(&Response::Error { message: error.to_string(), usage: error.is_usage() });
            false
        }
    }
}

struct Supervisor {
    journal: Journal,
    running_lab: RunningLab,
    stop: StopSignal,
    control: control::Control,
    log: std::fs::File,
    owner: Option<ProcessId>,
}

pub fn read_lab_file(path: &Path) -> Result<Lab> {
    let text = sys::file::read_text(path, crate::file::TEXT_BYTES_MAX as u64).map_err(|error| match error
        .kind()
    {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::IsADirectory | std::io::ErrorKind::InvalidData => {
            Error::LabFile { path: path.to_path_buf(), source: error }
        }
        _ => Error::io("read", path, error),
    })?;
    Lab::read(&text).map_err(|problem| Error::File { path: path.to_path_buf(), problem })
}

fn start(options: &SupervisorOptions) -> Result<Supervisor> {
    let lab = read_lab_file(&options.file)?;
    let stop =
        StopSignal::install().map_err(|error| Error::Refused(format!("cannot handle signals: {error}")))?;
    let journal = Journal::open(&options.folders.journal)?;
    let path = options.folders.lab(&lab.name);
    let folder = OwnedFolder::create(&journal, &path)?.ok_or_else(|| folder_in_use(&path, &lab.name))?;
    let log_path = path.join(LOG_FILE);
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(&log_path);
    let log = log.map_err(|error| Error::io("write", &log_path, error))?;
    // Unexpected output goes to the log, not to a terminal.
    redirect_output(&log, false)?;
    let control = control::Control::listen(&path.join(CONTROL_SOCKET))?;
    let running_lab = RunningLab::build(&journal, &lab, folder, options, stop);
    match running_lab {
        Ok(running_lab) => {
            let owner = options.owner.and_then(ProcessId::of_pid);
            Ok(Supervisor { journal, running_lab, stop, control, log, owner })
        }
        Err(error) => {
            // Most of it is undone already; try the rest again.
            let left: Vec<String> = undo_all(&journal);
            match left.is_empty() {
                true => Err(error),
                false => Err(Error::Refused(format!("{error}\n{}", left.join("\n")))),
            }
        }
    }
}

/// Undoes all entries. Returns those that failed, one line each.
fn undo_all(journal: &Journal) -> Vec<String> {
    let results = journal.undo_all();
    results.iter().filter(|result| !result.outcome.is_settled()).map(ToString::to_string).collect()
}

fn folder_in_use(path: &Path, name: &str) -> Error {
    let supervisor = State::read(path).ok().flatten().map(|state| state.supervisor);
    Error::Refused(match supervisor {
        Some(supervisor) if !supervisor.is_running() => {
            format!("lab {name} was left by a crash; remove it with 'kagiri undo', then try again")
        }
        _ => format!(
            "lab {name} is up already, or starting; see 'kagiri lab status {name}', end it with 'kagiri lab \
             down {name}', or give the file another name"
        ),
    })
}

impl Supervisor {
    fn keep(mut self, send: &dyn Fn(&Response) -> bool) -> bool {
        // The parent process may have given up.
        let wanted =
            !self.stop.requested() && send(&Response::Ready(Box::new(self.running_lab.state().clone())));
        // The parent process no longer reads the output.
        let silent = redirect_output(&self.log, true).is_ok();
        let client = if wanted && silent { self.serve() } else { None };
        let Self { journal, running_lab, control, .. } = self;
        running_lab.take_down();
        let left = undo_all(&journal);
        // The journal must be gone before the client receives the response.
        drop(journal);
        let well = left.is_empty();
        for line in &left {
            // The log may be on a full disk.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
        if let Some(client) = client {
            client.respond(&Response::Down { left });
        }
        drop(control);
        well
    }

    fn is_owned(&self) -> bool {
        self.owner.as_ref().is_none_or(ProcessId::is_running)
    }

    /// Handles requests until the lab must end. Returns the client that requested the end, if it was not a
    /// signal.
    fn serve(&mut self) -> Option<control::Client> {
        loop {
            match self.control.next(SIGNAL_POLL) {
                Ok((Request::Status, client)) => {
                    client.respond(&Response::Status(Box::new(self.running_lab.status())));
                }
                Ok((Request::Down, client)) => return Some(client),
                Ok((Request::StartSteps { at_ns }, client)) => self.running_lab.start_steps(at_ns, client),
                Err(RecvTimeoutError::Timeout) if !self.stop.requested() && self.is_owned() => {}
                // The listener failed; treated as a signal.
                Err(_) => return None,
            }
        }
    }
}
