//! `kagiri qos guard` and `kagiri tune guard`: the second process of `qos run` and of `tune set`.

use std::path::PathBuf;

use clap::Args;

use crate::exit::{Code, Outcome};
use crate::output;

/// Undo the changes of a process when it is killed.
#[derive(Args)]
pub struct Guard {
    /// Journal of that process
    #[arg(value_name = "JOURNAL")]
    journal: PathBuf,
}

impl Guard {
    pub fn run(self) -> Outcome {
        let report = sys::shaping::guard(&self.journal)?;
        for left in report.results.iter().filter(|result| !result.outcome.is_settled()) {
            output::say(&left.to_string());
        }
        Ok(Code::Measured)
    }
}
