//! `kagiri lab disk`: the process behind a modelled disk, which a keeper starts.

use anyhow::Context;
use clap::Args;
use lab::disk::Service;
use sys::stop::StopSignal;

use crate::exit::{Code, Failure, Outcome};

/// Serve a disk that takes its time.
#[derive(Args)]
pub struct Disk {
    /// What to serve, as JSON
    #[arg(value_name = "SERVICE")]
    service: String,
}

impl Disk {
    pub(super) fn perform(self) -> Outcome {
        let service: Service = serde_json::from_str(&self.service)
            .map_err(|error| Failure::usage(format!("SERVICE: {error}")))?;
        let stop = StopSignal::install().context("cannot take over Ctrl-C")?;
        lab::disk::serve(&service, stop, || {
            // A keeper that is gone takes this process with it.
            let _ = super::say(Service::READY);
        })?;
        Ok(Code::Measured)
    }
}
