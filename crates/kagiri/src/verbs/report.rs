//! `kagiri report`: the HTML report of a stored run, made again.

use std::path::PathBuf;

use clap::Args;

use crate::exit::{Code, Failure, Outcome};
use crate::whole::write_whole;
use crate::{measure, output};

/// Write the HTML report of a stored run.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    kagiri report                        the last run, into RUN.html here\n  \
    kagiri report last~1 -o before.html  the run before it\n\n\
    The page holds everything it shows: it can be mailed, and read offline.")]
pub struct Report {
    /// A run's id (or its beginning), 'last', 'last~1', or an exported file
    #[arg(value_name = "RUN", default_value = "last")]
    run: String,
    /// Where to write it; RUN.html in this directory unless given, '-' for standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Report {
    /// Write it.
    pub fn perform(self) -> Outcome {
        let run = measure::open_store()?.resolve(&self.run)?;
        let page = output::report_page(&run);
        let path = self.output.unwrap_or_else(|| PathBuf::from(format!("{}.html", run.run)));
        if path.as_os_str() == "-" {
            output::print(&page);
        } else {
            write_whole(&path, page.as_bytes()).map_err(Failure::of_named)?;
            // Whole, so that it is found from anywhere.
            let path = std::path::absolute(&path).unwrap_or(path);
            output::print(&format!("{}\n", path.display()));
        }
        Ok(Code::Measured)
    }
}
