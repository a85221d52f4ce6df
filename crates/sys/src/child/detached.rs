//! A program that outlives this one.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use crate::{Error, Result};

/// Starts `command` in a session of its own (setsid(2)), so that neither the end of this program nor its
/// terminal ends it. Its standard input is empty; what it writes comes through pipes until it closes them or
/// redirects itself with [`redirect_output`].
/// Errors: there is no such program, or the kernel refuses to start it.
pub fn start_detached(mut command: Command) -> Result<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    spawn_in_own_session(command)
}

/// [`start_detached`] with the standard input and output that the command has.
/// Errors: as [`start_detached`].
pub fn spawn_in_own_session(mut command: Command) -> Result<Child> {
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            nix::unistd::setsid()?;
            Ok(())
        });
    }
    let name = command.get_program().to_string_lossy().into_owned();
    command.spawn().map_err(|error| Error::call(format!("start `{name}`"), error))
}

/// From now on, what this process writes on standard error goes to `file`, and on standard output too if
/// `all`.
/// Errors: those of dup2(2).
pub fn redirect_output(file: &File, all: bool) -> Result<()> {
    let redirect = || -> nix::Result<()> {
        nix::unistd::dup2_stderr(file)?;
        if all { nix::unistd::dup2_stdout(file) } else { Ok(()) }
    };
    redirect().map_err(|error| Error::call("redirect what is written", error))
}
