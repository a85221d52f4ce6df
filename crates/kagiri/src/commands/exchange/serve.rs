//! `kagiri exchange --serve`: the end that replies to messages.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use exchange::server::{Server, ServerSettings};
use exchange::settings::PORT;

use crate::admission::AdmissionArgs;
use crate::args::SETTINGS;
use crate::exit::{Code, Outcome};
use crate::{output, stop};

/// Arguments of clients, beside the settings.
const OF_CLIENTS: [&str; 8] = [SETTINGS, "header", "place", "out", "json_lines", "require", "repeat", "seed"];
const LOOK: Duration = Duration::from_millis(100);

/// The server's own options.
#[derive(Args)]
#[command(next_help_heading = "Server")]
pub struct ServeArgs {
    /// Reply to messages at --listen until Ctrl-C
    #[arg(long, conflicts_with_all = OF_CLIENTS)]
    serve: bool,
    #[command(flatten)]
    admission: AdmissionArgs,
}

impl ServeArgs {
    pub fn is_wanted(&self) -> bool {
        self.serve
    }

    /// Serves until Ctrl-C.
    pub fn run(&self, listen: Option<&str>, is_quiet: bool) -> Outcome {
        let listen = self.admission.address(listen, PORT, "send replies of any size")?;
        let stop = stop::stop_flag()?;
        let settings = ServerSettings { admitted: self.admission.admitted(), ..ServerSettings::new(listen) };
        let server = Server::start(&settings).with_context(|| format!("cannot serve at {listen}"))?;
        if !is_quiet {
            let at = server.local_addr();
            output::say(&format!("kagiri exchange replies to messages at {at}; Ctrl-C stops it"));
        }
        while !stop.load(Ordering::Relaxed) && !server.has_failed() {
            std::thread::sleep(LOOK);
        }
        let report = server.stop().context("the server failed")?;
        if !is_quiet {
            let bytes = base::format::quantity(Some(report.received_bytes as f64), "B");
            output::say(&format!("{} of {bytes} in all", base::format::plural(report.messages, "message")));
        }
        Ok(Code::Measured)
    }
}
