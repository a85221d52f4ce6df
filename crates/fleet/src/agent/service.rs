//! Handles the requests of coordinators, for one run at a time.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::part::{Endpoints, HostContext, PartError, PartSpec, Say};
use sys::clock::{Deadline, monotonic_ns};
use zenoh::qos::CongestionControl;
use zenoh::{Session, Wait};

use super::endpoint_probe::ReachableEndpoint;
use super::run_lease::{EndingPart, PartSlot, RunLease, RunOwner};
use super::{AgentConfig, describe, probe_targets};
use crate::clock::{self, DatagramAddress, Key, Prober};
use crate::protocol::{self, Notification, Request, Response};
use crate::{BusError, build, wakeup_latency};

pub struct AgentService {
    config: AgentConfig,
    instance: String,
    session: Session,
    coordinator_addresses: Vec<IpAddr>,
    lease: Mutex<Option<RunLease>>,
    had_run: AtomicBool,
    /// Refused requests, to be shown to the owner of the host.
    refusals: Mutex<Vec<String>>,
}

/// Later refusals are dropped, so that requests cannot fill the owner's log.
const REFUSALS_MAX: usize = 100;
/// Bounds of a lease, in ms: long enough to be renewed, short enough that a vanished coordinator frees the
/// host.
const LEASE_MS: std::ops::RangeInclusive<u64> = 1_000..=60_000;
/// Coordinators choose two seconds at most.
const START_LEAD_MAX: Duration = Duration::from_secs(60);
const END_WITHIN: Duration = Duration::from_secs(4);
const END_POLL: Duration = Duration::from_millis(5);

impl AgentService {
    pub fn new(config: &AgentConfig, session: Session, endpoint: ReachableEndpoint) -> Self {
        let address = config.host.address.or(endpoint.local_address);
        let host = HostContext { address, ..config.host.clone() };
        let config = AgentConfig { host, ..config.clone() };
        let instance = session.zid().to_string();
        Self {
            config,
            instance,
            session,
            coordinator_addresses: endpoint.peer_addresses,
            lease: Mutex::new(None),
            had_run: AtomicBool::new(false),
            refusals: Mutex::default(),
        }
    }

    pub fn name(&self) -> &str {
        &self.config.name
    }

    pub fn instance(&self) -> &str {
        &self.instance
    }

    fn lease(&self) -> MutexGuard<'_, Option<RunLease>> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_run_over(&self) -> bool {
        self.had_run.load(Ordering::Relaxed)
    }

    pub fn renew(&self, coordinator: &str, run: &str) {
        if let Some(lease) =
            self.lease().as_ref().filter(|lease| lease.run == run && lease.owner.id == coordinator)
        {
            lease.renew();
        }
    }

    pub fn end_expired_run(&self) {
        self.end_run_if(|lease| lease.is_expired());
    }

    pub fn end_run(&self) {
        self.end_run_if(|_| true);
    }

    /// Ends the current run if `is_meant` accepts it. Returns its parts, some of which may still be ending.
    fn end_run_if(&self, is_meant: impl FnOnce(&mut RunLease) -> bool) -> Option<Vec<EndingPart>> {
        let lease = self.lease().take_if(is_meant)?;
        let ending_parts = lease.ending_parts();
        // Outside the lock: ending parts may take a moment.
        drop(lease);
        self.had_run.store(true, Ordering::Relaxed);
        Some(ending_parts)
    }

    pub fn heartbeat(&self) -> Option<Notification> {
        let (run, slots, start_late) = {
            let lease = self.lease();
            let lease = lease.as_ref()?;
            (lease.run.clone(), lease.parts.clone(), Arc::clone(&lease.start_late))
        };
        // Outside the lock: a slow part delays the heartbeat only.
        let parts = slots.iter().map(|(name, slot)| (name.clone(), slot.progress()));
        let live = slots.iter().map(|(name, slot)| (name.clone(), slot.live()));
        Some(Notification::Heartbeat {
            run,
            parts: parts.collect(),
            live: live.filter(|(_, live)| !live.is_empty()).collect(),
            start_late_ns: wakeup_latency::read(&start_late),
        })
    }

    pub fn notify(&self, notification: &Notification) {
        send(&self.session, &protocol::notification_key(self.name()), notification);
    }

    pub fn take_refusals(&self) -> Vec<String> {
        std::mem::take(&mut self.refusals.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note_refusal(&self, run: Option<&str>, error: &PartError) {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if refusals.len() < REFUSALS_MAX {
            // The text may come from the coordinator.
            refusals.push(protocol::sanitize(&format!("refused run {}: {error}", run.unwrap_or("-"))));
        }
    }

    /// Blocks as long as preparing takes.
    pub fn handle(&self, request: Request) -> Response {
        let run = request.run().map(str::to_owned);
        let response = match request {
            Request::Describe => Ok(Response::Description(Box::new(self.describe()))),
            Request::Probe { target, key, batch } => self.probe(target, key, batch),
            Request::Take { run, coordinator, name, fleet, lease_ms } => {
                self.accept_run(run, RunOwner { id: coordinator, name, fleet }, lease_ms)
            }
            Request::Place { run, specs } => self.place(&run, specs),
            Request::Prepare { run, parts, peers } => self.prepare(&run, &parts, &peers),
            Request::Start { run, parts, at_ns } => self.start(&run, &parts, at_ns),
            Request::Stop { run, parts } => self.stop(&run, &parts),
            Request::Release { run } => self.release(&run),
        };
        response.unwrap_or_else(|(part, error)| {
            self.note_refusal(run.as_deref(), &error);
            Response::Refused { part, error }
        })
    }

    fn describe(&self) -> protocol::Description {
        let busy = self.lease().as_ref().map(|lease| lease.run.clone());
        describe::describe(&self.config, &self.instance, busy)
    }

    fn probe(&self, target: DatagramAddress, key: Key, batch: clock::BatchRequest) -> HandlerResult {
        let permit = || {
            let owner = self.lease().as_ref().map(|lease| lease.owner.clone());
            (self.config.permits)(&owner.unwrap_or_default(), probe_targets::PERMIT_KIND)
        };
        let target =
            probe_targets::permitted_target(target, &self.config.join, &self.coordinator_addresses, permit);
        let target = target.map_err(|error| (None, error))?;
        let mut prober = Prober::open(&target, key).map_err(agent_refusal)?;
        prober.batch(probe_targets::bounded_batch(batch)).map(Response::Probed).map_err(agent_refusal)
    }

    fn accept_run(&self, run: String, owner: RunOwner, lease_ms: u64) -> HandlerResult {
        self.end_expired_run();
        let taken = || {
            Ok(Response::Taken {
                configuration: describe::configuration(&self.config.version),
                environment: self.config.environment.clone(),
            })
        };
        let mut lease = self.lease();
        match lease.as_ref() {
            Some(other) if other.run != run => {
                Err(agent_refusal(format!("it is busy with run {}; wait until that run ends", other.run)))
            }
            Some(_) => taken(),
            None => {
                let (session, of_run) = (self.session.clone(), run.clone());
                let key = protocol::notification_key(self.name());
                let notify = move |needed: bool| -> Say {
                    let (session, key, run) = (session.clone(), key.clone(), of_run.clone());
                    Arc::new(move |line: &str| {
                        let log = Notification::Log { run: run.clone(), text: line.to_owned(), needed };
                        send(&session, &key, &log);
                    })
                };
                let (say, announce) = (notify(false), Some(notify(true)));
                let host = HostContext { say, announce, ..self.config.host.clone() };
                let lease_ms = lease_ms.clamp(*LEASE_MS.start(), *LEASE_MS.end());
                *lease = Some(RunLease::new(run, owner, lease_ms, host));
                taken()
            }
        }
    }

    fn with_lease<T>(
        &self,
        run: &str,
        work: impl FnOnce(&mut RunLease) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        match self.lease().as_mut() {
            Some(lease) if lease.run == run => work(lease),
            _ => Err(agent_refusal(format!("it no longer works for run {run}: the lease expired"))),
        }
    }

    fn place(&self, run: &str, specs: Vec<PartSpec>) -> HandlerResult {
        let owner = self.with_lease(run, |lease| Ok(lease.owner.clone()))?;
        for spec in specs {
            let refused = |error| (Some(spec.name.clone()), error);
            let permit = (self.config.permits)(&owner, &spec.kind).map_err(refused)?;
            let part = build(&self.config.kinds, &spec).map_err(|error| match error {
                BusError::Part { error, .. } => refused(error),
                other => refused(PartError::new(other)),
            })?;
            let slot = PartSlot::new(part, permit);
            // The replaced part is dropped outside the lock.
            drop(self.with_lease(run, |lease| Ok(lease.place(spec.name.clone(), slot)))?);
        }
        Ok(Response::Done)
    }

    /// Looks up parts and marks each one under the lock, so that none can be ended in between.
    fn slots(
        &self,
        run: &str,
        names: &[String],
        mark: impl Fn(&PartSlot),
    ) -> Result<(Vec<(String, PartSlot)>, HostContext), Refusal> {
        self.with_lease(run, |lease| {
            let slot = |name: &String| match lease.parts.get(name) {
                Some(slot) => {
                    mark(slot);
                    Ok((name.clone(), slot.clone()))
                }
                None => Err(agent_refusal(format!("there is no part '{name}' here"))),
            };
            Ok((names.iter().map(slot).collect::<Result<_, _>>()?, lease.host.clone()))
        })
    }

    fn prepare(&self, run: &str, names: &[String], peers: &Endpoints) -> HandlerResult {
        let (slots, host) = self.slots(run, names, PartSlot::mark_preparing)?;
        let mut endpoints = Endpoints::new();
        for (name, slot) in slots {
            let endpoint = slot.prepare(peers, &host);
            endpoints.insert(name.clone(), endpoint.map_err(|error| (Some(name), error))?);
        }
        Ok(Response::Prepared(endpoints))
    }

    fn start(&self, run: &str, names: &[String], at_ns: u64) -> HandlerResult {
        let (slots, _) = self.slots(run, names, |_| ())?;
        let now_ns = monotonic_ns();
        if now_ns >= at_ns {
            let late_ms = (now_ns - at_ns) as f64 / 1e6;
            return Err(agent_refusal(format!("the start order came {late_ms:.1} ms after the start time")));
        }
        if at_ns - now_ns > START_LEAD_MAX.as_nanos() as u64 {
            // Nothing would end the threads that wait for it.
            let ahead_s = (at_ns - now_ns) / 1_000_000_000;
            return Err(agent_refusal(format!(
                "the start time is {ahead_s} s ahead, more than {START_LEAD_MAX:?}"
            )));
        }
        for (name, slot) in slots {
            // After the start time the delay is the cause, not the part.
            let whose = |error| ((monotonic_ns() < at_ns).then_some(name), error);
            slot.part().start(at_ns).map_err(whose)?;
        }
        let late = wakeup_latency::measure(at_ns).map_err(agent_refusal)?;
        self.with_lease(run, |lease| {
            lease.start_late = late;
            Ok(Response::Done)
        })
    }

    fn stop(&self, run: &str, names: &[String]) -> HandlerResult {
        let mut reports = BTreeMap::new();
        for name in names {
            let slot = self.with_lease(run, |lease| Ok(lease.parts.remove(name)))?;
            let gone = || Err(PartError::new(format!("there is no part '{name}' here")));
            reports.insert(name.clone(), slot.map_or_else(gone, |slot| slot.stop()));
        }
        Ok(Response::Stopped(reports))
    }

    fn release(&self, run: &str) -> HandlerResult {
        let ended = self.end_run_if(|lease| lease.run == run);
        let ending_parts = ended.ok_or_else(|| agent_refusal(format!("it no longer works for run {run}")))?;
        let deadline = Deadline::after(END_WITHIN);
        while let Some(part) = ending_parts.iter().find(|part| !part.is_dropped()) {
            if !deadline.pause(END_POLL) {
                return Err(agent_refusal(format!(
                    "part '{}' has not ended within {END_WITHIN:?}",
                    part.name
                )));
            }
        }
        Ok(Response::Done)
    }
}

/// Waits while the link is congested: by default zenoh drops the message then. Without a router the message
/// is lost, as the run is.
fn send(session: &Session, key: &str, notification: &Notification) {
    let put = session.put(key, protocol::encode(notification));
    drop(put.congestion_control(CongestionControl::Block).wait());
}

/// Who refused (`None`: the agent itself), and why.
type Refusal = (Option<String>, PartError);
type HandlerResult = Result<Response, Refusal>;

fn agent_refusal(error: impl std::fmt::Display) -> Refusal {
    (None, PartError::new(error))
}
