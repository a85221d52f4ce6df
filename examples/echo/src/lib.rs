//! The workload `echo`: how many clients get their answer within 10 ms?

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base::metric::{Better, MetricSpec};
use base::part::{HostContext, PartError, PartKind, PartSpec, Progress, Watch};
use base::placement::{Placement, Role};
use base::plan::LoadPlan;
use base::statistics::median;
use base::units::Span;
use base::verdict::Verdict;
use base::workload::{Judgement, TrialContext};
use run::registry::Registry;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use workload::Workload;
use workload::part::{Part, Peers, Reports, kind, spec};
use workload::settings::Settings;

/// The registry of a program that measures echo alone.
pub static REGISTRY: Registry = Registry::new(&[&Echo]);

/// The settings of echo.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EchoSettings {
    /// The largest number of clients to try
    pub max: u64,
    /// A client needs its answer within this time
    pub deadline: Span,
    /// The time that the server takes for a request
    pub service: Span,
    /// How long each number of clients is held
    pub hold: Span,
}

impl Default for EchoSettings {
    fn default() -> Self {
        Self { max: 1000, deadline: Span::from_ms(10), service: Span::from_ms(1), hold: Span::from_s(2) }
    }
}

impl Settings for EchoSettings {}

const SERVER: &str = "server";
const CLIENTS: &str = "clients";
const SLOWEST: &str = "response_max_ms";
type Outcome<T> = Result<T, PartError>;

/// The workload.
pub struct Echo;

impl Workload for Echo {
    const NAME: &'static str = "echo";
    type Settings = EchoSettings;
    fn metrics(&self) -> &'static [MetricSpec] {
        &[MetricSpec { name: SLOWEST, unit: "ms", better: Better::Lower, meaning: "Slowest client." }]
    }
    fn roles(&self) -> &'static [Role] {
        &[
            Role { name: SERVER, many: false, meaning: "Answers one request after the other." },
            Role { name: CLIENTS, many: false, meaning: "The host of all clients." },
        ]
    }
    fn part_kinds(&self) -> &'static [PartKind] {
        const { &[kind::<Server>(), kind::<Clients>()] }
    }
    fn load_unit(&self, _: &EchoSettings) -> &'static str {
        "clients"
    }
    fn load_plan(&self, settings: &EchoSettings) -> LoadPlan {
        LoadPlan::search(settings.max, settings.hold)
    }
    fn standing(&self, settings: &EchoSettings, placement: &Placement) -> Outcome<Vec<PartSpec>> {
        Ok(vec![spec::<Server>(SERVER.into(), placement.host(SERVER), &settings.service)?])
    }
    fn offering(
        &self,
        _: &EchoSettings,
        trial: &TrialContext,
        peers: &Peers<'_>,
        placement: &Placement,
    ) -> Outcome<Vec<PartSpec>> {
        let task = (peers.get::<Server>(SERVER)?.address, trial.load, trial.hold);
        Ok(vec![spec::<Clients>(CLIENTS.into(), placement.host(CLIENTS), &task)?])
    }
    fn judge(&self, echo: &EchoSettings, trial: &TrialContext, reports: &Reports) -> Outcome<Judgement> {
        let times_ms = reports.get::<Clients>(CLIENTS)?.ok_or_else(|| PartError::new("no report"))?;
        let late = times_ms.iter().filter(|ms| **ms > echo.deadline.s() * 1e3).count();
        let verdict = if late == 0 { Verdict::Pass } else { Verdict::Fail };
        let reason = format!("{late} clients waited longer than {}", echo.deadline);
        Ok(Judgement {
            reasons: (late > 0).then_some(reason).into_iter().collect(),
            // The server's queue makes answers late, not a busy CPU.
            is_definite: true,
            metrics: [(SLOWEST.to_owned(), times_ms.into_iter().max_by(f64::total_cmp))].into(),
            ..Judgement::new(verdict, (0.0, trial.hold.s()))
        })
    }
}

fn socket(host: &HostContext) -> Outcome<UdpSocket> {
    let address = (host.address.unwrap_or(Ipv4Addr::LOCALHOST.into()), 0).into();
    host.permit.peer(address)?;
    let socket = UdpSocket::bind(address).map_err(PartError::new)?;
    socket.set_read_timeout(Some(Duration::from_secs(2))).map_err(PartError::new)?;
    Ok(socket)
}

#[derive(Serialize, Deserialize)]
struct ServerEndpoint {
    address: SocketAddr,
    watch: Watch,
}

/// Dropping `lives` ends its thread.
struct Server {
    service: Duration,
    lives: Arc<()>,
}

impl Part for Server {
    const KIND: &'static str = "echo.server";
    type Task = Span;
    type Endpoint = ServerEndpoint;
    type Report = ();
    fn new(service: Span) -> Outcome<Self> {
        Ok(Self { service: service.duration(), lives: Arc::default() })
    }
    fn prepare(&mut self, _: &Peers<'_>, host: &HostContext) -> Outcome<ServerEndpoint> {
        let socket = socket(host)?;
        let address = socket.local_addr().map_err(PartError::new)?;
        let (service, lives) = (self.service, Arc::downgrade(&self.lives));
        std::thread::spawn(move || {
            while lives.strong_count() > 0 {
                let Ok((_, client)) = socket.recv_from(&mut []) else { continue };
                std::thread::sleep(service);
                // A client that gets no answer reports it.
                let _ = socket.send_to(&[], client);
            }
        });
        Ok(ServerEndpoint { address, watch: workload::watch::this_program(host, None, address.port()) })
    }
    fn stop(&mut self) -> Outcome<()> {
        Ok(())
    }
}

struct Clients {
    task: (SocketAddr, u64, Span), // The server, how many clients, for how long.
    sockets: Vec<UdpSocket>,
    thread: Option<JoinHandle<std::io::Result<Vec<f64>>>>,
}

impl Part for Clients {
    const KIND: &'static str = "echo.clients";
    type Task = (SocketAddr, u64, Span);
    type Endpoint = ();
    type Report = Vec<f64>;
    fn new(task: Self::Task) -> Outcome<Self> {
        Ok(Self { task, sockets: Vec::new(), thread: None })
    }
    fn prepare(&mut self, _: &Peers<'_>, host: &HostContext) -> Outcome<()> {
        self.sockets = (0..self.task.1).map(|_| socket(host)).collect::<Result<_, _>>()?;
        self.sockets.iter().try_for_each(|socket| socket.connect(self.task.0)).map_err(PartError::new)
    }
    fn start(&mut self, at_monotonic_ns: u64) -> Outcome<()> {
        let (sockets, hold) = (std::mem::take(&mut self.sockets), self.task.2.duration());
        self.thread = Some(std::thread::spawn(move || measure(&sockets, at_monotonic_ns, hold)));
        Ok(())
    }
    fn progress(&mut self) -> Progress {
        let is_finished = self.thread.as_ref().is_some_and(JoinHandle::is_finished);
        if is_finished { Progress::Finished } else { Progress::Running { done: None } }
    }
    fn stop(&mut self) -> Outcome<Vec<f64>> {
        let thread = self.thread.take().ok_or_else(|| PartError::new("the clients were not started"))?;
        let times_ms = thread.join().map_err(|_| PartError::new("the clients' thread panicked"))?;
        times_ms.map_err(|error| PartError::new(format!("a client got no answer: {error}")))
    }
}

/// The median response time of each client, ms.
fn measure(sockets: &[UdpSocket], at_ns: u64, hold: Duration) -> std::io::Result<Vec<f64>> {
    sys::clock::sleep_until_ns(at_ns);
    let mut times_ms = vec![Vec::new(); sockets.len()];
    let end = Instant::now() + hold;
    while Instant::now() < end {
        let began = Instant::now();
        sockets.iter().try_for_each(|socket| socket.send(&[]).map(drop))?;
        for (socket, times_ms) in sockets.iter().zip(&mut times_ms) {
            socket.recv(&mut [])?;
            times_ms.push(began.elapsed().as_secs_f64() * 1e3);
        }
    }
    Ok(times_ms.iter().filter_map(|times_ms| median(times_ms)).collect())
}
