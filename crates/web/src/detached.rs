//! Commands that outlive this server: what they change is undone by themselves.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::error::{ApiError, ApiResult};
use crate::jobs::{Process, make_folder, tail};
use crate::program::{Answer, Program, failure};

const POLL: Duration = Duration::from_millis(50);
const OUTPUT_BYTES_MAX: u64 = 1 << 20;

/// Starts a command in a folder, which gets what it prints.
pub fn start(program: &Arc<Program>, arguments: &[std::ffi::OsString], folder: &Path) -> ApiResult<Process> {
    let start = || -> io::Result<Process> {
        make_folder(folder)?;
        let mut command = program.command(arguments);
        command.stdout(File::create(stdout_file(folder))?).stderr(File::create(stderr_file(folder))?);
        let mut child = sys::child::spawn_in_own_session(command).map_err(io::Error::other)?;
        let pid = child.id() as i32;
        let process = Process { pid, start_ticks: sys::proc::start_ticks(Path::new("/"), pid)? };
        // Takes its exit code when it ends; without that its process id would stay in use.
        std::thread::Builder::new().name("reaper".into()).spawn(move || child.wait())?;
        Ok(process)
    };
    start().map_err(|error| ApiError::not_written("the command cannot be started", &error))
}

fn stdout_file(folder: &Path) -> PathBuf {
    folder.join("stdout")
}

fn stderr_file(folder: &Path) -> PathBuf {
    folder.join("stderr")
}

/// The document that it printed at its end.
pub fn document(folder: &Path) -> Option<Value> {
    serde_json::from_str(&tail(&stdout_file(folder), OUTPUT_BYTES_MAX)).ok()
}

/// Why it ended at once.
pub fn problem(folder: &Path) -> ApiError {
    // Its exit code is unknown here; most of such failures are wrong input.
    let stderr = tail(&stderr_file(folder), OUTPUT_BYTES_MAX);
    let mut error = failure(&Answer { stdout: Vec::new(), stderr, code: Some(2) });
    if error.message.contains("already") {
        error.status = http::StatusCode::CONFLICT;
    }
    error
}

/// Interrupts a process and waits for its end.
/// Errors: no permission; it does not end in time.
pub fn end(process: Process, within: Duration) -> ApiResult<()> {
    sys::process::interrupt(process.pid, process.start_ticks).map_err(ApiError::internal)?;
    let deadline = Instant::now() + within;
    while process.is_running() {
        if Instant::now() > deadline {
            let message = format!("process {} did not end within {} s", process.pid, within.as_secs());
            return Err(ApiError::new(http::StatusCode::GATEWAY_TIMEOUT, message));
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}
