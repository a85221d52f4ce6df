//! The command line. Each command's own flags are in its file.

use clap::Parser;

use crate::commands::Command;

/// Find how much load a networked or storage system carries within its deadlines, and what limits it
#[derive(Parser)]
#[command(name = "kagiri", version, max_term_width = 100, propagate_version = true)]
#[command(after_help = "Examples:\n  \
    kagiri survey                          start here: measure this machine\n  \
    kagiri stream http://nas:8080/film.ts  find how many viewers a server carries\n  \
    kagiri report                          write the report of the last run again\n\n\
    Every quantity needs a unit: 25Mbit/s, 250kB, 128KiB, 500ms.\n\
    Exit codes: 0 measured, 1 not measured, 2 usage or plan error, 3 a --require does not hold, 130 interrupted.\n\
    Results are stored in $KAGIRI_DATA [default: ~/.local/share/kagiri].")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}
