//! Requests to labs: up, status, down, and entering a host.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::channel;
use std::time::Duration;

use sys::clock::Deadline;
use sys::journal::Journal;

use crate::error::{Error, Result};
use crate::state::{CONTROL_SOCKET, Folders, ProcessId, Request, Response, State, Status, StepDone};
use crate::supervisor::{SupervisorOptions, read_lab_file, variables};

const UP_WITHIN: Duration = Duration::from_secs(60);
/// A supervisor that hangs in the kernel is reported after this time.
const DOWN_WITHIN: Duration = Duration::from_secs(60);
const STATUS_WITHIN: Duration = Duration::from_secs(10);
/// How long a supervisor may take to end after its response.
const END_WITHIN: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: u64 = 64 << 20;
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Starts the supervisor of a lab and returns when the lab is up. Removes what crashed labs left first.
/// Errors: Wrong file, lab already up, missing rights or programs. Nothing is left then.
pub fn up(options: &SupervisorOptions) -> Result<State> {
    // Before the check for root.
    let lab = read_lab_file(&options.file)?;
    require_root()?;
    undo_crashed(&options.folders, None)?;
    let mut command = Command::new(&options.program.path);
    command.args(&options.program.arguments).args(["lab", "keep"]).arg(&options.file);
    command.arg("--data").arg(&options.folders.data);
    if let Some(owner) = options.owner {
        command.arg("--owner").arg(owner.to_string());
    }
    let mut supervisor = sys::child::start_detached(command)?;
    let ageing: Duration =
        lab.hosts.iter().filter_map(|host| Some(host.disk.as_ref()?.ageing_within())).sum();
    match wait_ready(&mut supervisor, UP_WITHIN + ageing) {
        Ok(state) => {
            // This process is the supervisor's parent and must reap it.
            let reaper = std::thread::Builder::new().name("supervisor-end".to_owned());
            // Without the thread, only its process id stays in use until this process ends.
            let _ = reaper.spawn(move || supervisor.wait());
            Ok(state)
        }
        Err(error) => {
            terminate(&mut supervisor)
                .map_err(|problem| Error::Refused(format!("{error}; in addition, {problem}")))?;
            undo_crashed(&options.folders, i32::try_from(supervisor.id()).ok())?;
            Err(error)
        }
    }
}

pub fn require_root() -> Result<()> {
    if sys::environment::is_root() {
        return Ok(());
    }
    Err(Error::Refused(
        "a lab needs root: it makes network namespaces, links, control groups and disks (run it with sudo). \
         Without root, every workload runs on this machine as it is, and between real hosts"
            .to_owned(),
    ))
}

fn undo_crashed(folders: &Folders, only: Option<i32>) -> Result<()> {
    for leftover in Journal::leftovers(&folders.journal, Duration::from_secs(10))?.journals {
        if only.is_none_or(|pid| leftover.owner_pid() == pid) {
            let damage = leftover.damage();
            let results = leftover.replay();
            if let Some(failed) = results.iter().find(|result| !result.outcome.is_settled()) {
                return Err(Error::Refused(format!("cannot remove what a crash left: {failed}")));
            }
            if let Some(damage) = damage {
                return Err(damage.into());
            }
        }
    }
    Ok(())
}

fn wait_ready(supervisor: &mut Child, within: Duration) -> Result<State> {
    let (sender, lines) = channel();
    let stdout = supervisor.stdout.take();
    let stderr = supervisor.stderr.take();
    let read = move || {
        let Some(stdout) = stdout else { return };
        let mut lines = BufReader::new(stdout.take(ANSWER_BYTES_MAX)).lines().map_while(std::io::Result::ok);
        // Skips lines that are not JSON (of tests).
        if let Some(line) = lines.find(|line| line.starts_with('{')) {
            let _ = sender.send(line);
        }
    };
    let thread = std::thread::Builder::new().name("supervisor-response".to_owned()).spawn(read);
    thread.map_err(|error| Error::Refused(format!("cannot start a thread: {error}")))?;
    let response = lines.recv_timeout(within).map_err(|why| match why {
        std::sync::mpsc::RecvTimeoutError::Timeout => {
            Error::Refused(format!("the lab was not up within {} s", within.as_secs()))
        }
        // Its output is closed, so its last words are complete.
        std::sync::mpsc::RecvTimeoutError::Disconnected => {
            let mut said = String::new();
            let _ = stderr.map(|stderr| stderr.take(4096).read_to_string(&mut said));
            let said = said.trim();
            let why = if said.is_empty() { "it was killed" } else { said };
            Error::Refused(format!("the lab's supervisor ended before the lab was up: {why}"))
        }
    })?;
    match serde_json::from_str(&response) {
        Ok(Response::Ready(state)) => Ok(*state),
        Ok(Response::Error { message, usage: true }) => Err(Error::Layout(message)),
        Ok(Response::Error { message, .. }) => Err(Error::Refused(message)),
        _ => Err(Error::Refused(format!("the lab's supervisor sent an unknown response: {response}"))),
    }
}

/// Ends a supervisor that did not start. It undoes its changes, or is killed; its journal then lists what is
/// left.
fn terminate(supervisor: &mut Child) -> Result<()> {
    let pid = supervisor.id();
    let ended = match i32::try_from(pid).ok().and_then(ProcessId::of_pid) {
        Some(id) => sys::child::terminate(id.pid, id.start_ticks, DOWN_WITHIN),
        None => Ok(()),
    };
    ended.map_err(|error| {
        Error::Refused(format!(
            "the lab's supervisor, process {pid}, cannot be ended: {error}; once it is gone, 'kagiri undo' \
             clears away what it made"
        ))
    })?;
    // Reaps it.
    let _ = supervisor.try_wait();
    Ok(())
}

pub fn status(folders: &Folders, name: &str) -> Result<Status> {
    require_root()?;
    match request(folders, name, Request::Status, STATUS_WITHIN)? {
        Response::Status(status) => Ok(*status),
        other => Err(unexpected(name, other)),
    }
}

/// Removes a lab. Returns what could not be undone, one line each.
pub fn down(folders: &Folders, name: &str) -> Result<Vec<String>> {
    require_root()?;
    let supervisor = State::read(&folders.lab(name))?.map(|state| state.supervisor);
    let left = match request(folders, name, Request::Down, DOWN_WITHIN)? {
        Response::Down { left } => left,
        other => return Err(unexpected(name, other)),
    };
    if let Some(supervisor) = supervisor {
        let deadline = Deadline::after(END_WITHIN);
        while supervisor.is_running() && deadline.pause(POLL_INTERVAL) {}
    }
    Ok(left)
}

/// The steps of a lab's links, in one trial. When it is dropped, the links have their first rates again.
#[derive(Debug)]
pub struct Steps {
    name: String,
    stream: UnixStream,
}

impl Steps {
    /// Starts them at a moment of the monotonic clock.
    /// Errors: the lab is not up, has no link with steps, or another measurement has started them.
    pub fn start(folders: &Folders, name: &str, at_ns: u64) -> Result<Self> {
        let stream = send(folders, name, Request::StartSteps { at_ns }, STATUS_WITHIN)?;
        match receive(&stream, name, STATUS_WITHIN)? {
            Response::StepsStart => Ok(Self { name: name.to_owned(), stream }),
            other => Err(unexpected(name, other)),
        }
    }

    /// Ends them; the links have their first rates again. Returns what was changed until then.
    /// Errors: a rate could not be changed, or the lab has gone.
    pub fn end(self) -> Result<Vec<StepDone>> {
        let closed = self.stream.shutdown(Shutdown::Write);
        closed.map_err(silent(&self.name, STATUS_WITHIN))?;
        match receive(&self.stream, &self.name, STATUS_WITHIN)? {
            Response::StepsEnd { done, problem: None } => Ok(done),
            Response::StepsEnd { problem: Some(reason), .. } => {
                Err(Error::Supervisor { name: self.name, reason })
            }
            other => Err(unexpected(&self.name, other)),
        }
    }
}

fn unexpected(name: &str, response: Response) -> Error {
    let reason = match response {
        Response::Error { message, .. } => message,
        other => format!("its supervisor sent an unexpected response: {other:?}"),
    };
    Error::Supervisor { name: name.to_owned(), reason }
}

fn request(folders: &Folders, name: &str, request: Request, within: Duration) -> Result<Response> {
    let stream = send(folders, name, request, within)?;
    receive(&stream, name, within)
}

/// A connection to the supervisor over which a request was sent.
fn send(folders: &Folders, name: &str, request: Request, within: Duration) -> Result<UnixStream> {
    let folder = folders.lab(name);
    let socket = folder.join(CONTROL_SOCKET);
    let stream = UnixStream::connect(&socket).map_err(|error| unreachable(folders, name, error))?;
    let write = || -> std::io::Result<()> {
        stream.set_read_timeout(Some(within))?;
        stream.set_write_timeout(Some(within))?;
        let mut text = serde_json::to_vec(&request)?;
        text.push(b'\n');
        (&stream).write_all(&text)
    };
    write().map_err(silent(name, within))?;
    Ok(stream)
}

fn silent(name: &str, within: Duration) -> impl Fn(std::io::Error) -> Error + '_ {
    move |error| Error::Supervisor {
        name: name.to_owned(),
        reason: format!("its supervisor does not respond within {} s ({error})", within.as_secs()),
    }
}

fn receive(stream: &UnixStream, name: &str, within: Duration) -> Result<Response> {
    let mut line = String::new();
    let read = BufReader::new(stream.take(ANSWER_BYTES_MAX)).read_line(&mut line);
    read.map_err(silent(name, within))?;
    if line.is_empty() {
        return Err(Error::Supervisor {
            name: name.to_owned(),
            reason: "its supervisor ended without a response; 'kagiri undo' removes what is left".to_owned(),
        });
    }
    serde_json::from_str(&line).map_err(|error| silent(name, within)(error.into()))
}

fn unreachable(folders: &Folders, name: &str, error: std::io::Error) -> Error {
    use std::io::ErrorKind::{ConnectionRefused, NotFound};
    Error::Refused(match error.kind() {
        ConnectionRefused => {
            format!("lab {name}: its supervisor has died; 'kagiri undo' removes what it left")
        }
        NotFound if folders.lab(name).exists() => format!("lab {name} is starting or stopping"),
        NotFound => {
            let up = list(folders);
            let others = match up.is_empty() {
                true => "no lab is up".to_owned(),
                false => format!("labs that are up: {}", up.join(", ")),
            };
            format!("lab {name} is not up; {others}")
        }
        _ => format!("lab {name}: cannot reach its supervisor: {error}"),
    })
}

/// Names of all labs that are up, sorted.
pub fn list(folders: &Folders) -> Vec<String> {
    let entries = std::fs::read_dir(folders.labs()).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort_unstable();
    names
}

/// The named lab, or the only one that is up.
pub fn resolve_name(folders: &Folders, name: Option<&str>) -> Result<String> {
    require_root()?;
    if let Some(name) = name {
        return Ok(name.to_owned());
    }
    let up = list(folders);
    match up.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(Error::Refused("no lab is up; start one with 'kagiri lab up FILE'".to_owned())),
        several => Err(Error::Refused(format!("several labs are up; name one of {}", several.join(", ")))),
    }
}

/// Moves this thread to a host: into its network namespace and control group. Returns environment variables
/// for a program on the host.
pub fn enter(folders: &Folders, name: &str, host: &str) -> Result<Vec<(&'static str, OsString)>> {
    require_root()?;
    let folder = folders.lab(name);
    let Some(state) = State::read(&folder)? else {
        return Err(unreachable(folders, name, std::io::ErrorKind::NotFound.into()));
    };
    if !state.supervisor.is_running() {
        return Err(unreachable(folders, name, std::io::ErrorKind::ConnectionRefused.into()));
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
