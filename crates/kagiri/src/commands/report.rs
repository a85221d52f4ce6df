//! `kagiri report`: writes the HTML report of a stored run.

use std::path::PathBuf;

use clap::Args;

use web::client::Client;

use crate::atomic_file::write_atomically;
use crate::exit::{Code, Failure, Outcome};
use crate::remote::{failure, id_among};
use crate::{dirs, output};

/// Write the HTML report of a stored run.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    kagiri report                        the last run, to ./RUN.html\n  \
    kagiri report last~1 -o before.html  the run before it\n\n\
    The page is self-contained: it can be mailed and read offline.")]
pub struct Report {
    /// Run id or its prefix, 'last', 'last~1' (the run before), or an exported file
    #[arg(value_name = "RUN", default_value = "last")]
    run: String,
    /// Output file, '-' for standard output [default: RUN.html in this directory]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Report {
    pub fn run(self) -> Outcome {
        let store = dirs::open_store_to_read()?;
        let run = dirs::find_run(&store, &self.run)?;
        let page = output::report_page_of_survey(&run, &store);
        let page = page.unwrap_or_else(|| output::report_page(&run));
        self.write(&run.run, &page)
    }

    /// Writes the report that a console makes of its run.
    pub fn run_on(self, console: &Client) -> Outcome {
        let runs = console.runs().map_err(failure)?;
        let id = id_among(console, &runs, &self.run)?;
        let page = console.report(&id).map_err(failure)?;
        self.write(&id, &String::from_utf8_lossy(&page))
    }

    fn write(self, run: &str, page: &str) -> Outcome {
        let path = self.output.unwrap_or_else(|| PathBuf::from(format!("{run}.html")));
        if path.as_os_str() == "-" {
            output::print(page)?;
        } else {
            write_atomically(&path, page.as_bytes()).map_err(Failure::of_named)?;
            // Absolute, for users in other directories.
            let path = std::path::absolute(&path).unwrap_or(path);
            output::print(&format!("{}\n", path.display()))?;
        }
        Ok(Code::Measured)
    }
}
