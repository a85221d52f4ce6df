//! The coordinator: recruits a fleet's agents, compares their clocks, and drives parts on them.

mod bus;
mod clocks;
pub mod fan_out;
mod lease;
mod membership;
mod recruit;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::placement::Wish;
use zenoh::Wait;
use zenoh::liveliness::LivelinessToken;
use zenoh::pubsub::Subscriber;
use zenoh::sample::SampleKind;

pub use bus::FleetBus;
pub use membership::{LogLine, MemberState, Membership};
pub use recruit::Agent;

use crate::FleetError;
use crate::clock::DatagramAddress;
use crate::identity::Credentials;
use crate::protocol::{self, Description};
use crate::session::{self, BusSession};
use clocks::Clocks;
use fan_out::Described;
use lease::LeaseRenewer;

/// For requests that need no work.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const JOIN_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub struct CoordinatorConfig {
    pub role: session::Role,
    /// For `tls/` endpoints.
    pub credentials: Option<Credentials>,
    /// zenoh's settings for access control.
    pub more: Vec<session::ZenohSetting>,
    pub clock: DatagramAddress,
    pub name: String,
    pub run: String,
    pub stop: Arc<AtomicBool>,
}

pub struct Coordinator {
    session: BusSession,
    /// Last segment of its key.
    id: String,
    name: String,
    run: String,
    membership: Membership,
    agents: BTreeMap<String, Agent>,
    clocks: Clocks,
    /// Hosts that match the plan but were not taken, and why.
    left_out: Vec<(String, String)>,
    stop: Arc<AtomicBool>,
    lease_renewer: Option<LeaseRenewer>,
    _subscribers: Vec<Subscriber<()>>,
    _token: LivelinessToken,
}

impl Coordinator {
    pub fn open(config: CoordinatorConfig) -> Result<Self, FleetError> {
        let clocks = Clocks::start(&config.clock)?;
        let session = session::open(&config.role, config.credentials.as_ref(), &config.more, JOIN_WITHIN)?;
        let failed =
            |what: &'static str| move |error: zenoh::Error| FleetError::Bus { what, why: error.to_string() };
        let (membership, run) = (Membership::default(), config.run.clone());
        let (tokens, notified) = (membership.clone(), membership.clone());
        let subscribers = vec![
            session
                .liveliness()
                .declare_subscriber(protocol::agents_key())
                .history(true)
                .callback(move |sample| {
                    tokens.update_presence(sample.key_expr().as_str(), sample.kind() == SampleKind::Put);
                })
                .wait()
                .map_err(failed("watch for agents"))?,
            session
                .declare_subscriber(protocol::notification_key("*"))
                .callback(move |sample| {
                    if let Ok(notification) = protocol::decode_short(sample.payload()) {
                        notified.record_notification(
                            protocol::last_segment(sample.key_expr().as_str()),
                            notification,
                            &run,
                        );
                    }
                })
                .wait()
                .map_err(failed("receive notifications"))?,
        ];
        let id = session.zid().to_string();
        let token = session.liveliness().declare_token(protocol::coordinator_key(&id));
        let token = token.wait().map_err(failed("announce itself"))?;
        let CoordinatorConfig { name, run, stop, .. } = config;
        Ok(Self {
            session,
            id,
            name,
            run,
            membership,
            agents: BTreeMap::new(),
            clocks,
            left_out: Vec::new(),
            stop,
            lease_renewer: None,
            _subscribers: subscribers,
            _token: token,
        })
    }

    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    pub fn describe_all(&self, within: Duration) -> Result<Vec<Description>, FleetError> {
        Ok(self.described(within)?.into_iter().filter_map(|(_, one)| Some(one.ok()?.0)).collect())
    }

    fn described(&self, within: Duration) -> Result<Vec<Described>, FleetError> {
        let failed = |why| FleetError::Bus { what: "ask all agents", why };
        fan_out::describe_all(&self.session, within).map_err(failed)
    }

    /// Waits for the hosts that the plan asks for and takes them for the run.
    pub fn recruit(
        &mut self,
        wishes: &[Wish],
        within: Duration,
        notify: &dyn Fn(&str),
    ) -> Result<(), FleetError> {
        recruit::recruit(self, wishes, within, notify)
    }

    /// Waits until no more agents join, and compares clocks with all of them. Takes none for the run.
    pub fn compare_clocks(&mut self, within: Duration) -> Result<(), FleetError> {
        recruit::compare_clocks(self, within)
    }

    pub fn agents(&self) -> &BTreeMap<String, Agent> {
        &self.agents
    }

    /// An agent's monotonic clock minus this host's, with its bound, in ns; `None` if unknown.
    pub fn clock(&self, host: &str) -> Option<(i64, u64)> {
        let (offset, now_ns) = (self.clocks.offset(host).ok()?, self.clocks.now_ns());
        Some((offset.offset_ns(now_ns), offset.bound_ns(now_ns)))
    }

    fn probe(&mut self, hosts: &[String]) {
        let stop = Arc::clone(&self.stop);
        let is_running = move || !stop.load(Ordering::Relaxed);
        self.clocks.probe(&self.session, &self.membership, hosts, &is_running);
    }

    fn is_running(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.lease_renewer = None;
        session::close(&self.session);
    }
}

/// Sockets of a lab's coordinator: bus and clock.
pub fn lab_sockets(dir: &std::path::Path) -> (PathBuf, PathBuf) {
    (dir.join("bus.sock"), dir.join("clock.sock"))
}
