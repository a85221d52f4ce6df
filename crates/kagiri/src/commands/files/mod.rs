//! `kagiri files`: how much file work does a storage carry?

mod age;

use std::fmt::Write as _;
use std::path::Path;

use clap::{Args, Subcommand};
use files::objects::access::address::Address;
use files::personalities;
use files::settings::FilesSettings;
use serde_json::{Value, json};

use crate::args::{SETTINGS, WorkloadArgs, existing, require_help};
use crate::exit::{Code, Failure, Outcome};
use crate::hosts::place_help;
use crate::output;
use crate::session::SessionArgs;
use age::AgeArgs;

/// Measure how much file work a storage carries: operations on files and directories, their latency, the time
/// until everything is durable, and what limits them.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    kagiri files /mnt/nas --time 10s                 filebench's fileserver\n  \
    kagiri files /mnt/nas --personality varmail --set nfiles=50000\n  \
    kagiri files /mnt/nas --wml my.f                 a program of your own in WML\n  \
    kagiri files /mnt/nas --search --p99-max 20ms     most threads in time\n  \
    kagiri files /mnt/nas --search-rate --p99-max 20ms  most operations/s\n  \
    kagiri files /mnt/nas --rate 2000 --require 'p99<=20ms'\n  \
    kagiri files --list                              the ready programs\n  \
    kagiri files age /mnt/new                        what years do to a disk\n  \
    kagiri files s3://BUCKET/PREFIX --mix get=4,put=1  requests to an object store\n\n\
    kagiri makes a folder of its own in DIR, makes the files in it, and removes it afterwards. Of an object \
    store it works below a prefix of its own; the credentials are those of the environment \
    (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL).")]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
#[command(mut_arg("place", place_help("files")))]
#[command(mut_arg("require", require_help("'ops_per_s>=5000' or 'p99<=20ms'")))]
pub struct FilesArgs {
    #[command(subcommand)]
    command: Option<FilesCommand>,
    #[command(flatten)]
    settings: WorkloadArgs<FilesSettings>,
    /// Set a variable of the program, e.g. nfiles=50000; repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// List the ready programs; with --full, what each does
    #[arg(long, conflicts_with = SETTINGS)]
    list: bool,
    /// Print the program's text instead of running it
    #[arg(long, conflicts_with = "list")]
    print: bool,
    #[command(flatten)]
    session: SessionArgs,
}

#[derive(Subcommand)]
enum FilesCommand {
    /// Age a file system, and compare recordings made before and after (a directory of this name: ./age)
    Age(Box<AgeArgs>),
}

impl FilesArgs {
    pub fn run(mut self: Box<Self>) -> Outcome {
        if let Some(FilesCommand::Age(args)) = self.command.take() {
            return args.run();
        }
        if self.list {
            let list = if self.session.common.full { listed() } else { names_by_kind() };
            return output::print(&output::on_terminal(&list)).map(|()| Code::Measured);
        }
        for pair in &self.set {
            let (name, value) = pair.split_once('=').ok_or_else(|| {
                Failure::usage(format!("--set {pair}: write NAME=VALUE, for example nfiles=50000"))
            })?;
            let name = name.trim().trim_start_matches('$');
            if name.is_empty() || name.contains('.') {
                return Err(Failure::usage(format!("--set {pair}: '{name}' is no name of a variable")));
            }
            self.settings.set(&format!("set.{name}"), json!(value.trim()));
        }
        if self.print {
            if let Some(dir) = self.settings.get("dir").and_then(Value::as_str) {
                return Err(Failure::usage(format!(
                    "--print takes no DIR ({dir}): it prints the program of --personality NAME"
                )));
            }
            let settings = self.settings.resolve("files")?;
            let settings: FilesSettings = serde_json::from_value(settings)?;
            let source = settings.source().map_err(Failure::usage)?;
            return output::print(&source.text).map(|()| Code::Measured);
        }
        let dir = self.settings.get("dir").and_then(Value::as_str).map(str::to_owned);
        let is_here = self.session.placed()?.is_empty();
        if let Some(dir) = dir.as_ref().filter(|dir| is_here && !Address::is_meant(dir)) {
            existing(Path::new(dir), "measure", std::fs::Metadata::is_dir, "a directory")?;
            let path = std::path::absolute(dir).map_err(Failure::of_named)?;
            self.settings.set("dir", json!(path));
        }
        if dir.is_none() && is_here {
            return Err(Failure::usage("DIR is missing: give a directory on the storage to be measured"));
        }
        let given = |key| self.settings.get(key).and_then(Value::as_str);
        let program =
            given("wml").or(given("personality")).or(given("mix")).unwrap_or("fileserver").to_owned();
        let plan = self.settings.plan(
            "files",
            format!("files: {program}{}", dir.map(|dir| format!(" on {dir}")).unwrap_or_default()),
            &program,
        )?;
        self.session.measure(plan)
    }
}

/// The names of all ready programs, in 15 lines.
fn names_by_kind() -> String {
    let style = output::style();
    let widest = personalities::by_kind().map(|(kind, _)| kind.len()).max().unwrap_or(0);
    let mut list: String = personalities::by_kind()
        .map(|(kind, programs)| {
            let names: Vec<&str> = programs.iter().map(|(name, _)| *name).collect();
            style.wrapped(&format!("{kind:widest$}  "), &names.join(" "))
        })
        .collect();
    list += "What each does: kagiri files --list --full\n";
    list
}

/// Name and meaning of every ready program.
fn listed() -> String {
    let mut list = String::new();
    let widest = personalities::ALL.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, text) in personalities::ALL {
        let _ = writeln!(list, "{name:widest$}  {}", personalities::about(text));
    }
    list
}
