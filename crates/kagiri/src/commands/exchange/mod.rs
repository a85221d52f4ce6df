//! `kagiri exchange`: do messages get their replies in time?

mod serve;

use base::plan::Plan;
use clap::Args;
use exchange::settings::ExchangeSettings;
use serde_json::{Value, json};

use self::serve::ServeArgs;
use crate::args::{WorkloadArgs, require_help};
use crate::exit::Outcome;
use crate::hosts::{listen_help, place_help};
use crate::session::SessionArgs;

/// Measure response times of messages against a target, beside other traffic, and what holds messages up.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    kagiri exchange --size 250kB --target 500ms     one client, both ends here\n  \
    kagiri exchange --serve --listen 10.0.0.2 --allow 10.0.0.0/24\n  \
    kagiri exchange 10.0.0.2 --clients 9 --rate 2 --target 500ms\n  \
    kagiri exchange nas --search 50 --rate 2 --target 500ms  most in time\n  \
    kagiri exchange http://nas/api --clients 8 --rate 100 --p99-max 50ms\n  \
    kagiri exchange https://nas/api --ca nas-authority.pem --http2\n  \
    kagiri exchange --background udp --background-rate 1Gbit/s\n\n\
    The response time counts from the moment at which a message is meant to be sent to the last byte of its \
    reply. It is split into write (until the kernel has accepted the last byte), network, and server (as \
    kagiri's server reports it).")]
#[command(mut_arg("place", place_help("exchange")))]
#[command(mut_arg("require", require_help("'in_time_ratio>=99%' or 'response_p99<=50ms'")))]
#[command(mut_arg(
    "listen",
    listen_help("With --serve: ADDRESS:PORT for clients [default: 127.0.0.1:5202]")
))]
pub struct ExchangeArgs {
    #[command(flatten)]
    settings: WorkloadArgs<ExchangeSettings>,
    /// Add a header field to HTTP requests, as 'Name: value'; repeatable
    #[arg(long, value_name = "FIELD", help_heading = "HTTP")]
    header: Vec<String>,
    #[command(flatten)]
    serve: ServeArgs,
    #[command(flatten)]
    session: SessionArgs,
}

impl ExchangeArgs {
    /// Serves, or measures.
    pub fn run(mut self: Box<Self>) -> Outcome {
        if self.serve.is_wanted() {
            let SessionArgs { hosts, common, .. } = &self.session;
            return self.serve.run(hosts.listen.as_deref(), common.quiet);
        }
        if !self.header.is_empty() {
            self.settings.set("http.headers", json!(self.header));
        }
        let settings = self.settings.resolve("exchange")?;
        let server = self.settings.get("host").and_then(Value::as_str).unwrap_or("loopback").to_owned();
        let load = match (settings["search"]["max"].as_u64(), settings["clients"].as_u64()) {
            (Some(_), _) => "search of clients".to_owned(),
            (None, clients) => base::format::plural(clients.unwrap_or_default(), "client"),
        };
        let plan = Plan::of_one("exchange", format!("exchange: {load}, {server}"), &server, settings);
        self.session.measure(plan).map_err(|failure| self.settings.with_flags("exchange", failure))
    }
}
