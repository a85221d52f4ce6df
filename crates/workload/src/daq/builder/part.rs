//! The builders of a host as a part of a run: kind `daq.builder`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use base::part::{Endpoints, HostContext, Live, Part, PartError, PartSpec, Progress};
use serde_json::{Value, json};
use sys::clock::Deadline;

use super::shared::Shared;
use super::told::Told;
use super::turns::{Turns, TurnsPlan};
use super::worker::Worker;
use crate::daq::files;
use crate::daq::report::{BuilderReport, BuildersReport};
use crate::daq::settings::{Draw, Size, Triggers};
use crate::daq::task::{BuilderTask, PortFacts};

/// How long the threads may take to end when they are told to.
const LEAVE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(5);
/// Files that a process has open besides connections, and strangers' connections.
const FILES_BESIDES: u64 = 4_500;

struct BuilderPart {
    task: BuilderTask,
    threads: Vec<(Arc<Shared>, JoinHandle<BuilderReport>)>,
}

/// Make the part from its settings ([`BuilderTask`]), acquiring nothing yet.
///
/// # Errors
/// A usage error that names the key at fault.
pub fn build(spec: &PartSpec) -> Result<Box<dyn Part>, PartError> {
    let task = serde_json::from_value(spec.settings.clone()).map_err(PartError::usage)?;
    Ok(Box::new(BuilderPart { task, threads: Vec::new() }))
}

/// The text of a file that a setting names.
fn text_of(path: &str, key: &str, host: &HostContext) -> Result<String, PartError> {
    host.permit.directory(Path::new(path).parent().unwrap_or(Path::new("")))?;
    std::fs::read_to_string(path)
        .map_err(|error| PartError::usage(format!("{key}: cannot read '{path}': {error}")))
}

/// The rate of the device with the address, bit/s.
fn link_rate(address: std::net::IpAddr) -> Option<f64> {
    let device = (!address.is_loopback()).then(|| sys::proc::interface_with(address).ok()).flatten()?;
    sys::netlink::rate_of(&device, None).ok().flatten().map(|rate| rate as f64)
}

impl BuilderPart {
    fn facts(&self, peers: &Endpoints) -> Result<PortFacts, PartError> {
        let port = &self.task.port;
        let facts = peers.get(port).cloned();
        let facts = facts
            .ok_or_else(|| PartError::new(format!("nobody said where the builders of '{port}' listen")))?;
        serde_json::from_value(facts).map_err(|error| {
            PartError::new(format!("what '{port}' says of its builders makes no sense: {error}"))
        })
    }

    /// What each builder is told.
    fn told(&self, peers: &Endpoints, host: &HostContext) -> Result<Vec<Told>, PartError> {
        let settings = &self.task.settings;
        let sizes = match &settings.size {
            Size::File(path) => text_of(path, "daq.size", host)?,
            _ => String::new(),
        };
        let file = match &settings.size {
            Size::File(path) => format!("{path}: "),
            _ => String::new(),
        };
        let sizes = Draw::new(&settings.size, self.task.seed, &sizes)
            .map_err(|error| PartError::usage(format!("daq.size: {file}{error}")))?;
        let times_ns = match &settings.triggers {
            Triggers::File(path) => Triggers::times_ns(&text_of(path, "daq.triggers", host)?)
                .map_err(|error| PartError::usage(format!("daq.triggers: {path}: {error}")))?,
            _ => Vec::new(),
        };
        let facts = self.facts(peers)?;
        let places = facts.addresses.iter().zip(&facts.groups).zip(self.task.builder_first..);
        let told = places.map(|((&address, &group), builder)| Told {
            settings: settings.clone(),
            builder,
            builders_all: self.task.builders_all,
            run: facts.run,
            address,
            group,
            seed: self.task.seed,
            sizes: sizes.clone(),
            times_ns: times_ns.clone(),
        });
        Ok(told.collect())
    }

    fn turns(&self, told: &[Told]) -> Option<Turns> {
        let first = told.first()?;
        let plan = TurnsPlan {
            choice: self.task.settings.builder_choice,
            builder_first: self.task.builder_first,
            builders: told.len() as u16,
            builders_all: self.task.builders_all,
            window: first.window(),
            events: self.task.settings.events,
        };
        Some(Turns::new(plan, self.task.settings.triggers.due(self.task.seed, first.times_ns.clone())))
    }
}

impl Part for BuilderPart {
    fn prepare(&mut self, peers: &Endpoints, host: &HostContext) -> Result<Value, PartError> {
        let told = self.told(peers, host)?;
        let Some(turns) = self.turns(&told).map(Arc::new) else {
            return Err(PartError::new(format!("'{}' has no port for a builder", self.task.port)));
        };
        for one in &told {
            host.permit.peer(one.address)?;
        }
        let connections = self.task.settings.sources * told.len() as u64;
        // Sources in this process need as many again, and see to it.
        files::allow(connections, false, connections + FILES_BESIDES)?;
        for (seat, one) in told.into_iter().enumerate() {
            let shared = Arc::new(Shared::new().map_err(PartError::new)?);
            let (name, link_bit_per_s) = (format!("builder-{}", one.builder), link_rate(one.address.ip()));
            let mut worker = Worker::new(one, shared.clone(), turns.clone(), seat).map_err(PartError::new)?;
            worker.link_bit_per_s = link_bit_per_s;
            let work = move || {
                // Without it timers are 50 us late; with it nothing is lost but accuracy.
                let _ = sys::thread::set_timer_slack_ns(1);
                worker.run()
            };
            let thread = std::thread::Builder::new().name(name).spawn(work);
            let thread = thread
                .map_err(|error| PartError::new(format!("cannot start a builder's thread: {error}")))?;
            self.threads.push((shared, thread));
        }
        Ok(json!({ "builders": self.threads.len() }))
    }

    fn start(&mut self, at_monotonic_ns: u64) -> Result<(), PartError> {
        if self.threads.is_empty() {
            return Err(PartError::new("the builder was not prepared"));
        }
        self.threads.iter().for_each(|(shared, _)| shared.start_at(at_monotonic_ns));
        Ok(())
    }

    fn progress(&mut self) -> Progress {
        if let Some(why) = self.threads.iter().find_map(|(shared, _)| shared.failure()) {
            return Progress::Failed(PartError::new(why));
        }
        let is_over =
            |(shared, thread): &(Arc<Shared>, JoinHandle<_>)| shared.is_finished() || thread.is_finished();
        if self.threads.iter().all(is_over) {
            return Progress::Finished;
        }
        let done = self.threads.iter().map(|(shared, _)| shared.done()).fold(1.0, f64::min);
        Progress::Running { done: Some(done) }
    }

    fn live(&mut self) -> Live {
        let sum = |of: fn(&Shared) -> f64| self.threads.iter().map(|(shared, _)| of(shared)).sum::<f64>();
        [
            ("events", sum(|shared| shared.complete.load(Ordering::Relaxed) as f64)),
            ("events_incomplete", sum(|shared| shared.incomplete.load(Ordering::Relaxed) as f64)),
            ("sources_connected", sum(|shared| f64::from(shared.connected.load(Ordering::Relaxed)))),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    fn stop(&mut self) -> Result<Value, PartError> {
        self.threads.iter().for_each(|(shared, _)| shared.ask_to_stop());
        let deadline = Deadline::after(LEAVE);
        let mut report = BuildersReport::default();
        for (_, thread) in self.threads.drain(..) {
            while !thread.is_finished() && deadline.pause(LOOK) {}
            if !thread.is_finished() {
                return Err(PartError::new("a builder's thread does not end"));
            }
            let one = thread
                .join()
                .map_err(|_| PartError::new("a builder's thread panicked; this is a bug of kagiri"))?;
            report.builders.push(one);
        }
        serde_json::to_value(report).map_err(PartError::new)
    }
}

impl Drop for BuilderPart {
    fn drop(&mut self) {
        self.threads.iter().for_each(|(shared, _)| shared.ask_to_stop());
        // Otherwise the sources of the next trial might find the door of this one.
        let deadline = Deadline::after(LEAVE);
        while self.threads.iter().any(|(_, thread)| !thread.is_finished()) && deadline.pause(LOOK) {}
    }
}
