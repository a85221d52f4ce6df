//! `kagiri files age`: what do years of recording and deleting do to a disk's read rate, and overwriting to a
//! flash disk's write rate?

use std::path::Path;

use clap::Args;
use files::ageing::settings::AgeingSettings;
use serde_json::{Value, json};

use crate::args::{WorkloadArgs, existing, require_help};
use crate::exit::{Failure, Outcome};
use crate::hosts::place_help;
use crate::session::SessionArgs;

/// Age a file system by recording and deleting until it is nearly full of fragments, and compare recordings
/// made before and after: extents, read rate, streams. Or overwrite a flash disk until its write rate is
/// steady.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    kagiri files age /mnt/new                        harsh, recordings as they are written\n  \
    kagiri files age /mnt/new --layout pool          in segments reserved while the disk is fresh\n  \
    kagiri files age /mnt/new --severity mild --require 'kept_percent>=95'\n  \
    kagiri files age /mnt/ssd --procedure flash      fresh and steady write rate of a flash disk\n  \
    kagiri run plans/ageing.toml                     file systems and layouts side by side (root)\n\n\
    DIR is the mount point of a file system of its own, best a new one: it is filled nearly whole. kagiri \
    works in a folder of its own in it, and removes that afterwards.")]
#[command(mut_arg("place", place_help("ageing")))]
#[command(mut_arg("require", require_help("'kept_percent>=95' or 'streams_aged>=4'")))]
pub struct AgeArgs {
    #[command(flatten)]
    settings: WorkloadArgs<AgeingSettings>,
    #[command(flatten)]
    session: SessionArgs,
}

impl AgeArgs {
    pub fn run(mut self: Box<Self>) -> Outcome {
        let dir = self.settings.get("dir").and_then(Value::as_str).map(str::to_owned);
        if self.session.placed()?.is_empty() {
            let Some(dir) = &dir else {
                let problem = "DIR is missing: give the mount point of a new file system, which is filled";
                return Err(Failure::usage(problem));
            };
            existing(Path::new(dir), "age", std::fs::Metadata::is_dir, "a directory")?;
            let path = std::path::absolute(dir).map_err(Failure::of_named)?;
            self.settings.set("dir", json!(path));
        }
        let given = |key| self.settings.get(key).and_then(Value::as_str);
        // The procedure for flash disks has no layouts.
        let of_files = given("procedure").is_none_or(|procedure| procedure == "files");
        let name = if of_files { given("layout").unwrap_or("plain") } else { "flash" }.to_owned();
        let on = dir.map(|dir| format!(" on {dir}")).unwrap_or_default();
        let plan = self.settings.plan("ageing", format!("ageing: {name}{on}"), &name)?;
        self.session.measure(plan).map_err(|failure| self.settings.with_flags("ageing", failure))
    }
}
