//! Port, builder and sources as a run places them, in one process over loopback.

#![allow(dead_code, reason = "each test uses some of it")]

use std::time::{Duration, Instant};

use base::part::{Endpoints, HostContext, Part, PartError, PartSpec, Progress};
use kagiri_workload::daq::report::{BuilderReport, BuildersReport, SourcesReport};
use kagiri_workload::daq::settings::DaqSettings;
use kagiri_workload::daq::task::{BuilderTask, PortFacts, PortTask, SourcesTask};
use kagiri_workload::daq::{builder, port, source};
use serde::Serialize;
use serde_json::{Value, json};

/// No trial takes longer.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Settings out of a few, with nothing left out at the beginning, and no event given up because a thread here was kept
/// off the CPU.
pub fn settings(more: Value) -> DaqSettings {
    let mut all = json!({ "omit": "0s", "timeout": "20s" });
    let more = more.as_object().expect("a table").clone();
    all.as_object_mut().expect("a table").extend(more);
    DaqSettings::read(all).expect("settings")
}

fn spec(kind: &str, name: &str, task: &impl Serialize) -> PartSpec {
    let settings = serde_json::to_value(task).expect("plain data");
    PartSpec { kind: kind.into(), name: name.into(), host: "here".into(), settings }
}

pub fn host() -> HostContext {
    HostContext::here("/".into(), "/".into(), "/".into())
}

/// A trial under way.
pub struct Trial {
    pub port: Box<dyn Part>,
    pub facts: PortFacts,
    pub builder: Box<dyn Part>,
    pub sources: Option<Box<dyn Part>>,
    pub peers: Endpoints,
}

impl Trial {
    /// Port and builder are prepared.
    pub fn new(settings: &DaqSettings) -> Self {
        let task = PortTask { settings: settings.clone(), sources_elsewhere: false };
        let mut port = port::build(&spec("daq.port", "port", &task)).expect("a port");
        let told = port.prepare(&Endpoints::new(), &host()).expect("ports");
        let facts = serde_json::from_value(told.clone()).expect("facts");
        let peers = Endpoints::from([("port".to_owned(), told)]);
        let task = BuilderTask {
            settings: settings.clone(),
            port: "port".into(),
            builder_first: 0,
            builders_all: settings.builders as u16,
            seed: 7,
        };
        let mut builder = builder::part::build(&spec("daq.builder", "builder", &task)).expect("a builder");
        builder.prepare(&peers, &host()).expect("the builder listens");
        Self { port, facts, builder, sources: None, peers }
    }

    /// All but front ends connect.
    pub fn connect(&mut self, settings: &DaqSettings) -> Result<(), PartError> {
        let sources = (settings.sources - settings.front_ends) as u32;
        let settings = settings.clone();
        let ports = vec!["port".to_owned()];
        let task = SourcesTask { settings, ports, source_first: 0, sources, seed: 7 };
        let mut part = source::part::build(&spec("daq.sources", "sources", &task)).expect("sources");
        part.prepare(&self.peers, &host())?;
        self.sources = Some(part);
        Ok(())
    }

    /// Everybody begins.
    pub fn start(&mut self) {
        let at_ns = sys::clock::monotonic_ns() + 20_000_000;
        self.builder.start(at_ns).expect("it was prepared");
        if let Some(sources) = &mut self.sources {
            sources.start(at_ns).expect("they were prepared");
        }
    }

    /// Waits until that share of the builder's time has passed, from 0 to 1.
    pub fn wait_until_done(&mut self, share: f64) {
        let from = Instant::now();
        while !matches!(self.builder.progress(), Progress::Running { done: Some(done) } if done > share) {
            assert!(from.elapsed() < PATIENCE, "the builder does nothing: {:?}", self.builder.live());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the builder's end.
    pub fn wait(&mut self) {
        let from = Instant::now();
        while self.builder.progress() != Progress::Finished {
            assert!(from.elapsed() < PATIENCE, "the builder does not end: {:?}", self.builder.live());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The builders' reports, and the sources'.
    pub fn end(&mut self) -> (Vec<BuilderReport>, SourcesReport) {
        let builders = self.builder.stop().expect("a report");
        let builders: BuildersReport = serde_json::from_value(builders).expect("a report");
        let sources = self.sources.as_mut().map(|part| part.stop().expect("a report"));
        let sources = sources.map(|report| serde_json::from_value(report).expect("a report"));
        (builders.builders, sources.unwrap_or_default())
    }
}

/// A whole trial.
pub fn run(settings: &DaqSettings) -> (Vec<BuilderReport>, SourcesReport) {
    let mut trial = Trial::new(settings);
    trial.connect(settings).expect("the sources connect");
    trial.start();
    trial.wait();
    trial.end()
}
