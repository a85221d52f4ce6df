//! Where stored runs are read: on this host, or on a console.

use std::path::Path;

use anyhow::Context;
use base::outcome::Run;
use run::recover::complete_summary;
use run::registry::BUILT_IN;
use store::{Filter, RunSummary, Store};
use web::client::Client;

use super::{command_of, failure};
use crate::dirs;
use crate::exit::Failure;

pub enum Source<'a> {
    Here(Store),
    Console(&'a Client),
}

impl Source<'_> {
    /// The runs of this host; where there are none, no folder is made.
    pub fn here() -> Result<Self, Failure> {
        Ok(Source::Here(dirs::open_store_to_read()?))
    }

    /// The run that is meant by `name`: an id, its beginning, `last`, `last~1`, or an exported file, which is
    /// one of this host in any case.
    pub fn find(&self, name: &str) -> Result<Run, Failure> {
        match self {
            Self::Here(store) => Ok(dirs::find_run(store, name)?),
            Self::Console(client) => {
                let runs = client.runs().map_err(failure)?;
                let is_id = runs.iter().any(|run| run.run == name);
                if !is_id && Path::new(name).is_file() {
                    return Ok(store::read_export_file(Path::new(name))?);
                }
                client.run(&id_among(client, &runs, name)?).map_err(failure)
            }
        }
    }

    /// All stored runs with their results, newest first.
    pub fn summaries(&self) -> Result<Vec<RunSummary>, Failure> {
        match self {
            Self::Here(store) => {
                let mut all = store.list(&Filter::default())?;
                all.iter_mut().try_for_each(|run| complete_summary(store, run, &BUILT_IN))?;
                Ok(all)
            }
            Self::Console(client) => client.runs().map_err(failure),
        }
    }

    /// Whether `name` means a stored run, not a file.
    pub fn has_stored(&self, name: &str) -> bool {
        match self {
            Self::Here(store) => store.resolve_id(name).is_ok(),
            Self::Console(client) => {
                client.runs().is_ok_and(|runs| store::resolve_among(&runs, name).is_ok())
            }
        }
    }

    /// The place of the runs, in words.
    pub fn place(&self) -> Result<String, Failure> {
        Ok(match self {
            Self::Here(_) => format!("in {}", dirs::data_dir()?.display()),
            Self::Console(client) => format!("on console {}", client.address()),
        })
    }

    /// How commands begin that read the same runs.
    pub fn command(&self) -> String {
        match self {
            Self::Here(_) => "kagiri".to_owned(),
            Self::Console(client) => command_of(client),
        }
    }
}

/// The id of the console's run that is meant by `name`.
pub fn id_among(client: &Client, runs: &[RunSummary], name: &str) -> Result<String, Failure> {
    let found = store::resolve_among(runs, name);
    Ok(found.with_context(|| format!("console {}", client.address()))?)
}
