//! `kagiri transfer`: how fast do bytes move?

mod serve;

use base::part::HERE;
use base::placement::Wishes;
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
    kagiri transfer nas --rr                     response times\n  \
    kagiri transfer nas --under-load -P 4        response times beside four flows\n  \
    kagiri transfer nas -P 4 -t 10 -i 1 -b 1G    as iperf3 is called\n\n\
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
    #[arg(long, short, value_name = "PORT", hide_short_help = true)]
    port: Option<u16>,
    /// Same as HOST, as iperf3 is called
    #[arg(short = 'c', value_name = "HOST", conflicts_with = "host", hide = true)]
    client: Option<String>,
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
        if let Some(host) = self.client.take() {
            self.settings.set("host", json!(host));
        }
        let host = self.settings.get("host").and_then(Value::as_str).map(str::to_owned);
        let name = run_name(host.as_deref(), &self.session.placed()?);
        match (host, self.port) {
            (Some(host), Some(port)) => self.settings.set("host", json!(with_port(&host, port)?)),
            (None, Some(port)) => {
                return Err(Failure::usage(format!("--port {port}: give the server's HOST as well")));
            }
            (_, None) => {}
        }
        let plan = self.settings.plan("transfer", format!("transfer: {name}"), &name)?;
        self.session.common.interval =
            self.settings.get("interval").and_then(Value::as_str).and_then(|text| text.parse().ok());
        self.calls.draw(&plan.name.clone(), self.session.common.quiet, || self.session.measure(plan))
    }
}

/// Between which hosts bytes move: `pc-[1-8] to nas`; of a single host its name alone.
fn run_name(host: Option<&str>, placed: &Wishes) -> String {
    let of_role = |role: &str| placed.get(role).map(|wish| wish.hosts.as_str());
    match (of_role(transfer::CLIENTS), host.or(of_role(transfer::SERVER))) {
        (None, None) => "loopback".to_owned(),
        (None, Some(host)) if placed.is_empty() => host.to_owned(),
        (clients, server) => format!("{} to {}", clients.unwrap_or(HERE), server.unwrap_or(HERE)),
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

#[cfg(test)]
mod tests {
    use base::placement::Wish;

    use super::*;

    #[test]
    fn run_is_named_after_its_hosts() {
        let placed = |roles: &[(&str, &str)]| -> Wishes {
            let wish = |hosts: &str| Wish { hosts: hosts.to_owned(), count: None, at_least: None };
            roles.iter().map(|(role, hosts)| ((*role).to_owned(), wish(hosts))).collect()
        };
        for (host, roles, name) in [
            (None, &[][..], "loopback"),
            (Some("nas"), &[], "nas"),
            (None, &[("clients", "a"), ("server", "b")], "a to b"),
            (None, &[("server", "b")], "here to b"),
            (Some("10.0.0.2"), &[("clients", "pc-[1-8]")], "pc-[1-8] to 10.0.0.2"),
        ] {
            assert_eq!(run_name(host, &placed(roles)), name);
        }
    }
}
