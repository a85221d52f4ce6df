//! `kagiri lab`: virtual hosts, links and disks on this machine.

mod disk;
mod show;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::{Args, Subcommand};
use lab::client;
use lab::state::Folders;
use lab::supervisor::SupervisorOptions;

use crate::exit::{Code, Failure, Outcome};
use crate::lab_for_run::{folders, keep_options};
use crate::output;

/// Make a lab on this machine: virtual hosts, links and disks.
#[derive(Subcommand)]
#[command(
    after_help = "A lab file defines hosts, switches, links, disks and mounts; docs/lab.md explains all \
    keys. Labs need root.\n\n\
    Examples:\n  \
    kagiri lab up plans/labs/two-pcs.toml     make the lab\n  \
    kagiri lab status                         show its state\n  \
    kagiri lab exec a -- ip address           run a program on a host\n  \
    kagiri stream --lab two-pcs --place server=a --place viewers=b\n  \
    kagiri transfer --lab two-pcs --place server=a --place clients=b\n  \
    kagiri lab down                           remove the lab"
)]
pub enum Lab {
    /// Make the lab that FILE describes; it stays until 'kagiri lab down'
    #[command(alias = "start")]
    Up(Up),
    /// Show the lab: hosts, addresses, links, disks, processes
    #[command(aliases = ["ls", "list", "show"])]
    Status(Status),
    /// Run a program on a host of the lab
    Exec(Exec),
    /// Remove the lab
    #[command(alias = "stop")]
    Down(Down),
    /// Supervise a lab (started by 'up')
    #[command(hide = true)]
    Keep(Keep),
    /// Run the delay lines of a lab (started by its supervisor)
    #[command(hide = true)]
    Line(Line),
    /// Serve a modelled disk (started by a lab's supervisor)
    #[command(hide = true)]
    Disk(disk::Disk),
}

/// Make the lab that FILE describes.
#[derive(Args)]
#[command(after_help = "Example:\n  kagiri lab up plans/labs/two-pcs.toml")]
pub struct Up {
    /// Lab file; examples are in plans/labs/ of kagiri's sources
    file: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Show the lab.
#[derive(Args)]
#[command(after_help = "Exits with 1 if a process of the lab (agent, delay lines, command of its file) has \
    ended.\n\nExamples:\n  \
    kagiri lab status\n  \
    kagiri lab status two-pcs --json")]
pub struct Status {
    /// Name of the lab [default: the only one that is up]
    name: Option<String>,
    /// Print all hosts, links, disks and processes
    #[arg(long, conflicts_with = "json")]
    full: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Run a program on a host of the lab.
#[derive(Args)]
#[command(
    after_help = "The program finds the lab's name in $KAGIRI_LAB, the host's in $KAGIRI_LAB_HOST, and the \
    path of the host's disk, if it has one, in $KAGIRI_LAB_DISK. Exits with the program's exit code.\n\n\
    Example:\n  \
    kagiri lab exec server -- nginx -g 'daemon off;'"
)]
pub struct Exec {
    /// Host of the lab, as 'kagiri lab status' lists it
    host: String,
    /// Name of the lab [default: the only one that is up]
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Remove the lab.
#[derive(Args)]
#[command(after_help = "Example:\n  kagiri lab down two-pcs")]
pub struct Down {
    /// Name of the lab [default: the only one that is up]
    name: Option<String>,
}

/// Supervise a lab.
#[derive(Args)]
pub struct Keep {
    /// Lab file
    file: PathBuf,
    /// Directory for disk images and data
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Process with which the lab ends
    #[arg(long, value_name = "PID")]
    owner: Option<i32>,
}

/// Run the delay lines of a lab.
#[derive(Args)]
pub struct Line {
    /// File that defines them
    spec: PathBuf,
}

impl Lab {
    pub fn run(self) -> Outcome {
        match self {
            Self::Up(command) => command.run(),
            Self::Status(command) => command.run(),
            Self::Exec(command) => command.run(),
            Self::Down(command) => command.run(),
            Self::Keep(command) => command.run(),
            Self::Line(command) => command.run(),
            Self::Disk(command) => command.run(),
        }
    }
}

impl Up {
    fn run(self) -> Outcome {
        let state = client::up(&keep_options(self.file)?)?;
        match self.json {
            true => output::print(&format!("{}\n", serde_json::to_string_pretty(&state)?))?,
            false => output::print(&output::on_terminal(&show::up(&state)))?,
        }
        Ok(Code::Measured)
    }
}

impl Status {
    fn run(self) -> Outcome {
        let folders = folders()?;
        let name = client::resolve_name(&folders, self.name.as_deref())?;
        let status = client::status(&folders, &name)?;
        match self.json {
            true => output::print(&format!("{}\n", serde_json::to_string_pretty(&status)?))?,
            false => output::print(&output::on_terminal(&show::status(&status, self.full)))?,
        }
        let ended = status.processes.iter().any(|process| process.ended.is_some());
        Ok(if ended { Code::Failed } else { Code::Measured })
    }
}

impl Exec {
    fn run(self) -> Outcome {
        let folders = folders()?;
        let name = client::resolve_name(&folders, self.lab.as_deref())?;
        let variables = client::enter(&folders, &name, &self.host)?;
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(Failure::usage("name a program after --"));
        };
        // Replaces this process, so that signals and exit code are the program's.
        let error = Command::new(program).args(arguments).envs(variables).exec();
        Err(Failure::runtime(format!("cannot run {} on {}: {error}", program.display(), self.host)))
    }
}

impl Down {
    fn run(self) -> Outcome {
        let folders = folders()?;
        let name = client::resolve_name(&folders, self.name.as_deref())?;
        let left = client::down(&folders, &name)?;
        if left.is_empty() {
            output::print(&format!("Lab {name} is down.\n"))?;
            return Ok(Code::Measured);
        }
        Err(Failure::runtime(format!(
            "lab {name} is down, but was not removed completely; fix the cause and run 'kagiri undo':\n{}",
            left.join("\n")
        )))
    }
}

impl Keep {
    fn run(self) -> Outcome {
        let folders = Folders { data: self.data, ..folders()? };
        let options = SupervisorOptions { folders, owner: self.owner, ..keep_options(self.file)? };
        match lab::supervisor::supervise(&options, &|line| say(line)) {
            true => Ok(Code::Measured),
            // The parent process has received the error.
            false => Ok(Code::Failed),
        }
    }
}

impl Line {
    fn run(self) -> Outcome {
        lab::line::run(&self.spec, &|line| {
            // This process ends with its supervisor.
            let _ = say(line);
        })?;
        Ok(Code::Measured)
    }
}

/// Prints one line for the parent process; `false` if it is gone.
fn say(line: &str) -> bool {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).is_ok()
}
