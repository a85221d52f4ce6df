//! The coordinator: gathers a fleet's agents, compares their clocks, and drives parts on them.

pub mod ask;
mod bus;
mod clocks;
mod gather;
mod lease;
mod roster;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::placement::Wish;
use zenoh::liveliness::LivelinessToken;
use zenoh::pubsub::Subscriber;
use zenoh::sample::SampleKind;
use zenoh::{Session, Wait};

pub use bus::FleetBus;
pub use gather::Agent;
pub use roster::{Known, Roster};

use crate::clock::DatagramAddress;
use crate::protocol::{self, Description};
use crate::{FleetError, session};
use clocks::Clocks;
use lease::Renewing;

/// How long an agent may take to answer what needs no work.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long joining may take once it has begun.
const JOIN_WITHIN: Duration = Duration::from_secs(10);

/// How a coordinator is made.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Where it listens, or which router it uses.
    pub role: session::Role,
    /// zenoh's settings of identity and access.
    pub more: Vec<session::Setting>,
    /// Where it answers clock probes.
    pub clock: DatagramAddress,
    /// What agents' policies know it by.
    pub name: String,
    /// The run.
    pub run: String,
    /// Raised when the run is to end early.
    pub stop: Arc<AtomicBool>,
}

/// An agent's name, and what it says of itself, with how far its calendar clock is ahead, in s.
type Described = (String, Result<(Description, f64), String>);

/// A coordinator, joined by agents from its beginning on.
pub struct Coordinator {
    session: Session,
    /// Its own key's last word.
    id: String,
    name: String,
    run: String,
    roster: Roster,
    /// The agents that work for the run.
    agents: BTreeMap<String, Agent>,
    clocks: Clocks,
    /// Hosts that fit the plan and were not taken, and why.
    left_out: Vec<(String, String)>,
    stop: Arc<AtomicBool>,
    renewing: Option<Renewing>,
    _heard: Vec<Subscriber<()>>,
    _token: LivelinessToken,
}

impl Coordinator {
    /// Begin to listen.
    ///
    /// # Errors
    /// Nothing can listen there, or the router cannot be reached.
    pub fn open(setting: Setting) -> Result<Self, FleetError> {
        let clocks = Clocks::start(&setting.clock)?;
        let session = session::open(&setting.role, &setting.more, JOIN_WITHIN)?;
        let failed =
            |what: &'static str| move |error: zenoh::Error| FleetError::Bus { what, why: error.to_string() };
        let (roster, run) = (Roster::default(), setting.run.clone());
        let (tokens, tells) = (roster.clone(), roster.clone());
        let heard = vec![
            session
                .liveliness()
                .declare_subscriber(protocol::agents_key())
                .history(true)
                .callback(move |sample| {
                    tokens.token(sample.key_expr().as_str(), sample.kind() == SampleKind::Put);
                })
                .wait()
                .map_err(failed("watch for agents"))?,
            session
                .declare_subscriber(protocol::tell_key("*"))
                .callback(move |sample| {
                    if let Ok(tell) = protocol::read(&sample.payload().to_bytes()) {
                        tells.told(protocol::name_of(sample.key_expr().as_str()), tell, &run);
                    }
                })
                .wait()
                .map_err(failed("listen to agents"))?,
        ];
        let id = session.zid().to_string();
        let token = session.liveliness().declare_token(protocol::coordinator_key(&id));
        let token = token.wait().map_err(failed("announce itself"))?;
        let Setting { name, run, stop, .. } = setting;
        Ok(Self {
            session,
            id,
            name,
            run,
            roster,
            agents: BTreeMap::new(),
            clocks,
            left_out: Vec::new(),
            stop,
            renewing: None,
            _heard: heard,
            _token: token,
        })
    }

    /// The agents that are there now, whoever they work for.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Everybody's description, by one question to all; who does not answer in time is left out.
    ///
    /// # Errors
    /// The bus does not carry it.
    pub fn describe_all(&self, within: Duration) -> Result<Vec<Description>, FleetError> {
        Ok(self.described(within)?.into_iter().filter_map(|(_, one)| Some(one.ok()?.0)).collect())
    }

    /// What each agent that answers says of itself, by the name that it answers under; or why that is nothing.
    fn described(&self, within: Duration) -> Result<Vec<Described>, FleetError> {
        let failed = |why| FleetError::Bus { what: "ask all agents", why };
        let now_s = || sys::clock::realtime_ns() as f64 / 1e9;
        let asked_s = now_s();
        let answers = ask::send(&self.session, "*", &protocol::Ask::Describe, within).map_err(failed)?;
        let named = answers.iter().filter(|(name, _)| protocol::is_name(name));
        let described = named.filter_map(|(name, answer)| {
            let description = match answer? {
                Ok(protocol::Answer::Description(one)) if one.name == name => {
                    // By each answer as it comes: the slowest must not shift the others.
                    let off_s = one.realtime_s - f64::midpoint(asked_s, now_s());
                    Ok((*one, off_s))
                }
                Ok(_) => Err("its answer does not fit".to_owned()),
                Err(why) => Err(why),
            };
            Some((name, description))
        });
        Ok(described.collect())
    }

    /// Wait for the hosts that are wished for, and let them work for the run; see [`gather`].
    ///
    /// # Errors
    /// Some did not come in time, or cannot be had; all of them are named.
    pub fn gather(
        &mut self,
        wishes: &[Wish],
        within: Duration,
        say: &dyn Fn(&str),
    ) -> Result<(), FleetError> {
        gather::gather(self, wishes, within, say)
    }

    /// Wait until nobody more joins, and compare clocks with everybody, without taking anybody for the run.
    ///
    /// # Errors
    /// Interrupted.
    pub fn look(&mut self, within: Duration) -> Result<(), FleetError> {
        gather::look(self, within)
    }

    /// The agents that work for the run, by name.
    pub fn agents(&self) -> &BTreeMap<String, Agent> {
        &self.agents
    }

    /// An agent's monotonic clock minus this host's now, and how far that may be wrong, in ns; absent while it is not
    /// known.
    pub fn clock(&self, host: &str) -> Option<(i64, u64)> {
        let (offset, now_ns) = (self.clocks.offset(host).ok()?, self.clocks.now_ns());
        Some((offset.offset_ns(now_ns), offset.bound_ns(now_ns)))
    }

    /// Let agents compare their clocks with this host's.
    fn probe(&mut self, hosts: &[String]) {
        let stop = Arc::clone(&self.stop);
        let goes_on = move || !stop.load(Ordering::Relaxed);
        self.clocks.probe(&self.session, &self.roster, hosts, &goes_on);
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.renewing = None;
        session::close(&self.session);
    }
}

/// The UNIX socket files of a coordinator in a lab's directory: its bus, and its clock.
pub fn lab_sockets(dir: &std::path::Path) -> (PathBuf, PathBuf) {
    (dir.join("bus.sock"), dir.join("clock.sock"))
}
