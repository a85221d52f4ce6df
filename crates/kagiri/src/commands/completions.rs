//! `kagiri completions` and `kagiri man`, generated from the definition of the command line.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Command};

use crate::exit::{Code, Failure, Outcome};
use crate::output;

/// Print a shell completion script.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    kagiri completions bash > ~/.local/share/bash-completion/completions/kagiri\n  \
    kagiri completions fish > ~/.config/fish/completions/kagiri.fish\n  \
    source <(kagiri completions zsh)               for this shell only")]
pub struct Completions {
    /// Shell whose script to print
    shell: clap_complete::Shell,
}

impl Completions {
    pub fn run(self, mut definition: Command) -> Outcome {
        // Through a buffer, because the generator panics when standard output is closed.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut definition, "kagiri", &mut script);
        output::print(&String::from_utf8_lossy(&script))?;
        Ok(Code::Measured)
    }
}

/// Print the manual page, or write the pages of all commands.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    kagiri man | man -l -                         read the page of kagiri\n  \
    kagiri man --out ~/.local/share/man/man1      then: man kagiri-stream")]
pub struct Man {
    /// Write one page per command into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Man {
    pub fn run(self, definition: Command) -> Outcome {
        match self.out {
            Some(dir) => {
                std::fs::create_dir_all(&dir)
                    .with_context(|| format!("cannot make {}", dir.display()))
                    .map_err(Failure::of_named)?;
                clap_mangen::generate_to(definition, &dir)
                    .with_context(|| format!("cannot write the manual pages into {}", dir.display()))?;
            }
            None => {
                let mut page = Vec::new();
                clap_mangen::Man::new(definition).render(&mut page)?;
                output::print(&String::from_utf8_lossy(&page))?;
            }
        }
        Ok(Code::Measured)
    }
}
