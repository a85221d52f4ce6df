//! The command line. Each command's own flags are in its file.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser};

use crate::commands::Command;
use crate::remote::{self, ConsoleArgs};

/// Find how much load a networked or storage system carries within its deadlines, and what limits it
#[derive(Parser)]
#[command(name = "kagiri", version, max_term_width = 100, propagate_version = true)]
#[command(after_help = "Examples:\n  \
    kagiri survey                          start here: capacity of this machine\n  \
    kagiri stream http://nas:8080/film.ts  find how many streams a server carries\n  \
    kagiri report                          write the report of the last run here\n  \
    kagiri run plan.toml --console https://nas   measure there, answer here\n\n\
    Rates, sizes and times have units: 25Mbit/s, 250kB, 128KiB, 500ms. A bare time is in seconds.\n\
    Exit codes: 0 done, 1 failed, 2 wrong input (option, file, host or run name), 3 a --require does not \
    hold, 130 interrupted.\n\
    Results are stored in $KAGIRI_DATA [default: $XDG_DATA_HOME/kagiri, else ~/.local/share/kagiri].")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub console: ConsoleArgs,
}

/// The whole command line, as help, completions and manual pages show it.
pub fn definition() -> clap::Command {
    remote::with_options_where_they_work(Cli::command())
}

/// Reads the command line.
pub fn parse() -> Result<Cli, clap::Error> {
    let matches = definition().try_get_matches()?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut definition()))
}

/// Whether the command line may end with a program and its arguments.
fn takes_a_command() -> bool {
    let all = definition();
    let mut command = &all;
    for word in std::env::args().skip(1) {
        let Some(named) = command.find_subcommand(&word) else { break };
        command = named;
    }
    command.get_arguments().any(|arg| arg.is_last_set() || arg.is_trailing_var_arg_set())
}

/// The error with the flag that help shows, where clap suggests a hidden alias of it; without clap's usage,
/// in which optional flags seem to be required.
pub fn with_visible_flag(mut error: clap::Error) -> clap::Error {
    if error.kind() == ErrorKind::UnknownArgument {
        error.remove(ContextKind::Usage);
        if !takes_a_command() {
            // How to pass it as a value: no value begins with a dash.
            error.remove(ContextKind::Suggested);
        }
    }
    let Some(ContextValue::String(suggested)) = error.get(ContextKind::SuggestedArg) else { return error };
    let (alias, subcommand) =
        (suggested.trim_start_matches('-'), std::env::args().nth(1).unwrap_or_default());
    let visible = Cli::command().find_subcommand(subcommand).and_then(|command| {
        let is_meant = |arg: &&clap::Arg| arg.get_all_aliases().is_some_and(|all| all.contains(&alias));
        Some(format!("--{}", command.get_arguments().find(is_meant)?.get_long()?))
    });
    if let Some(visible) = visible {
        error.insert(ContextKind::SuggestedArg, ContextValue::String(visible));
    }
    error
}
