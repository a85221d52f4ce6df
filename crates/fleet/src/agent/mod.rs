//! The agent: joins a coordinator whenever there is one, and runs the parts that it receives.

mod describe;
mod endpoint_probe;
mod heartbeat;
mod probe_targets;
mod requests;
mod run_lease;
mod service;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::part::{HostContext, PartError, PartKind};
use base::permit::Permit;
use serde_json::Value;
use sys::clock::Deadline;
use zenoh::{Session, Wait};

use crate::identity::Credentials;
use crate::session::{self, BusSession};
use crate::{FleetError, protocol};
use endpoint_probe::{ReachableEndpoint, probe_endpoint};
use requests::RequestWorker;
pub use run_lease::RunOwner;
use service::AgentService;

/// Time between two checks for a coordinator. A check is one connection that is reset at once.
const PROBE_INTERVAL: Duration = Duration::from_millis(400);
const JOIN_WITHIN: Duration = Duration::from_secs(10);
/// Poll interval with a run ...
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// ... and without one: an idle agent costs next to nothing.
const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(200);
const ROUTER_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// How long a leaving agent waits for active requests. The thread of a request drops its part, which undoes
/// the part's changes.
const LEAVE_WITHIN: Duration = Duration::from_secs(10);
const LEAVE_POLL: Duration = Duration::from_millis(5);

/// Decides whether a coordinator may run a kind of part here, and what the part may do.
pub type PermitFactory = Arc<dyn Fn(&RunOwner, &str) -> Result<Arc<dyn Permit>, PartError> + Send + Sync>;

#[derive(Clone)]
pub struct AgentConfig {
    pub name: String,
    /// In zenoh's syntax.
    pub join: String,
    /// For `tls/` endpoints.
    pub credentials: Option<Credentials>,
    pub kinds: Vec<PartKind>,
    /// Without an address, other hosts use the one from which the agent joined.
    pub host: HostContext,
    pub permits: PermitFactory,
    pub version: String,
    pub environment: BTreeMap<String, Value>,
    pub once: bool,
    pub join_within: Option<Duration>,
    pub stop: Arc<AtomicBool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Stopped,
    RunOver,
}

/// Runs an agent until it is stopped. `reasons` returns why zenoh could not join, which zenoh's errors do
/// not contain.
pub fn run(
    config: &AgentConfig,
    notify: &dyn Fn(&str),
    reasons: &dyn Fn() -> Option<String>,
) -> Result<End, FleetError> {
    let mut give_up = config.join_within.map(Deadline::after);
    let mut last_line = String::new();
    let mut notify_once = |line: String| {
        if line != last_line {
            notify(&line);
            last_line = line;
        }
    };
    loop {
        if config.stop.load(Ordering::Relaxed) {
            return Ok(End::Stopped);
        }
        let why = match probe_endpoint(&config.join) {
            Ok(endpoint) => {
                match session::open(&client(config), config.credentials.as_ref(), &[], JOIN_WITHIN) {
                    Ok(session) => {
                        notify_once(format!("joined {} as {}", config.join, config.name));
                        if let Some(end) = serve(config, session, endpoint, notify)? {
                            return Ok(end);
                        }
                        notify_once(format!("left {}: the coordinator is gone", config.join));
                        // The run is over, whether this agent took part or not.
                        if config.once {
                            return Ok(End::RunOver);
                        }
                        give_up = config.join_within.map(Deadline::after);
                        pause();
                        continue;
                    }
                    Err(error) => reasons().unwrap_or_else(|| error.to_string()),
                }
            }
            Err(error) => format!("no coordinator ({error})"),
        };
        if give_up.as_ref().is_some_and(Deadline::passed) {
            return Err(FleetError::Open { what: "join", endpoint: config.join.clone(), why });
        }
        notify_once(format!("waiting for {}: {why}", config.join));
        pause();
    }
}

/// With jitter: a thousand agents that lost their coordinator together must not all return at once.
fn pause() {
    std::thread::sleep(PROBE_INTERVAL.mul_f64(0.5 + fastrand::f64()));
}

fn client(config: &AgentConfig) -> session::Role {
    session::Role::Client { connect: config.join.clone() }
}

/// Handles requests until the coordinator is gone (`None`), the run is over, or the agent is stopped.
fn serve(
    config: &AgentConfig,
    session: BusSession,
    endpoint: ReachableEndpoint,
    notify: &dyn Fn(&str),
) -> Result<Option<End>, FleetError> {
    let service = Arc::new(AgentService::new(config, session.clone(), endpoint));
    let failed =
        |what: &'static str| move |error: zenoh::Error| FleetError::Bus { what, why: error.to_string() };
    let started = RequestWorker::start(Arc::clone(&service));
    let (receiver, worker) =
        started.map_err(|source| FleetError::System { what: "start a thread", source })?;
    let queryable = session
        .declare_queryable(protocol::request_key(&config.name, service.instance()))
        .callback(move |query| receiver.receive(query))
        .wait()
        .map_err(failed("receive requests"))?;
    let renewing = Arc::clone(&service);
    let renewals = session
        .declare_subscriber(protocol::coordinator_key("*"))
        .callback(move |sample| {
            if let Ok(protocol::Renewal { run }) = protocol::decode_short(sample.payload()) {
                renewing.renew(protocol::last_segment(sample.key_expr().as_str()), &run);
            }
        })
        .wait()
        .map_err(failed("receive lease renewals"))?;
    // Last: a coordinator that sees the token may send requests.
    let token = session.liveliness().declare_token(protocol::agent_key(&config.name, service.instance()));
    let token = token.wait().map_err(failed("announce the agent"))?;
    let end = run_loop(config, &session, &service, notify);
    drop((token, queryable, renewals));
    service.end_run();
    let deadline = Deadline::after(LEAVE_WITHIN);
    while !worker.is_done() {
        if !deadline.pause(LEAVE_POLL) {
            notify(
                "leaving although a part has not ended yet; if it leaves something behind, 'kagiri undo' \
                 removes it",
            );
            break;
        }
    }
    // A late request may have started a run.
    service.end_run();
    // A router that is gone needs no close.
    drop(session.close().wait());
    Ok(end)
}

fn run_loop(
    config: &AgentConfig,
    session: &Session,
    service: &AgentService,
    notify: &dyn Fn(&str),
) -> Option<End> {
    let mut heartbeats = heartbeat::Heartbeats::default();
    let mut router_check = Deadline::after(ROUTER_CHECK_INTERVAL);
    loop {
        if config.stop.load(Ordering::Relaxed) {
            return Some(End::Stopped);
        }
        if service.is_run_over() && config.once {
            return Some(End::RunOver);
        }
        if router_check.passed() {
            session.info().routers_zid().wait().next()?;
            router_check = Deadline::after(ROUTER_CHECK_INTERVAL);
        }
        service.end_expired_run();
        service.take_refusals().iter().for_each(|line| notify(line));
        let is_idle = !heartbeats.send_if_due(service);
        std::thread::sleep(if is_idle { IDLE_POLL_INTERVAL } else { POLL_INTERVAL });
    }
}
