//! `kagiri lab disk`: the process of a modelled disk, started by a lab's supervisor.

use anyhow::Context;
use clap::Args;
use lab::disk::Service;
use sys::stop::StopSignal;

use crate::exit::{Code, Failure, Outcome};

/// Serve a modelled disk.
#[derive(Args)]
pub struct Disk {
    /// Disk to serve, as JSON
    #[arg(value_name = "SERVICE")]
    service: String,
}

impl Disk {
    pub(super) fn run(self) -> Outcome {
        let service: Service = serde_json::from_str(&self.service)
            .map_err(|error| Failure::usage(format!("SERVICE: {error}")))?;
        let stop = StopSignal::install().context("cannot handle Ctrl-C")?;
        lab::disk::serve(&service, stop, || {
            // This process ends with its supervisor.
            let _ = super::say(Service::READY);
        })?;
        Ok(Code::Measured)
    }
}
