//! Where a server of a command listens, and whose connections it accepts.

use std::net::{IpAddr, SocketAddr};

use clap::Args;
use ipnet::IpNet;

use crate::exit::Failure;
use crate::hosts::net;

/// Options beside `--serve`.
#[derive(Args)]
#[command(next_help_heading = "Server")]
pub struct AdmissionArgs {
    /// Accept clients only from this network, e.g. 10.0.0.0/24; repeatable
    #[arg(long, value_name = "NET", requires = "serve", value_parser = net)]
    allow: Vec<IpNet>,
    /// Accept clients from any address, without authentication
    #[arg(long, requires = "serve", conflicts_with = "allow")]
    open: bool,
}

impl AdmissionArgs {
    /// The networks whose clients are accepted; `None`: all.
    pub fn admitted(&self) -> Option<Vec<IpNet>> {
        (!self.allow.is_empty()).then(|| self.allow.clone())
    }

    /// Where to listen: at `listen`, an address with or without a port, or else on loopback. `misuse` says
    /// what any host could make this one do.
    /// Errors: no address, or clients of other hosts and neither option.
    pub fn address(&self, listen: Option<&str>, port: u16, misuse: &str) -> Result<SocketAddr, Failure> {
        let listen = listen.map_or_else(|| Ok(([127, 0, 0, 1], port).into()), |text| parsed(text, port))?;
        if !listen.ip().is_loopback() && self.allow.is_empty() && !self.open {
            return Err(Failure::usage(format!(
                "--listen {listen}: any host could make this host {misuse}; restrict clients with --allow \
                 10.0.0.0/24, or accept all with --open"
            )));
        }
        Ok(listen)
    }
}

fn parsed(text: &str, port: u16) -> Result<SocketAddr, Failure> {
    let bare = || text.parse().map(|ip: IpAddr| SocketAddr::new(ip, port));
    text.parse().or_else(|_| bare()).map_err(|_| {
        Failure::usage(format!(
            "--listen {text}: with --serve write an address of this host, such as 10.0.0.2:{port}"
        ))
    })
}
