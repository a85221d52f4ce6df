//! `kagiri transfer`: how fast do bytes move?

mod serve;

use clap::Args;
use serde_json::{Value, json};
use transfer::settings::TransferSettings;

use crate::args::{WorkloadArgs, require_help};
use crate::exit::{Failure, Outcome};
use crate::hosts::{listen_help, place_help};
use crate::pictures::CallArgs;
use crate::session::SessionArgs;
use serve::ServeArgs;

/// Measure throughput and response time between two hosts, and find what limits them.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    kagiri transfer                              both ends on this machine\n  \
    kagiri transfer --serve --listen 10.0.0.2:5201 --allow 10.0.0.0/24\n  \
    kagiri transfer 10.0.0.2 --direction both    to kagiri or iperf3\n  \
    kagiri transfer nas --protocol udp --search  the highest rate without loss\n  \
    kagiri transfer nas --rr                     response times\n\n\
    Goodput: received payload divided by the time it took.")]
#[command(mut_arg("place", place_help("transfer")))]
#[command(mut_arg("require", require_help("'goodput>=9Gbit/s' or 'response_p99<=50us'")))]
#[command(mut_arg(
    "listen",
    listen_help("With --serve: ADDRESS:PORT for clients [default: 127.0.0.1:5201]")
))]
pub struct TransferArgs {
    #[command(flatten)]
    settings: WorkloadArgs<TransferSettings>,
    /// Port of the server, instead of HOST:PORT
    #[arg(long, short, value_name = "PORT", requires = "host", hide_short_help = true)]
    port: Option<u16>,
    #[command(flatten)]
    calls: CallArgs,
    #[command(flatten)]
    serve: ServeArgs,
    #[command(flatten)]
    session: SessionArgs,
}

impl TransferArgs {
    /// Serves, or measures.
    pub fn run(mut self: Box<Self>) -> Outcome {
        if self.serve.is_wanted() {
            let SessionArgs { hosts, common, .. } = &self.session;
            return self.serve.run(hosts.listen.as_deref(), common.json, common.quiet);
        }
        self.calls.want(&mut self.settings);
        let host = self.settings.get("host").and_then(Value::as_str).map(str::to_owned);
        let name = host.clone().unwrap_or_else(|| "loopback".to_owned());
        if let (Some(host), Some(port)) = (host, self.port) {
            self.settings.set("host", json!(with_port(&host, port)?));
        }
        let plan = self.settings.plan("transfer", format!("transfer: {name}"), &name)?;
        self.calls.draw(&plan.name.clone(), self.session.common.quiet, || self.session.measure(plan))
    }
}

/// `HOST:PORT`; an IPv6 address gets brackets.
fn with_port(host: &str, port: u16) -> Result<String, Failure> {
    match host.parse::<std::net::Ipv6Addr>() {
        Ok(address) => Ok(format!("[{address}]:{port}")),
        Err(_) if host.contains(':') => {
            Err(Failure::usage(format!("--port {port}: {host} has a port already; leave one out")))
        }
        Err(_) => Ok(format!("{host}:{port}")),
    }
}
