//! `kagiri completions` and `kagiri man`: made from the command line's own definition.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, CommandFactory};

use crate::cli::Cli;
use crate::exit::{Code, Failure, Outcome};
use crate::output;

/// Print a shell's completion script.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    kagiri completions bash > ~/.local/share/bash-completion/completions/kagiri\n  \
    kagiri completions fish > ~/.config/fish/completions/kagiri.fish\n  \
    source <(kagiri completions zsh)               for this zsh alone")]
pub struct Completions {
    /// Which shell
    shell: clap_complete::Shell,
}

impl Completions {
    /// Print it.
    pub fn perform(self) -> Outcome {
        // Not straight to standard output: the generator panics when its reader goes away.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "kagiri", &mut script);
        output::print(&String::from_utf8_lossy(&script));
        Ok(Code::Measured)
    }
}

/// Print the manual page, or write those of all verbs.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    kagiri man | man -l -                         read the page on kagiri itself\n  \
    kagiri man --out ~/.local/share/man/man1      then: man kagiri-stream")]
pub struct Man {
    /// Write one page per verb into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Man {
    /// Print or write them.
    pub fn perform(self) -> Outcome {
        match self.out {
            Some(dir) => {
                std::fs::create_dir_all(&dir)
                    .with_context(|| format!("cannot make {}", dir.display()))
                    .map_err(Failure::of_named)?;
                clap_mangen::generate_to(Cli::command(), &dir)
                    .with_context(|| format!("cannot write the manual pages into {}", dir.display()))?;
            }
            None => {
                let mut page = Vec::new();
                clap_mangen::Man::new(Cli::command()).render(&mut page)?;
                output::print(&String::from_utf8_lossy(&page));
            }
        }
        Ok(Code::Measured)
    }
}
