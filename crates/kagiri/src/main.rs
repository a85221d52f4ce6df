//! Floor 5: the program. Reads the command line and the environment, calls the rooms below, prints.

mod cli;
mod document;
mod estimate;
mod exit;
mod filework;
mod hosts;
mod measure;
mod output;
mod progress;
mod verbs;
mod whole;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let command = match cli::Cli::try_parse() {
        Ok(cli) => cli.verb,
        Err(error) => {
            // Help and version are answers; everything else is a usage error.
            let _ = error.print();
            return if error.use_stderr() { exit::Code::Usage.into() } else { ExitCode::SUCCESS };
        }
    };
    match verbs::perform(command) {
        Ok(code) => code.into(),
        Err(failure) => {
            output::error_line(&failure.to_string());
            failure.code().into()
        }
    }
}
