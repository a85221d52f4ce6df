//! A lab that is up for one run.

use std::path::{Path, PathBuf};

use anyhow::Context;
use base::names::first_of;
use base::placement::Wish;
use base::plan::Plan;
use lab::file::Lab;
use lab::state::Folders;
use lab::supervisor::{Program, SupervisorOptions};

use crate::exit::Failure;
use crate::{dirs, output, stop};

pub fn folders() -> Result<Folders, Failure> {
    Ok(Folders { journal: dirs::journal_dir(), data: dirs::data_dir()? })
}

pub fn keep_options(file: PathBuf) -> Result<SupervisorOptions, Failure> {
    let path = std::env::current_exe().context("cannot find this program's own file")?;
    // Absolute, because messages show it to users in other directories.
    let file = std::path::absolute(&file).unwrap_or(file);
    let program = Program { path, arguments: Vec::new() };
    Ok(SupervisorOptions { file, folders: folders()?, program, owner: None })
}

/// Before the lab is made: it must have the hosts that the plan names. An error of the file itself is left to
/// [`LabForRun::up`].
pub fn check_hosts(plan: &Plan, file: &Path) -> Result<(), Failure> {
    let text = sys::file::read_text(file, lab::file::TEXT_BYTES_MAX as u64);
    let Some(lab) = text.ok().and_then(|text| Lab::read(&text).ok()) else { return Ok(()) };
    let is_missing = |wish: &Wish| !lab.hosts.iter().any(|host| wish.matches(&host.name));
    match crate::hosts::wishes(plan).into_iter().find(is_missing) {
        None => Ok(()),
        Some(wish) => {
            let names = lab.hosts.iter().map(|host| host.name.as_str());
            Err(Failure::usage(format!(
                "the plan names the host '{}', and the lab {} has no host of that name; its hosts are {}",
                wish.hosts,
                file.display(),
                first_of(names, 20)
            )))
        }
    }
}

pub struct LabForRun {
    name: String,
    folders: Folders,
}

impl LabForRun {
    /// Brings up the lab of a file. It goes down with this process.
    pub fn up(file: PathBuf, quiet: bool) -> Result<Self, Failure> {
        let owner = i32::try_from(std::process::id()).ok();
        let options = SupervisorOptions { owner, ..keep_options(file)? };
        let stop = stop::stop_flag()?;
        let state = lab::client::up(&options)?;
        let lab = Self { name: state.lab.clone(), folders: options.folders };
        if stop.load(std::sync::atomic::Ordering::Relaxed) {
            lab.down()?;
            return Err(Failure::Interrupted("interrupted before the first trial ended".into()));
        }
        if !quiet {
            output::say(&format!("lab {} is up: {} hosts", state.lab, state.hosts.len()));
        }
        Ok(lab)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn down(self) -> Result<(), Failure> {
        let left = lab::client::down(&self.folders, &self.name)?;
        match left.is_empty() {
            true => Ok(()),
            false => Err(Failure::runtime(format!(
                "lab {} could not be removed completely; fix the cause and run 'kagiri undo':\n{}",
                self.name,
                left.join("\n")
            ))),
        }
    }
}
