//! What is asked of labs from outside: up, status, down, and entering a host.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::channel;
use std::time::Duration;

use sys::clock::Deadline;
use sys::journal::Journal;

use crate::error::{Error, Result};
use crate::keeper::{KeepOptions, read_file, variables};
use crate::state::{Answer, CONTROL_SOCKET, Folders, ProcessId, Request, State, Status};

/// How long a lab may take to be up.
const UP_WITHIN: Duration = Duration::from_secs(60);
/// How long a lab may take to be down; a keeper that hangs in the kernel is reported then.
const DOWN_WITHIN: Duration = Duration::from_secs(60);
/// How long a keeper may take to answer a question.
const STATUS_WITHIN: Duration = Duration::from_secs(10);
/// How long a keeper may take to end once it has answered.
const END_WITHIN: Duration = Duration::from_secs(5);
/// The most that a keeper says.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Brings a lab up: starts its keeper, and returns when all is there. What crashed labs left is cleared away first.
///
/// # Errors
/// The file is wrong, the lab is up already, there is no right or no program for something. Then nothing is left.
pub fn up(options: &KeepOptions) -> Result<State> {
    // A wrong file needs no rights to be told of.
    read_file(&options.file)?;
    refuse_without_rights()?;
    clear_dead(&options.folders, None)?;
    let mut command = Command::new(&options.program.path);
    command.args(&options.program.arguments).args(["lab", "keep"]).arg(&options.file);
    command.arg("--data").arg(&options.folders.data);
    if let Some(owner) = options.owner {
        command.arg("--owner").arg(owner.to_string());
    }
    let mut keeper = sys::child::start_detached(command)?;
    match wait_ready(&mut keeper, UP_WITHIN) {
        Ok(state) => {
            // While this program goes on, it is the keeper's parent and has to take note of its end.
            let reaper = std::thread::Builder::new().name("keeper-end".to_owned());
            // Without the thread the keeper's number stays taken until this program ends, and that is all.
            let _ = reaper.spawn(move || keeper.wait());
            Ok(state)
        }
        Err(error) => {
            end(&mut keeper).map_err(|problem| Error::Refused(format!("{error}. Besides, {problem}")))?;
            clear_dead(&options.folders, i32::try_from(keeper.id()).ok())?;
            Err(error)
        }
    }
}

/// Labs are root's: who is not is told so, and not that there is none.
///
/// # Errors
/// This process is not root.
pub fn refuse_without_rights() -> Result<()> {
    if sys::environment::is_root() {
        return Ok(());
    }
    Err(Error::Refused(
        "a lab needs root: it makes network namespaces, links, control groups and disks (run it with sudo). Without root, \
         every workload runs on this machine as it is, and between real hosts"
            .to_owned(),
    ))
}

/// Replays the journals of dead keepers, or of one.
fn clear_dead(folders: &Folders, only: Option<i32>) -> Result<()> {
    for leftover in Journal::leftovers(&folders.journal)? {
        if only.is_none_or(|pid| leftover.owner_pid() == pid) {
            let results = leftover.replay();
            if let Some(failed) = results.iter().find(|result| !result.outcome.is_settled()) {
                return Err(Error::Refused(format!("what a crash left cannot be cleared away: {failed}")));
            }
        }
    }
    Ok(())
}

/// What the keeper says once it is up, or why it is not.
fn wait_ready(keeper: &mut Child, within: Duration) -> Result<State> {
    let (sender, lines) = channel();
    let stdout = keeper.stdout.take();
    let stderr = keeper.stderr.take();
    let read = move || {
        let Some(stdout) = stdout else { return };
        let mut lines = BufReader::new(stdout.take(ANSWER_BYTES_MAX)).lines().map_while(std::io::Result::ok);
        // Whatever else is written there (a test's own lines) is not JSON.
        if let Some(line) = lines.find(|line| line.starts_with('{')) {
            let _ = sender.send(line);
        }
    };
    let thread = std::thread::Builder::new().name("keeper-answer".to_owned()).spawn(read);
    thread.map_err(|error| Error::Refused(format!("cannot start a thread: {error}")))?;
    let answer = lines.recv_timeout(within).map_err(|why| match why {
        std::sync::mpsc::RecvTimeoutError::Timeout => {
            Error::Refused(format!("the lab was not up within {} s", within.as_secs()))
        }
        // It has closed its output: its last words are complete, too.
        std::sync::mpsc::RecvTimeoutError::Disconnected => {
            let mut said = String::new();
            let _ = stderr.map(|stderr| stderr.take(4096).read_to_string(&mut said));
            let said = said.trim();
            let why = if said.is_empty() { "it was killed" } else { said };
            Error::Refused(format!("the lab's keeper ended before the lab was up: {why}"))
        }
    })?;
    match serde_json::from_str(&answer) {
        Ok(Answer::Ready(state)) => Ok(*state),
        Ok(Answer::Error { message, usage: true }) => Err(Error::Layout(message)),
        Ok(Answer::Error { message, .. }) => Err(Error::Refused(message)),
        _ => Err(Error::Refused(format!("the lab's keeper said what this version does not know: {answer}"))),
    }
}

/// Ends a keeper that did not come so far: it puts back what it made, or is killed, and its journal says what is left.
fn end(keeper: &mut Child) -> Result<()> {
    let pid = keeper.id();
    let ended = match i32::try_from(pid).ok().and_then(ProcessId::of) {
        Some(id) => sys::child::terminate(id.pid, id.start_ticks, DOWN_WITHIN),
        None => Ok(()),
    };
    ended.map_err(|error| {
        Error::Refused(format!(
            "the lab's keeper, process {pid}, cannot be ended: {error}; once it is gone, 'kagiri undo' clears away what \
             it made"
        ))
    })?;
    // It has ended, and waits only for this.
    let _ = keeper.try_wait();
    Ok(())
}

/// How the lab called `name` is.
///
/// # Errors
/// There is none, or its keeper does not answer; no right to ask it.
pub fn status(folders: &Folders, name: &str) -> Result<Status> {
    refuse_without_rights()?;
    match request(folders, name, Request::Status, STATUS_WITHIN)? {
        Answer::Status(status) => Ok(*status),
        other => Err(unexpected(name, other)),
    }
}

/// Takes the lab called `name` down and returns when it is; what could not be put back, one line each.
///
/// # Errors
/// There is none, or its keeper does not answer; no right to ask it.
pub fn down(folders: &Folders, name: &str) -> Result<Vec<String>> {
    refuse_without_rights()?;
    let keeper = State::read(&folders.lab(name))?.map(|state| state.keeper);
    let left = match request(folders, name, Request::Down, DOWN_WITHIN)? {
        Answer::Down { left } => left,
        other => return Err(unexpected(name, other)),
    };
    if let Some(keeper) = keeper {
        let deadline = Deadline::after(END_WITHIN);
        while keeper.lives() && deadline.pause(LOOK_EVERY) {}
    }
    Ok(left)
}

fn unexpected(name: &str, answer: Answer) -> Error {
    let reason = match answer {
        Answer::Error { message, .. } => message,
        other => format!("its keeper answered {other:?}"),
    };
    Error::Keeper { name: name.to_owned(), reason }
}

fn request(folders: &Folders, name: &str, request: Request, within: Duration) -> Result<Answer> {
    let folder = folders.lab(name);
    let socket = folder.join(CONTROL_SOCKET);
    let stream = UnixStream::connect(&socket).map_err(|error| not_there(folders, name, error))?;
    let failed = |error: std::io::Error| Error::Keeper {
        name: name.to_owned(),
        reason: format!("its keeper does not answer within {} s ({error})", within.as_secs()),
    };
    let ask = || -> std::io::Result<String> {
        stream.set_read_timeout(Some(within))?;
        stream.set_write_timeout(Some(within))?;
        let mut text = serde_json::to_vec(&request)?;
        text.push(b'\n');
        (&stream).write_all(&text)?;
        let mut line = String::new();
        BufReader::new((&stream).take(ANSWER_BYTES_MAX)).read_line(&mut line)?;
        Ok(line)
    };
    let line = ask().map_err(failed)?;
    if line.is_empty() {
        return Err(Error::Keeper {
            name: name.to_owned(),
            reason: "its keeper ended before it answered; 'kagiri undo' clears away what is left".to_owned(),
        });
    }
    serde_json::from_str(&line).map_err(|error| failed(error.into()))
}

fn not_there(folders: &Folders, name: &str, error: std::io::Error) -> Error {
    use std::io::ErrorKind::{ConnectionRefused, NotFound};
    Error::Refused(match error.kind() {
        ConnectionRefused => {
            format!("lab {name}: its keeper has died; 'kagiri undo' clears away what it left")
        }
        NotFound if folders.lab(name).exists() => format!("lab {name} is not up yet, or about to go"),
        NotFound => {
            let up = list(folders);
            let others = match up.is_empty() {
                true => "no lab is".to_owned(),
                false => format!("up are: {}", up.join(", ")),
            };
            format!("no lab called {name} is up; {others}")
        }
        _ => format!("lab {name}: cannot reach its keeper: {error}"),
    })
}

/// The names of all labs that are up, in alphabetical order.
pub fn list(folders: &Folders) -> Vec<String> {
    let entries = std::fs::read_dir(folders.labs()).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort_unstable();
    names
}

/// The lab that is meant: the named one, or the only one that is up.
///
/// # Errors
/// None is named, and none or several are up; no right to look.
pub fn meant(folders: &Folders, name: Option<&str>) -> Result<String> {
    refuse_without_rights()?;
    if let Some(name) = name {
        return Ok(name.to_owned());
    }
    let up = list(folders);
    match up.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(Error::Refused("no lab is up; 'kagiri lab up FILE' makes one".to_owned())),
        several => Err(Error::Refused(format!("several labs are up; name one of {}", several.join(", ")))),
    }
}

/// Puts this thread, and the program that it becomes, on a host of a lab: into its network namespace and its control
/// group. Returns what such a program finds in its environment.
///
/// # Errors
/// There is no such lab or host, or no right to enter it.
pub fn enter(folders: &Folders, name: &str, host: &str) -> Result<Vec<(&'static str, OsString)>> {
    refuse_without_rights()?;
    let folder = folders.lab(name);
    let Some(state) = State::read(&folder)? else {
        return Err(not_there(folders, name, std::io::ErrorKind::NotFound.into()));
    };
    if !state.keeper.lives() {
        return Err(not_there(folders, name, std::io::ErrorKind::ConnectionRefused.into()));
    }
    let Some(index) = state.hosts.iter().position(|known| known.name == host) else {
        let hosts: Vec<&str> = state.hosts.iter().map(|known| known.name.as_str()).collect();
        return Err(Error::Refused(format!("lab {name} has no host '{host}'; it has {}", hosts.join(", "))));
    };
    let own = std::process::id().to_string();
    for group in &state.hosts[index].cgroup {
        join_group(group, &own)?;
    }
    sys::netns::enter(&state.hosts[index].namespace)?;
    Ok(variables(&state, index))
}

fn join_group(group: &Path, pid: &str) -> Result<()> {
    let file = group.join("cgroup.procs");
    std::fs::write(&file, pid).map_err(|error| Error::io("join control group", file, error))
}
