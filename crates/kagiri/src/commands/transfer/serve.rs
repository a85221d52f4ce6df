//! `kagiri transfer --serve`: the end that clients connect to, kagiri's own and iperf3's.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde_json::{Value, json};
use transfer::flow::probe;
use transfer::iperf3::TestReport;
use transfer::native::{NativeServer, NativeSettings, SessionEnd};
use transfer::report::{DirectionReport, EndReport};
use transfer::server::{Server, ServerSettings};
use transfer::settings::PORT;

use crate::admission::AdmissionArgs;
use crate::args::SETTINGS;
use crate::exit::{Code, Outcome};
use crate::{output, stop};

/// Arguments of clients, beside the settings of a transfer.
const OF_CLIENTS: [&str; 11] = [
    SETTINGS,
    "port",
    "client",
    "calls_html",
    "calls_pftrace",
    "place",
    "out",
    "json_lines",
    "require",
    "repeat",
    "seed",
];
/// How often it is looked for sessions that have ended.
const LOOK: Duration = Duration::from_millis(100);

/// The server's own options.
#[derive(Args)]
#[command(next_help_heading = "Server")]
pub struct ServeArgs {
    /// Run as a server at --listen until Ctrl-C, for any number of kagiri and iperf3 clients
    #[arg(long, short, conflicts_with_all = OF_CLIENTS)]
    serve: bool,
    #[command(flatten)]
    admission: AdmissionArgs,
}

impl ServeArgs {
    pub fn is_wanted(&self) -> bool {
        self.serve
    }

    /// Serve until Ctrl-C.
    pub fn run(&self, listen: Option<&str>, is_json: bool, is_quiet: bool) -> Outcome {
        let listen = self.admission.address(listen, PORT, "send and receive at full rate")?;
        let stop = stop::stop_flag()?;
        // Before the first measurement; without a loopback to try engines over, the default engine is used.
        let _ = probe::run();
        let natives = Arc::new(NativeServer::new(NativeSettings::default()));
        let settings = ServerSettings {
            natives: Some(natives.clone()),
            admitted: self.admission.admitted(),
            ..ServerSettings::new(listen)
        };
        let mut server = Server::start(settings).with_context(|| format!("cannot serve at {listen}"))?;
        if !is_quiet {
            let at = server.local_addr();
            output::say(&format!(
                "kagiri transfer serves at {at}, TCP and UDP, for kagiri and iperf3 clients; Ctrl-C stops it"
            ));
        }
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
            print_ended(&server, &natives, is_json);
        }
        server.stop();
        print_ended(&server, &natives, is_json);
        Ok(Code::Measured)
    }
}

/// Prints one line per ended session.
fn print_ended(server: &Server, natives: &NativeServer, is_json: bool) {
    let native = natives.take_ends().into_iter().map(|end| session(&end));
    let others = server.take_reports().into_iter().map(|report| test(&report));
    for session in native.chain(others) {
        let line = if is_json { session.to_string() } else { line(&session) };
        // Clients are served on; what could not be written is an error of this line alone.
        if let Err(failure) = output::print(&(line + "\n")) {
            output::error_line(&failure.to_string());
        }
    }
}

fn session(end: &SessionEnd) -> Value {
    let sum = |of: fn(&DirectionReport) -> Option<&EndReport>| {
        end.directions.iter().filter_map(of).map(EndReport::bytes).sum::<u64>()
    };
    let seconds = end.directions.iter().flat_map(|way| [&way.sender, &way.receiver]).flatten();
    let seconds = seconds.filter_map(EndReport::elapsed_s).fold(0.0, f64::max);
    json!({
        "client": end.peer.to_string(),
        "program": end.order.as_ref().map(|order| order.program.clone()),
        "sent_bytes": sum(|way| way.sender.as_ref()),
        "received_bytes": sum(|way| way.receiver.as_ref()),
        "elapsed_s": seconds,
        "problem": end.problem,
    })
}

fn test(report: &TestReport) -> Value {
    let (sent, received) = report.bytes();
    let seconds = report.streams.iter().filter_map(|stream| stream.own.seconds).fold(0.0, f64::max);
    let version = report.parameters.as_ref().and_then(|parameters| parameters.client_version.clone());
    json!({
        "client": report.peer.to_string(),
        "program": format!("iperf3 {}", version.unwrap_or_default()).trim_end(),
        "sent_bytes": sent,
        "received_bytes": received,
        "elapsed_s": seconds,
        "problem": report.problem,
    })
}

fn line(session: &Value) -> String {
    let text = |key: &str| session[key].as_str().map(report::text::plain).unwrap_or_default();
    let (sent, received) = (session["sent_bytes"].as_f64(), session["received_bytes"].as_f64());
    let seconds = session["elapsed_s"].as_f64().filter(|seconds| *seconds > 0.0);
    let rate = |bytes: Option<f64>| {
        let (bytes, seconds) = (bytes?, seconds?);
        (bytes > 0.0).then(|| {
            format!(
                "{} at {}",
                base::format::quantity(Some(bytes), "B"),
                base::format::quantity(Some(bytes * 8.0 / seconds), "bit/s")
            )
        })
    };
    let mut line = format!("{} ({})", text("client"), text("program"));
    if let Some(words) = rate(sent) {
        line += &format!(", sent {words}");
    }
    if let Some(words) = rate(received) {
        line += &format!(", received {words}");
    }
    if let Some(problem) = session["problem"].as_str() {
        line += &format!("; broke off: {}", report::text::plain(problem));
    }
    line
}
