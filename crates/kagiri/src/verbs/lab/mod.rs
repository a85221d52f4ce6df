//! `kagiri lab`: hosts, links and disks made on this machine.

mod disk;
mod show;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;
use clap::{Args, Subcommand};
use lab::client;
use lab::keeper::{KeepOptions, Program};
use lab::state::Folders;

use crate::exit::{Code, Failure, Outcome};
use crate::{measure, output};

/// Hosts, links and disks made on this machine.
#[derive(Subcommand)]
#[command(
    after_help = "A lab file names hosts, switches, links and disks; docs/lab.md explains every key. It needs root.\n\n\
    Examples:\n  \
    kagiri lab up plans/labs/two-pcs.toml     make it\n  \
    kagiri lab status                         what is there, and how it does\n  \
    kagiri lab exec a -- ip address           run something on a host\n  \
    kagiri stream --lab two-pcs --place server=a --place viewers=b    measure on it\n  \
    kagiri transfer --lab two-pcs --place server=a --place clients=b\n  \
    kagiri lab down                           take it down again"
)]
pub enum Lab {
    /// Make the lab that a file describes, and keep it until 'down'
    #[command(alias = "start")]
    Up(Up),
    /// Show the lab: hosts, addresses, links, disks, processes
    #[command(aliases = ["ls", "list", "show"])]
    Status(Status),
    /// Run a program on a host of the lab
    Exec(Exec),
    /// Take the lab down
    #[command(alias = "stop")]
    Down(Down),
    /// Keep a lab (what 'up' starts)
    #[command(hide = true)]
    Keep(Keep),
    /// Carry the delay lines of a lab (what a keeper starts)
    #[command(hide = true)]
    Line(Line),
    /// Serve a disk that takes its time (what a keeper starts)
    #[command(hide = true)]
    Disk(disk::Disk),
}

/// Make the lab that a file describes.
#[derive(Args)]
pub struct Up {
    /// The lab file
    file: PathBuf,
    /// Print what is there as one JSON document
    #[arg(long)]
    json: bool,
}

/// Show the lab.
#[derive(Args)]
pub struct Status {
    /// Which lab; the only one that is up if left out
    name: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Run a program on a host of the lab.
#[derive(Args)]
#[command(
    after_help = "The program finds the host's disk in $KAGIRI_LAB_DISK, and KAGIRI_LAB and KAGIRI_LAB_HOST. Its \
    exit code becomes this one's.\n\n\
    Example:\n  \
    kagiri lab exec server -- nginx -g 'daemon off;'"
)]
pub struct Exec {
    /// Which host
    host: String,
    /// Which lab; the only one that is up if left out
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Take the lab down.
#[derive(Args)]
pub struct Down {
    /// Which lab; the only one that is up if left out
    name: Option<String>,
}

/// Keep a lab.
#[derive(Args)]
pub struct Keep {
    /// The lab file
    file: PathBuf,
    /// Where what needs a disk goes
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The process that the lab is for
    #[arg(long, value_name = "PID")]
    owner: Option<i32>,
}

/// Carry the delay lines of a lab.
#[derive(Args)]
pub struct Line {
    /// The file that describes them
    spec: PathBuf,
}

/// Where labs, their data and the undo journal are.
pub fn folders() -> Result<Folders, Failure> {
    Ok(Folders { journal: measure::journal_dir(), data: measure::data_dir()? })
}

/// How to bring up the lab that `file` describes.
pub fn keep_options(file: PathBuf) -> Result<KeepOptions, Failure> {
    let path = std::env::current_exe().context("cannot find this program's own file")?;
    // The keeper has this process's folder, but the file's name is shown to people who stand elsewhere.
    let file = std::path::absolute(&file).unwrap_or(file);
    let program = Program { path, arguments: Vec::new() };
    Ok(KeepOptions { file, folders: folders()?, program, owner: None })
}

impl Lab {
    /// Do it.
    pub fn perform(self) -> Outcome {
        match self {
            Self::Up(verb) => verb.perform(),
            Self::Status(verb) => verb.perform(),
            Self::Exec(verb) => verb.perform(),
            Self::Down(verb) => verb.perform(),
            Self::Keep(verb) => verb.perform(),
            Self::Line(verb) => verb.perform(),
            Self::Disk(verb) => verb.perform(),
        }
    }
}

impl Up {
    fn perform(self) -> Outcome {
        let state = client::up(&keep_options(self.file)?)?;
        match self.json {
            true => output::print(&format!("{}\n", serde_json::to_string_pretty(&state)?)),
            false => output::print(&show::up(&state)),
        }
        Ok(Code::Measured)
    }
}

impl Status {
    fn perform(self) -> Outcome {
        let folders = folders()?;
        let name = client::meant(&folders, self.name.as_deref())?;
        let status = client::status(&folders, &name)?;
        match self.json {
            true => output::print(&format!("{}\n", serde_json::to_string_pretty(&status)?)),
            false => output::print(&show::status(&status)),
        }
        let ended = status.processes.iter().any(|process| process.ended.is_some());
        Ok(if ended { Code::Failed } else { Code::Measured })
    }
}

impl Exec {
    fn perform(self) -> Outcome {
        let folders = folders()?;
        let name = client::meant(&folders, self.lab.as_deref())?;
        let variables = client::enter(&folders, &name, &self.host)?;
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(Failure::usage("name a program after --"));
        };
        // Becomes the program: signals reach it, and its exit code is this one's.
        let error = Command::new(program).args(arguments).envs(variables).exec();
        Err(Failure::World(anyhow::anyhow!("cannot run {} on {}: {error}", program.display(), self.host)))
    }
}

impl Down {
    fn perform(self) -> Outcome {
        let folders = folders()?;
        let name = client::meant(&folders, self.name.as_deref())?;
        let left = client::down(&folders, &name)?;
        if left.is_empty() {
            output::print(&format!("Lab {name} is down.\n"));
            return Ok(Code::Measured);
        }
        Err(Failure::World(anyhow::anyhow!(
            "lab {name} is down, but not all of it could be put back; mend the cause and run 'kagiri undo':\n{}",
            left.join("\n")
        )))
    }
}

impl Keep {
    fn perform(self) -> Outcome {
        let folders = Folders { data: self.data, ..folders()? };
        let options = KeepOptions { folders, owner: self.owner, ..keep_options(self.file)? };
        match lab::keeper::keep(&options, &|line| say(line)) {
            true => Ok(Code::Measured),
            // Said already, to whoever waits for it.
            false => Ok(Code::Failed),
        }
    }
}

impl Line {
    fn perform(self) -> Outcome {
        lab::line::carry(&self.spec, &|line| {
            // A keeper that is gone takes this process with it.
            let _ = say(line);
        })?;
        Ok(Code::Measured)
    }
}

/// One line for whoever started this; `false` when nobody reads it.
fn say(line: &str) -> bool {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).is_ok()
}
