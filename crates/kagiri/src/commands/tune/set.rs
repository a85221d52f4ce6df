//! `kagiri tune set`: settings for a time or for a command.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use base::format::quantity;
use base::units::Span;
use clap::{Args, ValueEnum};
use serde::Serialize;
use sys::clock::Deadline;
use sys::journal::Journal;
use tune::export::{assignment, commands, sysctl_d};
use tune::kernel::Kernel;

use super::assignment::{Assignment, read_all};
use super::changes::{Changes, Ended, State};
use super::record::{self, Record};
use crate::commands::qos::check_root;
use crate::dirs::journal_dir;
use crate::exit::{Code, Failure, Outcome};
use crate::guardian::start_guardian;
use crate::json_document::Document;
use crate::leftovers::clean_leftovers;
use crate::output;
use crate::stop::stop_flag;

const LENGTH_DEFAULT: Span = Span::from_s(600);
const LENGTH_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// How often the settings and the guardian are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Set settings for a time or for a command.
#[derive(Args)]
#[command(after_help = "Restores each setting at the end of the time or of the command, at Ctrl-C, at \
    'kagiri tune undo', and at once if this program is killed (a second process does that). A setting that \
    another program changes meanwhile is left alone, and named. Several numbers are separated by blanks or \
    commas; sizes may have a unit (8MiB). 'kagiri tune list' shows names and ranges. Needs root.\n\n\
    The exit code is that of the command, if there is one.\n\n\
    Examples:\n  \
    kagiri tune set tcp_wmem='4096 16384 8MiB' --for 10min\n  \
    kagiri tune set tcp_slow_start_after_idle=0 -- kagiri exchange 10.0.0.2 --size 250kB\n  \
    kagiri tune set tcp_congestion_control=bbr --keep\n  \
    kagiri tune set tcp_notsent_lowat=131072 --export sysctl.d > /etc/sysctl.d/90-kagiri.conf")]
pub struct Set {
    /// Settings with their values
    #[arg(value_name = "NAME=VALUE", required = true)]
    settings: Vec<String>,
    /// Restore after this time [default: 10min]
    #[arg(long = "for", value_name = "TIME", conflicts_with_all = ["keep", "command"])]
    length: Option<Span>,
    /// Leave the settings as they are set, until the next boot
    #[arg(long, conflicts_with = "command")]
    keep: bool,
    /// Print the settings for other programs instead, and change nothing
    #[arg(long, value_name = "FORM", conflicts_with_all = ["length", "keep", "command", "json"])]
    export: Option<Export>,
    /// Print one JSON document at the end; the command's output goes to standard error
    #[arg(long)]
    json: bool,
    /// Run this command with the settings, and restore them when it ends
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Export {
    /// File for /etc/sysctl.d
    #[value(name = "sysctl.d")]
    SysctlD,
    /// Commands for a shell
    Commands,
}

#[derive(Serialize)]
struct SetDocument<'a> {
    settings: &'a [Ended],
    set_for_s: f64,
    /// `null`: there was no command.
    command_exit_code: Option<i32>,
}

impl Set {
    pub fn run(self) -> Outcome {
        let kernel = Kernel::live();
        let assignments = read_all(&self.settings, &kernel)?;
        self.check_length()?;
        if let Some(form) = self.export {
            output::print(&exported(form, &assignments))?;
            return Ok(Code::Measured);
        }
        check_root("tune set changes settings of the kernel ('--export' only prints them)")?;
        let _locks = record::lock(&assignments)?;
        match () {
            () if self.keep => self.keep(&assignments),
            () if self.command.is_empty() => self.hold(&assignments, &kernel),
            () => self.run_command(&assignments),
        }
    }

    fn check_length(&self) -> Result<(), Failure> {
        let Some(length) = self.length else { return Ok(()) };
        match length.duration() {
            time if time.is_zero() || time > LENGTH_MAX => Err(Failure::usage(format!(
                "--for {length}: expected more than 0 and at most 7 days; see --keep"
            ))),
            _ => Ok(()),
        }
    }

    /// Leaves the settings, and prints how to make them permanent and how to restore them.
    fn keep(&self, assignments: &[Assignment]) -> Outcome {
        let stop = stop_flag()?;
        clean_leftovers(&stop, &|line| output::say(line));
        let journal = Journal::open(&journal_dir())?;
        let ended = Changes::make(&journal, assignments)?.keep()?;
        if self.json {
            return self.print_document(&ended, 0.0, None);
        }
        let mut text: String = ended.iter().map(|one| one.text() + "\n").collect();
        text += "Kept until the next boot. To keep it longer:\n";
        text += &format!(
            "  kagiri tune set {} --export sysctl.d > /etc/sysctl.d/90-kagiri.conf\n",
            words(&ended, false)
        );
        let changed: Vec<Ended> = ended.into_iter().filter(|one| one.outcome == State::Kept).collect();
        if !changed.is_empty() {
            text += &format!("To restore:\n  kagiri tune set {} --keep\n", words(&changed, true));
        }
        output::print(&text)?;
        Ok(Code::Measured)
    }

    /// Leaves the settings until the time is over, or Ctrl-C.
    fn hold(&self, assignments: &[Assignment], kernel: &Kernel) -> Outcome {
        let length = self.length.unwrap_or(LENGTH_DEFAULT);
        let stop = stop_flag()?;
        clean_leftovers(&stop, &|line| output::say(line));
        let journal = Journal::open(&journal_dir())?;
        // Before anything is changed; it ends after the last change is undone.
        let mut guardian = start_guardian("tune", &journal)?;
        let record = Record::new(assignments, format!("for {length}"))?;
        let changes = Changes::make(&journal, assignments)?;
        record.write()?;
        changes.lines().iter().for_each(|line| output::say(line));
        output::say(&format!("Set for {length}; Ctrl-C or 'kagiri tune undo' restores the values before"));
        let begun = Instant::now();
        let deadline = Deadline::after(length.duration());
        let mut named: Vec<&str> = Vec::new();
        let mut guarded = Ok(());
        while guarded.is_ok() && !stop.load(Ordering::Relaxed) && deadline.pause(LOOK_EVERY) {
            for (name, now) in changes.changed_by_others(kernel).filter(|(name, _)| !named.contains(name)) {
                output::say(&format!("{name}: another program has set it to {now}; it will be left alone"));
            }
            named = changes.changed_by_others(kernel).map(|(name, _)| name).collect();
            if !guardian.is_running() {
                guarded = start_guardian("tune", &journal).map(|new| guardian = new);
            }
        }
        let ended = changes.restore();
        record.remove();
        drop(guardian);
        let was_cut = self.length.is_some() && stop.load(Ordering::Relaxed);
        let printed = self.present(&ended, begun.elapsed());
        guarded?;
        printed?;
        check_restored(&ended)?;
        Ok(if was_cut { Code::Interrupted } else { Code::Measured })
    }

    /// Runs the command with the settings. Ends this process with the command's exit code.
    fn run_command(&self, assignments: &[Assignment]) -> Outcome {
        // The command gets the signals: no handler may be installed here.
        clean_leftovers(&AtomicBool::new(false), &|line| output::say(line));
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(Failure::usage("name a program after --"));
        };
        let mut command = Command::new(program);
        command.args(arguments);
        if self.json {
            let error =
                std::io::stderr().as_fd().try_clone_to_owned().context("cannot copy standard error")?;
            command.stdout(Stdio::from(error));
        }
        let journal = Journal::open(&journal_dir())?;
        let guardian = start_guardian("tune", &journal)?;
        let record = Record::new(assignments, "until its command ends".to_owned())?;
        let changes = Changes::make(&journal, assignments)?;
        record.write()?;
        let begun = Instant::now();
        let code = sys::child::run_in_foreground(command, None);
        let ended = changes.restore();
        record.remove();
        drop((guardian, journal));
        let code = code?;
        if self.json {
            self.print_document(&ended, begun.elapsed().as_secs_f64(), Some(code))?;
        } else {
            // Standard output is the command's.
            ended.iter().for_each(|one| output::say(&one.text()));
        }
        check_restored(&ended)?;
        std::process::exit(code);
    }

    fn present(&self, ended: &[Ended], held: Duration) -> Result<(), Failure> {
        if self.json {
            return self.print_document(ended, held.as_secs_f64(), None).map(drop);
        }
        let mut text: String = ended.iter().map(|one| output::shown(&one.text()) + "\n").collect();
        text += &format!("Set for {}.\n", quantity(Some(held.as_secs_f64()), "s"));
        output::print(&text)
    }

    fn print_document(&self, settings: &[Ended], set_for_s: f64, command_exit_code: Option<i32>) -> Outcome {
        let document = SetDocument { settings, set_for_s, command_exit_code };
        output::print(&Document::new(&document).text()?)?;
        Ok(Code::Measured)
    }
}

/// Errors: a setting is not restored.
fn check_restored(ended: &[Ended]) -> Result<(), Failure> {
    match ended.iter().filter(|one| one.outcome == State::NotRestored).count() {
        0 => Ok(()),
        count => Err(Failure::runtime(format!(
            "{count} settings were not restored; fix the cause and run 'kagiri tune undo'"
        ))),
    }
}

/// Assignments as words of a shell; `is_before`: to the values before.
fn words(ended: &[Ended], is_before: bool) -> String {
    let word = |one: &Ended| assignment(one.name, if is_before { &one.before } else { &one.value });
    ended.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn exported(form: Export, assignments: &[Assignment]) -> String {
    let pairs: Vec<(&str, &str)> =
        assignments.iter().map(|one| (one.setting.name, one.value.as_str())).collect();
    match form {
        Export::SysctlD => {
            sysctl_d(&pairs, "Settings chosen with 'kagiri tune'. sysctl --system reads this file.")
        }
        Export::Commands => commands(&pairs),
    }
}
