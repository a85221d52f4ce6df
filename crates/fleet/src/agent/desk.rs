//! The agent's desk: answers questions, one run at a time.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::part::{Endpoints, HostContext, PartError, PartSpec};
use sys::clock::{Deadline, monotonic_ns};
use zenoh::{Session, Wait};

use super::held::{Ending, Held, Owner, Slot};
use super::look::Found;
use super::{Setting, describe, target};
use crate::clock::{self, DatagramAddress, Key, Prober};
use crate::protocol::{self, Answer, Ask, Tell};
use crate::{BusError, build, lateness};

/// What an agent works with.
pub struct Desk {
    setting: Setting,
    instance: String,
    session: Session,
    /// The addresses of the coordinator, or its router.
    joined: Vec<IpAddr>,
    held: Mutex<Option<Held>>,
    /// Whether a run has been held and is over.
    over: AtomicBool,
    /// What was refused, for the host's owner to see.
    refusals: Mutex<Vec<String>>,
}

/// Refusals that wait to be shown; beyond, somebody tries to fill the owner's log.
const REFUSALS_MAX: usize = 100;
/// How long a lease may be, in ms: long enough to be renewed, and not so long that who has vanished keeps a host.
const LEASE_MS: std::ops::RangeInclusive<u64> = 1_000..=60_000;
/// How far ahead a moment to start may be: coordinators take two seconds.
const AHEAD_MAX: Duration = Duration::from_secs(60);
/// How long parts may take to end before whoever has the run ended is told that some still do.
const END_WITHIN: Duration = Duration::from_secs(4);
/// How often it is looked whether they have.
const LOOK: Duration = Duration::from_millis(5);

impl Desk {
    /// An agent that works for nobody yet.
    pub fn new(setting: &Setting, session: Session, found: Found) -> Self {
        let address = setting.host.address.or(found.here);
        let host = HostContext { address, ..setting.host.clone() };
        let setting = Setting { host, ..setting.clone() };
        let instance = session.zid().to_string();
        Self {
            setting,
            instance,
            session,
            joined: found.there,
            held: Mutex::new(None),
            over: AtomicBool::new(false),
            refusals: Mutex::default(),
        }
    }

    /// Its name in the fleet.
    pub fn name(&self) -> &str {
        &self.setting.name
    }

    /// Which instance of that name.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a run has been held and is over.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// A sign of life of a coordinator.
    pub fn renew(&self, coordinator: &str, run: &str) {
        if let Some(held) =
            self.held().as_ref().filter(|held| held.run == run && held.owner.id == coordinator)
        {
            held.renew();
        }
    }

    /// End what is held for a coordinator that has vanished.
    pub fn expire(&self) {
        self.end_if(|held| held.is_expired());
    }

    /// End what is held.
    pub fn end(&self) {
        self.end_if(|_| true);
    }

    /// End what is held if it is what is meant; says what it had, some of which may still end then.
    fn end_if(&self, is_meant: impl FnOnce(&mut Held) -> bool) -> Option<Vec<Ending>> {
        let held = self.held().take_if(is_meant)?;
        let endings = held.endings();
        // Outside the lock: ending parts may take a moment.
        drop(held);
        self.over.store(true, Ordering::Relaxed);
        Some(endings)
    }

    /// How far the parts are, for a beat.
    pub fn beat(&self) -> Option<Tell> {
        let (run, slots, start_late) = {
            let held = self.held();
            let held = held.as_ref()?;
            (held.run.clone(), held.parts.clone(), Arc::clone(&held.start_late))
        };
        // Outside the lock: a part that is slow to say holds up nobody but the beat.
        let parts = slots.iter().map(|(name, slot)| (name.clone(), slot.progress()));
        let live = slots.iter().map(|(name, slot)| (name.clone(), slot.live()));
        Some(Tell::Beat {
            run,
            parts: parts.collect(),
            live: live.filter(|(_, live)| !live.is_empty()).collect(),
            start_late_ns: lateness::seen(&start_late),
        })
    }

    /// Tell the coordinator something.
    pub fn tell(&self, tell: &Tell) {
        // What does not arrive is told again with the next beat, or the coordinator is gone.
        drop(self.session.put(protocol::tell_key(self.name()), protocol::write(tell)).wait());
    }

    /// What was refused since the last look.
    pub fn take_refusals(&self) -> Vec<String> {
        std::mem::take(&mut self.refusals.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note_refusal(&self, run: Option<&str>, error: &PartError) {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if refusals.len() < REFUSALS_MAX {
            // All of it may be what the coordinator wrote.
            refusals.push(protocol::plain(&format!("refused run {}: {error}", run.unwrap_or("-"))));
        }
    }

    /// Answer one question; may take as long as preparing takes.
    pub fn answer(&self, ask: Ask) -> Answer {
        let run = ask.run().map(str::to_owned);
        let answered = match ask {
            Ask::Describe => Ok(Answer::Description(Box::new(self.describe()))),
            Ask::Probe { target, key, batch } => self.probe(target, key, batch),
            Ask::Take { run, coordinator, name, fleet, lease_ms } => {
                self.take(run, Owner { id: coordinator, name, fleet }, lease_ms)
            }
            Ask::Place { run, specs } => self.place(&run, specs),
            Ask::Prepare { run, parts, peers } => self.prepare(&run, &parts, &peers),
            Ask::Start { run, parts, at_ns } => self.start(&run, &parts, at_ns),
            Ask::Stop { run, parts } => self.stop(&run, &parts),
            Ask::Release { run } => self.release(&run),
        };
        answered.unwrap_or_else(|(part, error)| {
            self.note_refusal(run.as_deref(), &error);
            Answer::Refused { part, error }
        })
    }

    fn describe(&self) -> protocol::Description {
        let busy = self.held().as_ref().map(|held| held.run.clone());
        describe::describe(&self.setting, &self.instance, busy)
    }

    fn probe(&self, target: DatagramAddress, key: Key, batch: clock::Ask) -> Answered {
        let permit = || {
            let owner = self.held().as_ref().map(|held| held.owner.clone());
            (self.setting.grants)(&owner.unwrap_or_default(), target::KIND)
        };
        let target = target::allowed(target, &self.setting.join, &self.joined, permit);
        let target = target.map_err(|error| (None, error))?;
        let mut prober = Prober::open(&target, key).map_err(agents)?;
        prober.batch(target::bounded(batch)).map(Answer::Probed).map_err(agents)
    }

    fn take(&self, run: String, owner: Owner, lease_ms: u64) -> Answered {
        self.expire();
        let mut held = self.held();
        match held.as_ref() {
            Some(other) if other.run != run => {
                Err(agents(format!("it works for run {}: wait until that is over", other.run)))
            }
            Some(_) => Ok(Answer::Done),
            None => {
                let (session, name, of) = (self.session.clone(), self.name().to_owned(), run.clone());
                let say = move |line: &str| {
                    let tell = Tell::Line { run: of.clone(), text: line.to_owned() };
                    // A line more or less.
                    drop(session.put(protocol::tell_key(&name), protocol::write(&tell)).wait());
                };
                let host = HostContext { say: Arc::new(say), ..self.setting.host.clone() };
                let lease_ms = lease_ms.clamp(*LEASE_MS.start(), *LEASE_MS.end());
                *held = Some(Held::new(run, owner, lease_ms, host));
                Ok(Answer::Done)
            }
        }
    }

    /// Do something with what is held for a run.
    fn with<T>(&self, run: &str, work: impl FnOnce(&mut Held) -> Result<T, Refusal>) -> Result<T, Refusal> {
        match self.held().as_mut() {
            Some(held) if held.run == run => work(held),
            _ => Err(agents(format!("it does not work for run {run} any more: its lease was over"))),
        }
    }

    fn place(&self, run: &str, specs: Vec<PartSpec>) -> Answered {
        let owner = self.with(run, |held| Ok(held.owner.clone()))?;
        for spec in specs {
            let refused = |error| (Some(spec.name.clone()), error);
            let permit = (self.setting.grants)(&owner, &spec.kind).map_err(refused)?;
            let part = build(&self.setting.kinds, &spec).map_err(|error| match error {
                BusError::Part { error, .. } => refused(error),
                other => refused(PartError::new(other)),
            })?;
            let slot = Slot::new(part, permit);
            // Whatever it replaces is dropped outside the lock.
            drop(self.with(run, |held| Ok(held.place(spec.name.clone(), slot)))?);
        }
        Ok(Answer::Done)
    }

    /// Parts, each of which hears first, while nobody can end it, what will be done with it.
    fn slots(
        &self,
        run: &str,
        names: &[String],
        hears: impl Fn(&Slot),
    ) -> Result<(Vec<(String, Slot)>, HostContext), Refusal> {
        self.with(run, |held| {
            let slot = |name: &String| match held.parts.get(name) {
                Some(slot) => {
                    hears(slot);
                    Ok((name.clone(), slot.clone()))
                }
                None => Err(agents(format!("there is no part '{name}' here"))),
            };
            Ok((names.iter().map(slot).collect::<Result<_, _>>()?, held.host.clone()))
        })
    }

    fn prepare(&self, run: &str, names: &[String], peers: &Endpoints) -> Answered {
        let (slots, host) = self.slots(run, names, Slot::will_prepare)?;
        let mut endpoints = Endpoints::new();
        for (name, slot) in slots {
            let endpoint = slot.prepare(peers, &host);
            endpoints.insert(name.clone(), endpoint.map_err(|error| (Some(name), error))?);
        }
        Ok(Answer::Prepared(endpoints))
    }

    fn start(&self, run: &str, names: &[String], at_ns: u64) -> Answered {
        let (slots, _) = self.slots(run, names, |_| ())?;
        let now_ns = monotonic_ns();
        if now_ns >= at_ns {
            let late_ms = (now_ns - at_ns) as f64 / 1e6;
            return Err(agents(format!("the order to start came {late_ms:.1} ms after the moment itself")));
        }
        if at_ns - now_ns > AHEAD_MAX.as_nanos() as u64 {
            // Threads would wait for it that nothing ends.
            let ahead_s = (at_ns - now_ns) / 1_000_000_000;
            return Err(agents(format!("the moment to start is {ahead_s} s ahead, more than {AHEAD_MAX:?}")));
        }
        for (name, slot) in slots {
            // What cannot be done in time is no fault of the part's.
            let whose = |error| ((monotonic_ns() < at_ns).then_some(name), error);
            slot.part().start(at_ns).map_err(whose)?;
        }
        let late = lateness::watch(at_ns).map_err(agents)?;
        self.with(run, |held| {
            held.start_late = late;
            Ok(Answer::Done)
        })
    }

    fn stop(&self, run: &str, names: &[String]) -> Answered {
        let mut reports = BTreeMap::new();
        for name in names {
            let slot = self.with(run, |held| Ok(held.parts.remove(name)))?;
            let gone = || Err(PartError::new(format!("there is no part '{name}' here")));
            reports.insert(name.clone(), slot.map_or_else(gone, |slot| slot.stop()));
        }
        Ok(Answer::Stopped(reports))
    }

    fn release(&self, run: &str) -> Answered {
        let ended = self.end_if(|held| held.run == run);
        let endings = ended.ok_or_else(|| agents(format!("it does not work for run {run} any more")))?;
        let deadline = Deadline::after(END_WITHIN);
        while let Some(part) = endings.iter().find(|part| !part.is_gone()) {
            if !deadline.pause(LOOK) {
                return Err(agents(format!("part '{}' has not ended within {END_WITHIN:?}", part.name)));
            }
        }
        Ok(Answer::Done)
    }
}

/// Why something was not done: by a part, or by the agent.
type Refusal = (Option<String>, PartError);
type Answered = Result<Answer, Refusal>;

fn agents(error: impl std::fmt::Display) -> Refusal {
    (None, PartError::new(error))
}
