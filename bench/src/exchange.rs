//! `kagiri-bench exchange`: requests and messages in a closed loop, against load generators and sockperf.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::record::Row;
use crate::suite::{Found, Options, Pace, fill};
use crate::tools;
use crate::transfer::{Server, children_cpu_s, free_port, sockperf};

/// Beyond the measured time: start and end of the programs.
const MARGIN: Duration = Duration::from_secs(30);
/// A message has at least a header of this size.
const MESSAGE_BYTES: u32 = 24;

/// Compare `kagiri exchange` with wrk and oha (the same nginx and connections) and with sockperf.
///
/// wrk and sockperf are packages of Debian; oha is built by `cargo install oha --locked`. wrk2 sends at a
/// constant rate; name it by --wrk only if it runs without one.
#[derive(Args)]
pub struct ExchangeArgs {
    /// Pairs of each comparison
    #[arg(long, value_name = "N", default_value_t = 7)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pairs: u32,
    /// Seconds of each measurement
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Connections to nginx, each with one request after the other
    #[arg(long, value_name = "N", default_value_t = 32)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=500))]
    connections: u32,
    /// Concurrent streams on each connection, in the case of streams
    #[arg(long, value_name = "N", default_value_t = 32)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=100))]
    streams: u32,
    /// The program wrk
    #[arg(long, value_name = "FILE", default_value = "wrk")]
    wrk: PathBuf,
    /// The program oha
    #[arg(long, value_name = "FILE", default_value = "oha")]
    oha: PathBuf,
    #[command(flatten)]
    options: Options<Case>,
}

/// What can be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Case {
    /// Requests of HTTP/1.1, against wrk
    Wrk,
    /// The same against oha
    Oha,
    /// Requests of HTTP/1.1 over TLS, against oha
    OhaTls,
    /// Requests of HTTP/2 over TLS, one at a time on each connection, against oha
    OhaHttp2,
    /// Requests of HTTP/2 over TLS, several at a time on each connection, against oha
    OhaStreams,
    /// Messages of 24 bytes to kagiri's server, one after the other, against sockperf
    Sockperf,
}

struct Fixture {
    kagiri: PathBuf,
    dir: PathBuf,
    wrk: PathBuf,
    oha: PathBuf,
    pairs: u32,
    seconds: u32,
    connections: u32,
    streams: u32,
    pace: Pace,
}

impl ExchangeArgs {
    /// Measures, or prints what was measured.
    pub fn perform(self) -> anyhow::Result<()> {
        let pace = self.options.pace();
        let (pairs, seconds) = (pace.full_or(self.pairs, 1), pace.full_or(self.seconds, 1));
        let (wrk, oha, connections, streams) = (self.wrk, self.oha, self.connections, self.streams);
        let counts = |case: &Case| {
            let streams = match case.has_streams() {
                true => format!(" --streams {streams}"),
                false => String::new(),
            };
            format!("--pairs {pairs} --seconds {seconds} --connections {connections}{streams}")
        };
        let open =
            |dir, kagiri| Ok(Fixture { kagiri, dir, wrk, oha, pairs, seconds, connections, streams, pace });
        self.options.perform("exchange", open, counts, |case, fixture| match case {
            Case::Sockperf => fixture.messages(),
            _ => fixture.requests(*case),
        })
    }
}

impl Case {
    const fn has_tls(self) -> bool {
        matches!(self, Self::OhaTls | Self::OhaHttp2 | Self::OhaStreams)
    }

    const fn has_streams(self) -> bool {
        matches!(self, Self::OhaStreams)
    }

    const fn http_version(self) -> &'static str {
        if matches!(self, Self::OhaHttp2 | Self::OhaStreams) { "2" } else { "1.1" }
    }
}

impl Fixture {
    fn within(&self) -> Duration {
        Duration::from_secs(self.seconds.into()) + MARGIN
    }

    /// Requests per second, and the generator's CPU time per request in us.
    fn requests(&self, case: Case) -> anyhow::Result<Found> {
        let port = free_port()?;
        let _nginx = self.nginx(case, port)?;
        let scheme = if case.has_tls() { "https" } else { "http" };
        let url = format!("{scheme}://127.0.0.1:{port}/");
        let one = |is_ours| {
            let before_s = children_cpu_s()?;
            let per_s = match (is_ours, case) {
                (true, _) => self.ours(case, &url)?,
                (false, Case::Wrk) => self.wrk(&url)?,
                (false, _) => self.oha(case, &url)?,
            };
            let cpu_s = children_cpu_s()? - before_s;
            Ok([per_s, 1e6 * cpu_s / (per_s * f64::from(self.seconds))])
        };
        let rows = [Row::new("requests", "1/s"), Row::new("generator's CPU time per request", "us")];
        let rows = fill(rows, self.pairs, |is_ours| self.pace.measured(|| one(is_ours)))?;
        let peer = if case == Case::Wrk { "wrk with one thread" } else { "oha" };
        let tls = if case.has_tls() { " over TLS" } else { "" };
        let mut versions = tools::versions(&["nginx"]);
        let program = self.peer(case);
        let of_peer = tools::versions(&[&program.to_string_lossy()]).into_values().next();
        let name = program.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        versions.extend(of_peer.map(|version| (name, version)));
        let streams = match case.has_streams() {
            true => format!(" with {} streams each", self.streams),
            false => String::new(),
        };
        let found = Found::about(format!(
            "`kagiri exchange` (ours) and {peer} (peer) send requests of HTTP/{}{tls} in a closed loop over \
             {} connections{streams} for {} s to the same nginx with one worker, which replies with two \
             bytes. CPU time is that of the whole program, from its start to its end.",
            case.http_version(),
            self.connections,
            self.seconds
        ));
        Ok(Found { versions, ..found.with_rows(rows) })
    }

    fn peer(&self, case: Case) -> &Path {
        if case == Case::Wrk { &self.wrk } else { &self.oha }
    }

    /// An nginx that replies to everything, on a port of loopback.
    fn nginx(&self, case: Case, port: u16) -> anyhow::Result<Server> {
        let own = self.dir.display();
        let tls = match case.has_tls() {
            true => {
                self.certify()?;
                format!("ssl_certificate {own}/own.pem; ssl_certificate_key {own}/own.key;")
            }
            false => String::new(),
        };
        let words = match case {
            Case::OhaHttp2 | Case::OhaStreams => " ssl http2",
            Case::OhaTls => " ssl",
            Case::Wrk | Case::Oha | Case::Sockperf => "",
        };
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|kind| format!("{kind}_temp_path {own}/{kind}; "))
            .collect();
        let text = format!(
            "daemon off; master_process off; pid {own}/pid; error_log stderr;\n\
             events {{ worker_connections 2000; }}\n\
             http {{ {temporary} access_log off; keepalive_requests 1000000000; keepalive_timeout 600s;\n  \
             server {{ listen 127.0.0.1:{port}{words}; {tls} location / {{ return 200 'ok'; }} }} }}\n"
        );
        let file = self.dir.join("nginx.conf");
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        Server::start(Command::new("nginx").args(["-e", "stderr", "-c"]).arg(&file), port)
    }

    /// A certificate for loopback, with its authority: itself.
    fn certify(&self) -> anyhow::Result<()> {
        let run = |words: &str| {
            let mut openssl = Command::new("openssl");
            openssl.args(words.split_whitespace()).current_dir(&self.dir);
            tools::run(&mut openssl, MARGIN, &[0])
        };
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        run(&format!("req -x509 {key} -keyout ca.key -out ca.pem -subj /CN=bench -days 2"))?;
        run(&format!(
            "req {key} -keyout own.key -out own.csr -subj /CN=own -addext subjectAltName=IP:127.0.0.1"
        ))?;
        let signed = "-CA ca.pem -CAkey ca.key -CAcreateserial -copy_extensions copy";
        run(&format!("x509 -req -in own.csr {signed} -out own.pem -days 2"))?;
        Ok(())
    }

    fn ours(&self, case: Case, url: &str) -> anyhow::Result<f64> {
        let ca = self.dir.join("ca.pem").display().to_string();
        let (connections, streams) = (self.connections.to_string(), self.streams.to_string());
        let mut words = vec![url, "--clients", &connections, "--http-version", case.http_version()];
        if case.has_tls() {
            words.extend(["--ca", &ca]);
        }
        if case.has_streams() {
            words.extend(["--streams", &streams]);
        }
        metric(&self.exchange(&words)?, "messages_per_s")
    }

    /// The trial of `kagiri exchange` with these words.
    fn exchange(&self, words: &[&str]) -> anyhow::Result<Value> {
        let mut command = Command::new(&self.kagiri);
        command.arg("exchange").args(words).args(["--time", &format!("{}s", self.seconds), "--json", "-q"]);
        command.env("KAGIRI_DATA", self.dir.join("data"));
        let ran = tools::run(&mut command, self.within(), &[0])?;
        let mut run: Value = serde_json::from_str(&ran.stdout).context("kagiri printed no run")?;
        let trial = run["trials"][0].take();
        ensure!(trial["verdict"] == "pass", "the trial did not pass: {}", trial["reasons"]);
        Ok(trial)
    }

    fn wrk(&self, url: &str) -> anyhow::Result<f64> {
        let mut command = Command::new(&self.wrk);
        command.args(["-t1", &format!("-c{}", self.connections), &format!("-d{}s", self.seconds), url]);
        let ran = tools::run(&mut command, self.within(), &[0])?;
        let has_errors = ["Non-2xx", "Socket errors"].iter().any(|words| ran.stdout.contains(words));
        ensure!(!has_errors, "wrk had errors: {}", ran.stdout);
        let rate = ran.stdout.split_once("Requests/sec:").context("wrk did not say its rate")?.1;
        Ok(rate.split_whitespace().next().unwrap_or_default().parse()?)
    }

    fn oha(&self, case: Case, url: &str) -> anyhow::Result<f64> {
        let mut command = Command::new(&self.oha);
        command.args(["-c", &self.connections.to_string(), "-z", &format!("{}s", self.seconds)]);
        command.args(["--http-version", case.http_version(), "--no-tui", "--output-format", "json"]);
        if case.has_tls() {
            command.arg("--cacert").arg(self.dir.join("ca.pem"));
        }
        if case.has_streams() {
            command.args(["-p", &self.streams.to_string()]);
        }
        let ran = tools::run(command.arg(url), self.within(), &[0])?;
        let found: Value = serde_json::from_str(&ran.stdout).context("oha's JSON")?;
        // Its own rate counts requests that failed.
        let answered = found["statusCodeDistribution"]["200"].as_f64().context("oha got no reply")?;
        let took_s = found["summary"]["total"].as_f64().context("oha did not say how long it took")?;
        let others = found["statusCodeDistribution"].as_object().map_or(0, |all| all.len() - 1);
        ensure!(others == 0, "oha had errors: {}", found["statusCodeDistribution"]);
        Ok(answered / took_s)
    }

    /// Messages and replies of the same size, on one connection.
    fn messages(&self) -> anyhow::Result<Found> {
        let one = |is_ours| if is_ours { self.our_messages() } else { sockperf(self.seconds, MESSAGE_BYTES) };
        let rows = [Row::new("messages", "1/s"), Row::new("median", "us"), Row::new("p99", "us")];
        let rows = fill(rows, self.pairs, |is_ours| self.pace.measured(|| one(is_ours)))?;
        Ok(Found::about(format!(
            "`kagiri exchange` and its server (ours), and sockperf ping-pong and its server (peer), a \
             process each, send {MESSAGE_BYTES} bytes to and fro over one TCP connection on loopback for \
             {} s, the first 0.4 s left out. Times there and back.",
            self.seconds
        ))
        .with_rows(rows)
        .with_versions(&["sockperf"]))
    }

    fn our_messages(&self) -> anyhow::Result<[f64; 3]> {
        let port = free_port()?;
        let address = format!("127.0.0.1:{port}");
        let mut server = Command::new(&self.kagiri);
        server.args(["exchange", "--serve", "--listen", &address]).env("KAGIRI_DATA", self.dir.join("data"));
        let _server = Server::start(&mut server, port)?;
        let size = format!("{MESSAGE_BYTES}B");
        let trial = self.exchange(&[&address, "--size", &size, "--omit", "400ms"])?;
        Ok([
            metric(&trial, "messages_per_s")?,
            1e3 * metric(&trial, "response_p50_ms")?,
            1e3 * metric(&trial, "response_p99_ms")?,
        ])
    }
}

fn metric(trial: &Value, name: &str) -> anyhow::Result<f64> {
    trial["metrics"][name].as_f64().with_context(|| format!("kagiri reported no {name}"))
}
