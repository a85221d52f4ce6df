//! The clients of a host as a part of a run: kind `exchange.clients`.

use std::fmt::Display;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use base::part::{HostContext, PartError, Progress};
use serde::{Deserialize, Serialize};
use sys::clock::monotonic_ns;
use sys::net::SocketOptions;
use workload::part::{self, Part, Peers};

use super::connection::HandshakeError;
use super::{Group, GroupError, GroupSpec, Protocol, Share, WorkerSpec};
use crate::SERVER;
use crate::http::tls::{CA_BYTES_MAX, Offer, TlsClient};
use crate::http::{Request, Target};
use crate::report::ClientsReport;
use crate::server::part::ServerPart;
use crate::settings::{Connections, ExchangeSettings, HttpVersion, PORT, Sizes, sum_bit_per_s};
use crate::wire::{Hello, Purpose};

/// The largest file that is a body.
const BODY_BYTES_MAX: u64 = 1 << 30;
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// With more clients, the memory of each one's socket is not kept.
const CLIENTS_KEPT_MAX: u64 = 64;
/// Slots of a trial whose end is known. A slot is the time over which replies are summed up, and between two
/// looks at a socket's memory.
const SLOTS: u64 = 200;
const SLOT_NS_MIN: u64 = 100_000_000;

/// Which clients run here.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClientsTask {
    #[serde(deserialize_with = "part::settings")]
    pub settings: ExchangeSettings,
    pub load: u64,
    /// The clients of this host among all, by number: the first one, and how many.
    pub first: u64,
    pub count: u64,
    /// The number of the trial at its server.
    pub trial: u64,
    pub seed: u64,
}

pub struct ClientsPart {
    task: ClientsTask,
    group: Option<Group>,
    /// Stands while the clients run: the server ends the background after it.
    attends: Option<TcpStream>,
    start_ns: u64,
}

/// Where `HOST` or `HOST:PORT` is.
pub(crate) fn address(host: &str, port: u16) -> Result<SocketAddr, PartError> {
    let wrong = |why: &dyn Display| format!("cannot resolve '{host}': {why}; write HOST or HOST:PORT");
    workload::address::resolve(host, port).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidInput => PartError::usage(wrong(&error)),
        // The name may be right, and only its resolver out of reach.
        _ => PartError::new(wrong(&error)),
    })
}

/// Where kagiri's server of a run is, and its key.
pub(crate) fn own_server(
    settings: &ExchangeSettings,
    peers: &Peers<'_>,
) -> Result<(SocketAddr, u64), PartError> {
    match &settings.host {
        Some(host) if settings.url().is_none() => Ok((address(host, PORT)?, 0)),
        _ => {
            let endpoint = peers.get::<ServerPart>(SERVER)?;
            Ok((endpoint.address, endpoint.key))
        }
    }
}

/// A connection to kagiri's server for this purpose.
pub(crate) fn greet(server: SocketAddr, hello: Hello) -> Result<TcpStream, PartError> {
    let connect = || {
        let mut stream = TcpStream::connect_timeout(&server, CONNECT_WITHIN)?;
        stream.write_all(&hello.to_bytes())?;
        Ok(stream)
    };
    connect().map_err(|error: std::io::Error| {
        PartError::new(format!("connect {server}: {error}; is 'kagiri exchange --serve' running there?"))
    })
}

/// What TLS demands and offers.
fn tls(
    target: &Target,
    settings: &ExchangeSettings,
    can_http2: bool,
    host: &HostContext,
) -> Result<TlsClient, PartError> {
    let offer = match () {
        () if settings.http.demands_http2() => Offer::Http2,
        () if settings.http.version == HttpVersion::Auto && can_http2 => Offer::Both,
        () => Offer::Http1,
    };
    let Some(path) = &settings.http.ca else {
        return TlsClient::new(target.host(), None, offer).map_err(PartError::new);
    };
    let wrong = |problem| PartError::usage(format!("exchange.http.ca: {path}: {problem}"));
    let pem = crate::settings::read_file(path, CA_BYTES_MAX, host).map_err(wrong)?;
    TlsClient::new(target.host(), Some(&pem), offer).map_err(wrong)
}

impl ClientsPart {
    fn protocol(&self, peers: &Peers<'_>, host: &HostContext) -> Result<(SocketAddr, Protocol), PartError> {
        let ClientsTask { settings, trial, .. } = &self.task;
        let Some(url) = settings.url() else {
            let (server, key) = own_server(settings, peers)?;
            return Ok((server, Protocol::Native { trial: *trial, key }));
        };
        let target = Target::parse(url).map_err(PartError::usage)?;
        let body = match &settings.http.body {
            Some(path) => {
                let wrong = |problem| PartError::usage(format!("exchange.http.body: {path}: {problem}"));
                Some(crate::settings::read_file(path, BODY_BYTES_MAX, host).map_err(wrong)?.into())
            }
            None => None,
        };
        let has_body = settings.sends_bodies();
        let keeps_alive = settings.connections == Connections::Persistent;
        let method = settings.http.method.as_deref();
        let request = Request::new(&target, method, &settings.http.headers, has_body, keeps_alive);
        let is_http2 = settings.http.demands_http2();
        // A field that HTTP/2 does not have is an error only where that was asked for.
        let v2 = request.v2(0);
        if let (true, Err(problem)) = (is_http2, &v2) {
            return Err(PartError::usage(format!("exchange.http: {problem}")));
        }
        let tls = target.is_tls.then(|| tls(&target, settings, v2.is_ok(), host)).transpose()?;
        let request = Box::new(request);
        let streams = settings.http.streams as usize;
        Ok((address(&target.address, 80)?, Protocol::Http { request, body, tls, is_http2, streams }))
    }

    /// The clients of each class that run here.
    fn shares(&self, host: &HostContext) -> Result<Vec<Share>, PartError> {
        let (from, to) = (self.task.first, self.task.first + self.task.count);
        let mut before = 0;
        let mut shares = Vec::new();
        for (index, class) in self.task.settings.classes_at(self.task.load).iter().enumerate() {
            let (first, last) = (before.max(from), (before + class.clients).min(to));
            if first < last {
                let sizes = class.size.as_ref().map(|size| Sizes::read(size, host)).transpose()?;
                shares.push(Share {
                    class: index,
                    sizes,
                    first: first - before,
                    count: last - first,
                    number: first as u32,
                });
            }
            before += class.clients;
        }
        Ok(shares)
    }
}

/// The length of a slot: a tenth of a second, or more of a long trial.
fn slot_ns(settings: &ExchangeSettings) -> u64 {
    let whole_ns = settings.omit.ns().saturating_add(settings.time.ns());
    (whole_ns / SLOTS).max(SLOT_NS_MIN)
}

impl Part for ClientsPart {
    const KIND: &'static str = "exchange.clients";
    type Task = ClientsTask;
    type Endpoint = ();
    type Report = ClientsReport;

    /// Beside histograms, a report has the memory of each client's socket over time.
    fn report_items(task: &ClientsTask) -> u64 {
        let clients =
            if task.settings.clients_all().max(task.load) > CLIENTS_KEPT_MAX { 0 } else { task.count };
        500 + 8 * clients
    }

    fn new(task: ClientsTask) -> Result<Self, PartError> {
        Ok(Self { task, group: None, attends: None, start_ns: 0 })
    }

    fn prepare(&mut self, peers: &Peers<'_>, host: &HostContext) -> Result<(), PartError> {
        let (server, protocol) = self.protocol(peers, host)?;
        host.permit.peer(server)?;
        let settings = &self.task.settings;
        let classes = settings.classes_at(self.task.load);
        let shares = self.shares(host)?;
        let rate = |share: &Share| {
            let rate = classes[share.class].message_bit_per_s(protocol.file_bytes())?;
            Some(rate * share.count as f64)
        };
        host.permit.rate(sum_bit_per_s(shares.iter().map(rate)))?;
        let all: u64 = classes.iter().map(|class| class.clients).sum();
        let options = SocketOptions {
            send_buffer_bytes: settings.send_buffer.map(|buffer| buffer.bytes()),
            receive_buffer_bytes: settings.receive_buffer.map(|buffer| buffer.bytes()),
            nodelay: Some(!settings.nagle),
            congestion: settings.congestion_control.clone(),
            ..SocketOptions::default()
        };
        let is_counted = classes.iter().all(|class| class.count.is_some());
        let worker = WorkerSpec {
            server,
            classes: Arc::new(classes),
            protocol: Arc::new(protocol),
            is_fresh: settings.connections == Connections::Fresh,
            options,
            timeout_ns: settings.timeout.ns(),
            omit_ns: settings.omit.ns(),
            time_ns: (!is_counted).then(|| settings.time.ns()),
            sample_ns: slot_ns(settings),
            keeps_clients: all <= CLIENTS_KEPT_MAX,
        };
        let (threads, seed) = (settings.threads, self.task.seed);
        if settings.background.is_wanted() {
            let (server, key) = own_server(settings, peers)?;
            host.permit.peer(server)?;
            self.attends =
                Some(greet(server, Hello { purpose: Purpose::Attend, trial: self.task.trial, key })?);
        }
        let failed = |error: GroupError| {
            // TLS and HTTP/2 have said what is wrong.
            let is_unreachable = matches!(&error, GroupError::Unconnected(unconnected)
                if matches!(unconnected.error, HandshakeError::Tcp(_)));
            let advice = match settings.host.as_ref().filter(|_| is_unreachable) {
                Some(_) if settings.url().is_none() => "; is 'kagiri exchange --serve' running there?",
                Some(_) => "; is an HTTP server running there?",
                None => "",
            };
            PartError::new(format!("{error}{advice}"))
        };
        let group = Group::new(&GroupSpec { worker, shares, threads, seed }).map_err(failed)?;
        group.wait_ready(|| host.stop_requested()).map_err(failed)?;
        self.group = Some(group);
        Ok(())
    }

    fn start(&mut self, at_monotonic_ns: u64) -> Result<(), PartError> {
        let group = self.group.as_ref();
        let group =
            group.ok_or_else(|| PartError::new("the clients were started before they were prepared"))?;
        if monotonic_ns() > at_monotonic_ns {
            return Err(PartError::new("the clients' start time has passed"));
        }
        self.start_ns = at_monotonic_ns;
        group.begin(at_monotonic_ns);
        Ok(())
    }

    fn progress(&mut self) -> Progress {
        let Some(group) = &self.group else { return Progress::Running { done: Some(0.0) } };
        if group.is_finished() {
            // Closes it, so that the background ends.
            self.attends = None;
            return Progress::Finished;
        }
        let settings = &self.task.settings;
        let whole_ns = (settings.omit.ns() + settings.time.ns()).max(1);
        let done = monotonic_ns().saturating_sub(self.start_ns) as f64 / whole_ns as f64;
        let is_counted = settings.classes_at(self.task.load).iter().all(|class| class.count.is_some());
        let is_started = self.start_ns > 0;
        Progress::Running { done: (!is_counted).then_some(if is_started { done.min(1.0) } else { 0.0 }) }
    }

    fn stop(&mut self) -> Result<ClientsReport, PartError> {
        self.attends = None;
        let group = self.group.take();
        let group =
            group.ok_or_else(|| PartError::new("the clients were not started, so there is no report"))?;
        group.stop().map_err(PartError::new)
    }
}
