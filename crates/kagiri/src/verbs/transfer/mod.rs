//! `kagiri transfer`: how fast do bytes move?

mod serve;

use base::plan::Plan;
use base::units::{BitRate, ByteSize, Span};
use clap::Args;
use serde_json::{Map, Value, json};

use crate::cli::Common;
use crate::exit::{Failure, Outcome};
use crate::hosts::{HostArgs, PlaceArgs, Places};
use crate::measure;
use crate::verbs::timeline::own::CallArgs;
use serve::ServeArgs;

/// Find how fast bytes move to a server and back, and what holds them back.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    kagiri transfer                              both ends on this machine, over loopback\n  \
    kagiri transfer --serve --listen 10.0.0.2:5201 --allow 10.0.0.0/24\n                                               \
    the server's end; iperf3's clients are served too\n  \
    kagiri transfer 10.0.0.2 --direction both    to a server of kagiri's or iperf3's\n  \
    kagiri transfer nas --proto udp --search     the highest rate without loss\n  \
    kagiri transfer nas --rr                     requests and answers a second, and how long one takes\n\n\
    Goodput is payload that arrived, over the time in which it did.")]
pub struct TransferArgs {
    /// A server that is already there, HOST or HOST:PORT (5201): kagiri's, iperf3's, or a ttcp's with --peer ttcp;
    /// without it both ends are here
    #[arg(value_name = "HOST")]
    host: Option<String>,
    /// Whose server that is; its first answer tells, unless it is a ttcp [default: auto]
    #[arg(long, value_name = "KIND", value_parser = ["auto", "kagiri", "iperf3", "ttcp"])]
    peer: Option<String>,
    /// What carries the bytes; quic between ends of kagiri only [default: tcp]
    #[arg(long, value_name = "PROTOCOL", value_parser = ["tcp", "udp", "quic"])]
    proto: Option<String>,
    /// Which way they go, seen from here [default: up]
    #[arg(long, value_name = "WAY", value_parser = ["up", "down", "both"])]
    direction: Option<String>,
    /// Flows each way [default: 1]
    #[arg(long, value_name = "N")]
    flows: Option<u64>,
    /// How long bytes move [default: 5s]
    #[arg(long, value_name = "TIME")]
    time: Option<Span>,
    /// Move so many bytes instead, all flows together
    #[arg(long, value_name = "SIZE", conflicts_with = "time")]
    bytes: Option<ByteSize>,
    /// Leave this out at the beginning, while windows open [default: 0s]
    #[arg(long, value_name = "TIME")]
    omit: Option<Span>,
    /// Where received bytes end: copy brings them into this program's memory, discard lets the kernel drop them unread
    /// [default: copy]
    #[arg(long, value_name = "MODE", value_parser = ["copy", "discard"])]
    mode: Option<String>,
    /// Bytes of one call, of UDP the payload of one datagram [default: as is cheapest, 1472B of UDP, 64KiB of QUIC]
    #[arg(long, value_name = "SIZE")]
    size: Option<ByteSize>,
    /// The rate of each flow [default: as fast as it goes]
    #[arg(long, value_name = "RATE")]
    rate: Option<BitRate>,
    /// How senders give bytes to the kernel [default: as a short probe finds cheapest]
    #[arg(long, value_name = "ENGINE", value_parser = ["write", "splice"])]
    engine: Option<String>,
    /// Threads that carry the flows at each end [default: one for each of up to 16 flows, of more flows one a CPU]
    #[arg(long, value_name = "N")]
    threads: Option<u32>,
    /// Congestion control of TCP, e.g. cubic [default: each host's own]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Socket buffers at both ends [default: the kernel's automatic ones]
    #[arg(long, value_name = "SIZE")]
    window: Option<ByteSize>,
    /// The senders' buffers, where they are to differ from --window
    #[arg(long, value_name = "SIZE")]
    send_buffer: Option<ByteSize>,
    /// The receivers' buffers, and with them TCP's window, where they are to differ from --window
    #[arg(long, value_name = "SIZE")]
    receive_buffer: Option<ByteSize>,
    /// Do not wait to fill segments (TCP_NODELAY)
    #[arg(long)]
    no_delay: bool,
    /// The slowest link's rate on the wire, to compare with [default: that of the slower end's device]
    #[arg(long, value_name = "RATE")]
    link: Option<BitRate>,
    /// Requests of so many bytes and their answers, one after the other, instead of streams of bytes
    #[arg(long, value_name = "SIZE", num_args = 0..=1, default_missing_value = "1B")]
    rr: Option<ByteSize>,
    /// Bytes of an answer [default: as many as of a request]
    #[arg(long, value_name = "SIZE", requires = "rr")]
    answer_size: Option<ByteSize>,
    /// Wait for answers by asking the socket again and again: least latency, for a whole core at each end
    #[arg(long, requires = "rr")]
    spin: bool,
    /// Requests a second that each flow makes, whether or not answers came
    #[arg(long, value_name = "N", requires = "rr")]
    requests_per_s: Option<f64>,
    #[command(flatten)]
    calls: CallArgs,
    /// Search the highest rate of datagrams without loss, up to RATE
    #[arg(long, value_name = "RATE", num_args = 0..=1, default_missing_value = "100Gbit/s")]
    search: Option<BitRate>,
    /// With --search: loss up to here counts as none, in % of the datagrams [default: 0]
    #[arg(long, value_name = "PERCENT", requires = "search")]
    loss_max: Option<f64>,
    #[command(flatten)]
    serve: ServeArgs,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    hosts: HostArgs,
    #[command(flatten)]
    common: Common,
}

impl TransferArgs {
    /// Serve, or measure.
    pub fn perform(self: Box<Self>) -> Outcome {
        if self.serve.is_wanted() {
            return self.serve.perform(self.hosts.listen.as_deref(), self.common.json, self.common.quiet);
        }
        let plan = self.plan()?;
        self.calls.draw(&plan.name, self.common.quiet, || {
            measure::run_plan(&plan, &self.common, &self.hosts, Places::Options)
        })
    }

    fn plan(&self) -> Result<Plan, Failure> {
        let settings = run::registry::resolve("transfer", self.settings()).map_err(Failure::usage)?;
        let name = self.host.clone().unwrap_or_else(|| "loopback".into());
        let mut plan = Plan::of_one("transfer", format!("transfer: {name}"), &name, settings);
        plan.variants[0].place = self.place.wishes()?;
        Ok(self.common.over(plan))
    }

    /// Only what was said on the command line; the workload fills in the rest.
    fn settings(&self) -> Value {
        let mut settings = Map::new();
        let mut set = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                settings.insert(key.to_owned(), value);
            }
        };
        set("host", self.host.as_ref().map(|host| json!(host)));
        set("peer", self.peer.as_ref().map(|peer| json!(peer)));
        set("protocol", self.proto.as_ref().map(|proto| json!(proto)));
        set("direction", self.direction.as_ref().map(|direction| json!(direction)));
        set("flows", self.flows.map(|flows| json!(flows)));
        set("time", self.time.map(|time| json!(time)));
        set("bytes", self.bytes.map(|bytes| json!(bytes)));
        set("omit", self.omit.map(|omit| json!(omit)));
        set("mode", self.mode.as_ref().map(|mode| json!(mode)));
        set("size", self.size.map(|size| json!(size)));
        set("rate", self.rate.map(|rate| json!(rate)));
        set("engine", self.engine.as_ref().map(|engine| json!(engine)));
        set("threads", self.threads.map(|threads| json!(threads)));
        set("congestion_control", self.congestion.as_ref().map(|name| json!(name)));
        set("window", self.window.map(|window| json!(window)));
        set("send_buffer", self.send_buffer.map(|size| json!(size)));
        set("receive_buffer", self.receive_buffer.map(|size| json!(size)));
        set("no_delay", self.no_delay.then_some(json!(true)));
        set("link", self.link.map(|link| json!(link)));
        set("requests", self.rr.map(|size| self.requests(size)));
        set("calls", self.calls.are_wanted().then_some(json!(true)));
        set("search", self.search.map(|max| self.search(max)));
        Value::Object(settings)
    }

    fn requests(&self, size: ByteSize) -> Value {
        let waiting = if self.spin { "spin" } else { "block" };
        json!({
            "size": size,
            "answer_size": self.answer_size,
            "waiting": waiting,
            "rate_per_s": self.requests_per_s,
        })
    }

    fn search(&self, max: BitRate) -> Value {
        json!({ "max": max, "loss_percent_max": self.loss_max.unwrap_or(0.0) })
    }
}
