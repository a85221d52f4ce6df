//! The agent: joins a coordinator whenever there is one, and runs the parts that it is given.

mod beat;
mod describe;
mod desk;
mod held;
mod look;
mod questions;
mod target;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::part::{HostContext, PartError, PartKind};
use base::permit::Permit;
use serde_json::Value;
use sys::clock::Deadline;
use zenoh::{Session, Wait};

use crate::protocol;
use crate::{FleetError, session};
use desk::Desk;
pub use held::Owner;
use look::{Found, look};
use questions::Clerk;

/// Between two looks whether there is a coordinator to join. A look is one connection that is refused at once.
const LOOK_EVERY: Duration = Duration::from_millis(400);
/// How long joining may take once it has begun.
const JOIN_WITHIN: Duration = Duration::from_secs(10);
/// How often the agent looks at its parts ...
const TURN: Duration = Duration::from_millis(50);
/// ... and how often when it has none: an idle agent costs next to nothing.
const IDLE_TURN: Duration = Duration::from_millis(200);
/// How often it looks whether the coordinator is still there.
const ROUTER_LOOK: Duration = Duration::from_millis(500);
/// How long questions that are worked on are waited for when the agent leaves: a part is dropped, and puts back what it changed, by the thread
/// that works with it.
const LEAVE_WITHIN: Duration = Duration::from_secs(10);
/// How often it is looked whether they are done.
const LEAVE_LOOK: Duration = Duration::from_millis(5);

/// Says whether a coordinator may have a kind of part run here, and what the part may do then.
pub type Grants = Arc<dyn Fn(&Owner, &str) -> Result<Arc<dyn Permit>, PartError> + Send + Sync>;

/// How an agent is made.
#[derive(Clone)]
pub struct Setting {
    /// Its name in the fleet.
    pub name: String,
    /// The coordinator's endpoint, as zenoh writes it.
    pub join: String,
    /// zenoh's settings of identity.
    pub more: Vec<session::Setting>,
    /// The parts that it can build.
    pub kinds: Vec<PartKind>,
    /// What the host offers them; without an address, others reach it at the one that it joins from.
    pub host: HostContext,
    /// What its owner lets them do.
    pub grants: Grants,
    /// Its version of kagiri.
    pub version: String,
    /// Facts of the host.
    pub environment: BTreeMap<String, Value>,
    /// End when a run is over.
    pub once: bool,
    /// Give up when there was no coordinator for this long.
    pub join_within: Option<Duration>,
    /// Raised when the agent is to end.
    pub stop: Arc<AtomicBool>,
}

/// Why an agent has ended in good order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It was told to.
    Stopped,
    /// Its one run is over.
    RunOver,
}

/// Be an agent until told to stop. `say` is told of joining and leaving; `reasons` brings zenoh's own words about why
/// joining fails, which its errors do not have.
///
/// # Errors
/// No coordinator could be joined in time.
pub fn run(
    setting: &Setting,
    say: &dyn Fn(&str),
    reasons: &dyn Fn() -> Option<String>,
) -> Result<End, FleetError> {
    let mut give_up = setting.join_within.map(Deadline::after);
    let mut told = String::new();
    let mut tell_once = |line: String| {
        if line != told {
            say(&line);
            told = line;
        }
    };
    loop {
        if setting.stop.load(Ordering::Relaxed) {
            return Ok(End::Stopped);
        }
        let why = match look(&setting.join) {
            Ok(found) => match session::open(&client(setting), &setting.more, JOIN_WITHIN) {
                Ok(session) => {
                    tell_once(format!("joined {} as {}", setting.join, setting.name));
                    if let Some(end) = serve(setting, session, found, say)? {
                        return Ok(end);
                    }
                    tell_once(format!("left {}: the coordinator is gone", setting.join));
                    // Whether it was needed or not, that run is over.
                    if setting.once {
                        return Ok(End::RunOver);
                    }
                    give_up = setting.join_within.map(Deadline::after);
                    pause();
                    continue;
                }
                Err(error) => reasons().unwrap_or_else(|| error.to_string()),
            },
            Err(error) => format!("nobody is there ({error})"),
        };
        if give_up.as_ref().is_some_and(Deadline::passed) {
            return Err(FleetError::Open { what: "join", endpoint: setting.join.clone(), why });
        }
        tell_once(format!("waiting for {}: {why}", setting.join));
        pause();
    }
}

/// Not in step with others: a thousand agents that lost their coordinator together do not come back all at once.
fn pause() {
    std::thread::sleep(LOOK_EVERY.mul_f64(0.5 + fastrand::f64()));
}

fn client(setting: &Setting) -> session::Role {
    session::Role::Client { connect: setting.join.clone() }
}

/// Work for whoever asks, until the coordinator is gone (`None`), the run is over, or the agent is told to stop.
fn serve(
    setting: &Setting,
    session: Session,
    found: Found,
    say: &dyn Fn(&str),
) -> Result<Option<End>, FleetError> {
    let desk = Arc::new(Desk::new(setting, session.clone(), found));
    let failed =
        |what: &'static str| move |error: zenoh::Error| FleetError::Bus { what, why: error.to_string() };
    let started = Clerk::start(Arc::clone(&desk));
    let (ear, clerk) = started.map_err(|source| FleetError::System { what: "start a thread", source })?;
    let questions = session
        .declare_queryable(protocol::ask_key(&setting.name, desk.instance()))
        .callback(move |query| ear.hear(query))
        .wait()
        .map_err(failed("answer questions"))?;
    let renewed = Arc::clone(&desk);
    let renewals = session
        .declare_subscriber(protocol::coordinator_key("*"))
        .callback(move |sample| {
            if let Ok(protocol::Renewal { run }) = protocol::read(&sample.payload().to_bytes()) {
                renewed.renew(protocol::name_of(sample.key_expr().as_str()), &run);
            }
        })
        .wait()
        .map_err(failed("hear renewals"))?;
    // Last: whoever sees the token may ask.
    let token = session.liveliness().declare_token(protocol::agent_key(&setting.name, desk.instance()));
    let token = token.wait().map_err(failed("announce itself"))?;
    let end = turns(setting, &session, &desk, say);
    drop((token, questions, renewals));
    desk.end();
    let deadline = Deadline::after(LEAVE_WITHIN);
    while !clerk.is_done() {
        if !deadline.pause(LEAVE_LOOK) {
            say(
                "leaving, although a part has not ended yet; if it leaves something behind, 'kagiri undo' removes it",
            );
            break;
        }
    }
    // What a question that came late has begun.
    desk.end();
    // A router that is gone cannot be told goodbye, and need not be.
    drop(session.close().wait());
    Ok(end)
}

fn turns(setting: &Setting, session: &Session, desk: &Desk, say: &dyn Fn(&str)) -> Option<End> {
    let mut beats = beat::Beats::default();
    let mut router_look = Deadline::after(ROUTER_LOOK);
    loop {
        if setting.stop.load(Ordering::Relaxed) {
            return Some(End::Stopped);
        }
        if desk.is_over() && setting.once {
            return Some(End::RunOver);
        }
        if router_look.passed() {
            session.info().routers_zid().wait().next()?;
            router_look = Deadline::after(ROUTER_LOOK);
        }
        desk.expire();
        desk.take_refusals().iter().for_each(|line| say(line));
        let is_idle = !beats.turn(desk);
        std::thread::sleep(if is_idle { IDLE_TURN } else { TURN });
    }
}
