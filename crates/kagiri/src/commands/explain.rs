//! `kagiri explain`: what limits a system, from a stored run or a table (CSV).

use std::path::PathBuf;

use base::outcome::{Run, VariantOutcome};
use clap::Args;
use report::terminal;
use run::explain::Explanation;
use serde_json::json;

use crate::args::CEILING;
use crate::exit::{Code, Failure, Outcome};
use crate::json_document::Document;
use crate::{dirs, output};

/// Larger files are not tables of loads.
const TABLE_BYTES_MAX: u64 = 16 << 20;

/// Explain what limits a system, from a stored run or from a table of resource usage against load.
#[derive(Args)]
#[command(
    after_help = "Name a run of any workload by its id or a prefix of it, by 'last' or 'last~1' (the run \
    before), or by an exported file.\n\n\
    A table has one row per load. Name the load's column load, streams, users, vus, clients, \
    connections, threads, rps or the like, and the others 'cpu %', 'memory KB', 'disk Mbit/s', \
    'network Mbit/s', 'verdict' (pass or fail), 'errors', 'p99 ms' or 'throughput'. A table:\n  \
    streams,cpu %,disk Mbit/s\n  \
    1,13.0,26.9\n  \
    2,27.2,52.1\n  \
    3,40.6,77.5\n\n\
    Examples:\n  \
    kagiri explain last                                    the last run\n  \
    kagiri explain last --full                             with all evidence\n  \
    kagiri explain table.csv --ceiling disk=110Mbit/s\n  \
    ssh host cat table.csv | kagiri explain - --json"
)]
pub struct Explain {
    /// Table (CSV) or run; '-' for standard input
    #[arg(value_name = "TABLE.csv|RUN")]
    table: PathBuf,
    #[arg(long, value_name = "NAME=VALUE", help = CEILING)]
    ceiling: Vec<String>,
    /// Print all evidence, considerations and doubts
    #[arg(long, conflicts_with = "json")]
    full: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

fn outcome(explanation: Explanation) -> VariantOutcome {
    VariantOutcome {
        name: "table".into(),
        findings: Vec::new(),
        repetitions: vec![explanation.capacity.clone()],
        capacity: explanation.capacity,
        limit: explanation.limit,
        saturation: explanation.saturation,
        predicted: explanation.predicted,
        considerations: explanation.considerations,
        doubts: explanation.doubts,
        account: base::outcome::Account::default(),
        figures: Vec::new(),
    }
}

impl Explain {
    pub fn run(self) -> Outcome {
        let file = self.table.display();
        let ceilings = self.ceiling.iter().map(|text| run::explain::ceiling::parse(text));
        let ceilings = ceilings.collect::<Result<_, _>>().map_err(Failure::usage)?;
        if self.names_run() {
            return self.of_run(&dirs::find_run(&dirs::open_store_to_read()?, &file.to_string())?);
        }
        let bytes = self.read()?;
        if bytes.trim_ascii_start().starts_with(b"{") {
            let run = store::read_export(&bytes).map_err(|_| {
                Failure::usage(format!(
                    "{file} is JSON but no exported run; give a table (CSV), or the id of a stored run"
                ))
            })?;
            return self.of_run(&run);
        }
        let table = run::explain::csv::read(&bytes, ceilings);
        let table = table.map_err(|error| Failure::usage(format!("{file}: {error}")))?;
        let explanation = run::explain::explain(&table);
        if self.json {
            output::print(&Document::new(&explanation).text()?)?;
        } else {
            let (ignored, largest) = (explanation.ignored_columns.clone(), explanation.largest_load);
            let outcome = outcome(explanation);
            let print = if self.full { terminal::explanation } else { terminal::brief_explanation };
            output::print(&print(&outcome, largest, &ignored, output::style()))?;
        }
        Ok(Code::Measured)
    }

    /// Whether the argument names a stored run: no such file exists, and it does not look like a file name.
    fn names_run(&self) -> bool {
        let is_bare = self.table.components().count() == 1 && self.table.extension().is_none();
        is_bare && self.table.as_os_str() != "-" && !self.table.exists()
    }

    /// Prints the findings that are stored in the run.
    fn of_run(&self, run: &Run) -> Outcome {
        if !self.ceiling.is_empty() {
            return Err(Failure::usage("--ceiling is for tables; a run has its own ceilings"));
        }
        if self.json {
            let document = json!({ "run": run.run, "variants": run.variants });
            output::print(&Document::new(&document).text()?)?;
        } else {
            let print = if self.full { terminal::explained } else { terminal::brief_explained };
            output::print(&print(run, output::style()))?;
        }
        Ok(Code::Measured)
    }

    fn read(&self) -> Result<Vec<u8>, Failure> {
        use std::io::Read;
        let mut bytes = Vec::new();
        let read = if self.table.as_os_str() == "-" {
            std::io::stdin().lock().take(TABLE_BYTES_MAX + 1).read_to_end(&mut bytes)
        } else {
            std::fs::File::open(&self.table)
                .and_then(|file| file.take(TABLE_BYTES_MAX + 1).read_to_end(&mut bytes))
        };
        let file = self.table.display();
        read.map_err(|error| {
            Failure::usage(format!(
                "cannot read the table {file}: {error}; give a CSV file, or a run from 'kagiri runs list'"
            ))
        })?;
        if bytes.len() as u64 > TABLE_BYTES_MAX {
            return Err(Failure::usage(format!(
                "{file} is larger than 16 MiB, too large for a table of loads"
            )));
        }
        Ok(bytes)
    }
}
