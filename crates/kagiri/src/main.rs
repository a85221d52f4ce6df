//! The `kagiri` program: reads the command line and the environment, runs a command, prints.

mod admission;
mod args;
mod atomic_file;
mod cli;
mod commands;
mod dirs;
mod estimate;
mod exit;
mod file_progress;
mod guardian;
mod host_facts;
mod hosts;
mod interval_lines;
mod json_document;
mod json_lines;
mod lab_for_run;
mod leftovers;
mod output;
mod pictures;
mod placement_check;
mod policies;
mod process_records;
mod progress;
mod remote;
mod resume;
mod session;
mod stop;
mod tunings;

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match cli::parse() {
        Ok(cli) => cli,
        Err(error) => return print_usage(&cli::with_visible_flag(error)),
    };
    run::registry::BUILT_IN.register_resources();
    let console = cli.console.check().and_then(|()| cli.console.drop_overridden());
    let done = console.and_then(|()| match cli.console.address() {
        None => cli.command.run(cli::definition),
        Some(_) => cli.command.run_on(&cli.console, cli::definition),
    });
    match done {
        Ok(code) => code.into(),
        Err(failure) => {
            output::error_line(&failure.to_string());
            failure.code().into()
        }
    }
}

/// Prints clap's message: help and version on standard output, everything else as a usage error.
fn print_usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        match error.render().to_string().strip_prefix("error: ") {
            Some(text) => output::error_line(text),
            // The help, where a subcommand is missing. There is nowhere to report that the terminal is gone.
            None => drop(error.print()),
        }
        return exit::Code::Usage.into();
    }
    match error.print().and_then(|()| std::io::stdout().flush()) {
        Err(full) if full.kind() != ErrorKind::BrokenPipe => {
            output::error_line(&format!("cannot write to standard output: {full}"));
            exit::Code::Failed.into()
        }
        _ => ExitCode::SUCCESS,
    }
}
