//! `kagiri plan`: the settings of plan files.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use run::registry::BUILT_IN;

use crate::exit::{Code, Failure, Outcome};
use crate::output;

/// Print what a plan file can set.
#[derive(Subcommand)]
#[command(after_help = "Examples:\n  \
    kagiri plan schema stream\n  \
    kagiri plan schema daq --markdown")]
pub enum PlanCommand {
    /// Print the JSON schema of a workload's settings
    Schema(SchemaArgs),
}

/// Print the JSON schema of a workload's settings.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    kagiri plan schema stream > stream.schema.json\n  \
    kagiri plan schema daq --markdown   the reference page")]
pub struct SchemaArgs {
    /// Workload whose settings to print
    #[arg(value_name = "WORKLOAD", value_parser = names())]
    workload: String,
    /// Print the reference page as Markdown instead
    #[arg(long)]
    markdown: bool,
}

impl PlanCommand {
    pub fn run(self) -> Outcome {
        let Self::Schema(args) = self;
        let workload = BUILT_IN.workload(&args.workload).map_err(Failure::usage)?;
        output::print(&match args.markdown {
            true => workload.settings_page(),
            false => serde_json::to_string_pretty(&workload.schema())? + "\n",
        })?;
        Ok(Code::Measured)
    }
}

fn names() -> PossibleValuesParser {
    BUILT_IN.workloads().iter().map(|workload| workload.name()).into()
}
