//! `kagiri plan`: the settings that plans can have.

use clap::{Args, Subcommand};
use daq::settings::DaqSettings;
use stream::settings::StreamSettings;
use transfer::settings::TransferSettings;
use workload::settings::{Settings, page, schema};

use crate::exit::{Code, Outcome};
use crate::output;

/// Print the settings that plans can have.
#[derive(Subcommand)]
#[command(after_help = "Example:\n  kagiri plan schema stream")]
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
    /// Which workload
    #[arg(value_name = "WORKLOAD", value_parser = ["stream", "transfer", "daq"])]
    workload: String,
    /// Print the reference page as Markdown instead
    #[arg(long)]
    markdown: bool,
}

impl PlanCommand {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        let Self::Schema(args) = self;
        match args.workload.as_str() {
            "stream" => args.print::<StreamSettings>(),
            "transfer" => args.print::<TransferSettings>(),
            _ => args.print::<DaqSettings>(),
        }
    }
}

impl SchemaArgs {
    fn print<S: Settings>(&self) -> Outcome {
        output::print(&match self.markdown {
            true => page::<S>(&self.workload),
            false => serde_json::to_string_pretty(&schema::<S>())? + "\n",
        });
        Ok(Code::Measured)
    }
}
