//! Runs helper programs with a deadline and a clear error when one is missing.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::Signal;

use super::{PidFd, spawner};
use crate::clock::Deadline;
use crate::{Error, Result};

const OUTPUT_BYTES: u64 = 8 << 20;
/// Bytes of the end of standard error in a message.
const MESSAGE_BYTES: usize = 600;

#[derive(Debug, Clone, Copy)]
pub(crate) struct HelperCommand {
    pub(crate) program: &'static str,
    pub(crate) package: &'static str,
    /// Its purpose, after "needed to" in the message.
    pub(crate) purpose: &'static str,
}

impl HelperCommand {
    /// Runs the program, in `namespace` if given, and returns its standard output.
    pub(crate) fn run(
        &self,
        arguments: &[&str],
        namespace: Option<Arc<OwnedFd>>,
        within: Duration,
    ) -> Result<Vec<u8>> {
        self.run_with(arguments, b"", namespace, within)
    }

    /// [`HelperCommand::run`], with `input` on its standard input.
    pub(crate) fn run_with(
        &self,
        arguments: &[&str],
        input: &[u8],
        namespace: Option<Arc<OwnedFd>>,
        within: Duration,
    ) -> Result<Vec<u8>> {
        // Many users' PATH lacks sbin.
        let places = [
            self.program.to_owned(),
            format!("/usr/sbin/{}", self.program),
            format!("/sbin/{}", self.program),
        ];
        for place in &places {
            if place.starts_with('/') && !Path::new(place).exists() {
                continue;
            }
            let mut command = Command::new(place);
            command.args(arguments).stdin(standard_input(input)?);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.env("LC_ALL", "C");
            spawner::prepare(&mut command, &[], namespace.clone(), Signal::SIGKILL)?;
            match spawner::spawn(command) {
                Ok(child) => return self.finish(child, arguments, within),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::call(format!("start `{place}`"), error)),
            }
        }
        Err(Error::MissingProgram {
            program: self.program.to_owned(),
            package: self.package,
            purpose: self.purpose.to_owned(),
        })
    }

    fn finish(
        &self,
        mut child: std::process::Child,
        arguments: &[&str],
        within: Duration,
    ) -> Result<Vec<u8>> {
        let command = || format!("{} {}", self.program, arguments.join(" "));
        let stdout = collect(child.stdout.take());
        let stderr = collect(child.stderr.take());
        let pid = i32::try_from(child.id()).unwrap_or(i32::MAX);
        let in_time = PidFd::open(pid).map(|handle| handle.wait_ended(Deadline::after(within)));
        if !matches!(in_time, Ok(true)) {
            let _ = child.kill();
        }
        let status = child.wait().map_err(|error| Error::call(format!("wait for `{}`", command()), error))?;
        if !in_time? {
            return Err(Error::Deadline {
                what: format!("the end of `{}`", command()),
                within,
                detail: String::new(),
            });
        }
        let (stdout, stderr) = (join(stdout), join(stderr));
        if status.success() {
            return Ok(stdout);
        }
        let said = String::from_utf8_lossy(&stderr).trim().to_owned();
        let start = said.char_indices().rev().nth(MESSAGE_BYTES).map_or(0, |(at, _)| at);
        Err(Error::Command {
            command: command(),
            status: status.to_string(),
            stderr: said[start..].to_owned(),
        })
    }
}

/// A file in memory rather than a pipe: a pipe that is full would need a thread to write the rest.
fn standard_input(input: &[u8]) -> Result<Stdio> {
    if input.is_empty() {
        return Ok(Stdio::null());
    }
    let make = || -> std::io::Result<File> {
        let mut file = File::from(memfd_create(c"kagiri-input", MFdFlags::MFD_CLOEXEC)?);
        file.write_all(input)?;
        file.rewind()?;
        Ok(file)
    };
    Ok(make().map_err(|error| Error::call("make a file in memory", error))?.into())
}

/// Reads a pipe to its end in a thread, so that neither pipe can fill up while the other is read.
fn collect(pipe: Option<impl Read + Send + 'static>) -> Option<JoinHandle<Vec<u8>>> {
    let mut pipe = pipe?.take(OUTPUT_BYTES);
    let read = move || {
        let mut all = Vec::new();
        // What was read before an error is still of use.
        let _ = pipe.read_to_end(&mut all);
        all
    };
    std::thread::Builder::new().name("tool-output".to_owned()).spawn(read).ok()
}

fn join(thread: Option<JoinHandle<Vec<u8>>>) -> Vec<u8> {
    thread.and_then(|thread| thread.join().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECONDS: Duration = Duration::from_secs(20);

    fn tool(program: &'static str) -> HelperCommand {
        HelperCommand { program, package: "nothing", purpose: "test" }
    }

    #[test]
    fn helper_output_failure_absence_and_deadline() {
        assert_eq!(tool("echo").run(&["a", "b"], None, SECONDS).unwrap(), b"a b\n");
        // More than a pipe holds.
        let much = vec![b'x'; 1 << 20];
        assert_eq!(tool("cat").run_with(&[], &much, None, SECONDS).unwrap(), much);
        let failed = tool("sh").run(&["-c", "echo no >&2; exit 3"], None, SECONDS).unwrap_err().to_string();
        assert!(failed.contains("exit status: 3") && failed.contains("no"), "{failed}");
        let missing = tool("no-such-program-at-all").run(&[], None, SECONDS).unwrap_err().to_string();
        assert!(missing.contains("install nothing"), "{missing}");
        let late = tool("sleep").run(&["60"], None, Duration::from_millis(20)).unwrap_err();
        assert!(matches!(late, Error::Deadline { .. }), "{late}");
    }
}
