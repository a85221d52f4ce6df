//! Commands on the console of another host (`--console`): the console measures and stores, and this program
//! follows, reads and prints, by the same code as for runs of this host.

mod follow;
mod run;
mod source;

use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Arg, Args, Command};
use web::client::{Access, Client, ClientError, read_token, without_secrets};

pub use self::run::{resume_run, run_plan};
pub use self::source::{Source, id_among};
use crate::exit::Failure;
use crate::output;

const CONSOLE: &str = "KAGIRI_CONSOLE";
const TOKEN: &str = "KAGIRI_TOKEN";
const TOKEN_FILE: &str = "KAGIRI_TOKEN_FILE";
const AUTHORITIES: &str = "KAGIRI_CONSOLE_CA";
/// The commands that a console can do.
const POSSIBLE: [&str; 9] = [
    "run",
    "runs list",
    "runs show",
    "runs compare",
    "runs export",
    "report",
    "qos status",
    "tune advise",
    "tune list",
];

/// Which console does the command, and how it is reached.
#[derive(Args)]
#[command(next_help_heading = "Console of another host")]
pub struct ConsoleArgs {
    #[arg(long, value_name = "URL", global = true, hide_short_help = true, help = help())]
    console: Option<String>,
    /// File with the console's token [default: $KAGIRI_TOKEN_FILE, or the token itself in $KAGIRI_TOKEN]
    #[arg(long, value_name = "FILE", global = true, hide_short_help = true)]
    console_token: Option<PathBuf>,
    /// Certificates (PEM) to trust beside those of the system, for https [default: $KAGIRI_CONSOLE_CA]
    #[arg(long, value_name = "FILE", global = true, hide_short_help = true)]
    console_ca: Option<PathBuf>,
}

fn help() -> String {
    format!(
        "Let the console ('kagiri serve') at this address do it: {} [default: $KAGIRI_CONSOLE; '': none]",
        POSSIBLE.join(", ")
    )
}

/// The command line whose help shows the options of a console only where a console does the command. They
/// are accepted elsewhere, too: the error names what a console does.
pub fn with_options_where_they_work(program: Command) -> Command {
    with_options_below(program, "")
}

/// `path`: the words of the command.
fn with_options_below(command: Command, path: &str) -> Command {
    command.mut_subcommands(|inner| {
        let words = format!("{path} {}", inner.get_name()).trim_start().to_owned();
        let is_possible = POSSIBLE.contains(&words.as_str());
        let is_group = POSSIBLE.iter().any(|possible| possible.starts_with(&format!("{words} ")));
        match (is_possible, is_group) {
            (true, _) => inner,
            (false, true) => with_options_below(inner, &words),
            // In the place of those of the program; also in the commands of a group.
            (false, false) => inner.args(hidden_options()),
        }
    })
}

fn hidden_options() -> Vec<Arg> {
    let own = ConsoleArgs::augment_args(Command::new(""));
    own.get_arguments().map(|option| option.clone().hide(true)).collect()
}

impl ConsoleArgs {
    /// The console's address; `None`: the command is for this host.
    pub fn address(&self) -> Option<String> {
        self.console.clone().or_else(|| set(CONSOLE)).filter(|address| !address.is_empty())
    }

    /// Starts this program anew without the variable that `--console ''` overrides: the commands that it
    /// starts are for this host, too.
    /// Errors: it cannot be started.
    pub fn drop_overridden(&self) -> Result<(), Failure> {
        if self.address().is_some() || set(CONSOLE).is_none() {
            return Ok(());
        }
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let mut anew = std::process::Command::new(program);
        let error = anew.args(std::env::args_os().skip(1)).env_remove(CONSOLE).exec();
        Err(Failure::runtime(format!("cannot start this program without {CONSOLE}: {error}; unset it")))
    }

    /// Errors: options of a console without its address.
    pub fn check(&self) -> Result<(), Failure> {
        match self.address().is_none() && (self.console_token.is_some() || self.console_ca.is_some()) {
            true => Err(Failure::usage("--console-token and --console-ca need a console; add --console URL")),
            false => Ok(()),
        }
    }

    /// Reaches the console.
    /// Errors: see [`Client::connect`]; also when there is no token.
    pub fn connect(&self) -> Result<Client, Failure> {
        let address = self.address().unwrap_or_default();
        let file = self.console_token.clone().or_else(|| set(TOKEN_FILE).map(PathBuf::from));
        let token = match (&self.console_token, set(TOKEN), &file) {
            (None, Some(token), _) => token,
            (_, _, Some(file)) => read_token(file).map_err(failure)?,
            (_, _, None) => {
                return Err(Failure::usage(format!(
                    "a console needs its token: set {TOKEN}, or name a file with --console-token; 'kagiri \
                     serve' keeps it in console/token of its results"
                )));
            }
        };
        let authorities = self.console_ca.clone().or_else(|| set(AUTHORITIES).map(PathBuf::from));
        let access = Access::new(&address, &token, authorities.as_deref()).map_err(failure)?;
        let client = Client::connect(access).map_err(failure)?;
        let (its, own) = (&client.facts().version, env!("CARGO_PKG_VERSION"));
        if its != own {
            let address = client.address();
            output::say(&format!("note: console {address} runs kagiri {its}, this is kagiri {own}"));
        }
        Ok(client)
    }

    /// The error of a command that no console does.
    pub fn refusal(&self) -> Failure {
        refusal(&self.address().unwrap_or_default(), "this command")
    }
}

/// The error of something that the console at `address` does not do, so that it is not done here instead.
pub fn refusal(address: &str, what: &str) -> Failure {
    Failure::usage(format!(
        "{what} does not work on console {}, only here: leave --console and {CONSOLE} away (a console does: \
         {})",
        without_secrets(address),
        POSSIBLE.join(", ")
    ))
}

/// The value of a variable of the environment, if it has one.
fn set(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

pub fn failure(error: ClientError) -> Failure {
    match error.is_usage() {
        true => Failure::usage(error),
        false => Failure::runtime(error),
    }
}

/// How commands begin that the same console does.
pub fn command_of(client: &Client) -> String {
    format!("kagiri --console {}", client.address())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown_below(command: &Command, path: &str, shown: &mut Vec<String>) {
        for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
            let words = format!("{path} {}", inner.get_name()).trim_start().to_owned();
            let is_group = inner.get_subcommands().next().is_some();
            let is_shown = |option: &Arg| option.get_id() == "console" && !option.is_hide_set();
            if !is_group && inner.get_arguments().any(is_shown) {
                shown.push(words.clone());
            }
            shown_below(inner, &words, shown);
        }
    }

    #[test]
    fn options_are_shown_exactly_where_a_console_does_the_command() {
        let mut program = crate::cli::definition();
        program.build();
        let mut shown = Vec::new();
        shown_below(&program, "", &mut shown);
        let mut possible = POSSIBLE.map(str::to_owned).to_vec();
        shown.sort();
        possible.sort();
        assert_eq!(shown, possible);
    }
}
