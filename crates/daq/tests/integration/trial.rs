//! The parts port, builder and sources in one process over loopback.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::scripted_builder::host;
use base::part::{AnyPart, Endpoints, HERE, HostContext, PartError, Progress};
use daq::builder::part::BuilderPart;
use daq::listen_addresses::PortPart;
use daq::part_settings::{BuilderTask, PortEndpoint, PortTask, SourcesTask};
use daq::report::{BuilderReport, BuildersReport, SourcesReport};
use daq::settings::DaqSettings;
use daq::source::part::SourcesPart;
use serde_json::{Value, json};
use workload::part::{self, Part};

pub const PATIENCE: Duration = Duration::from_secs(60);

/// Settings without warm-up, and with a timeout that a busy test machine does not exceed.
pub fn settings(more: Value) -> DaqSettings {
    DaqSettings::read(merged(json!({ "omit": "0s", "timeout": "20s" }), more)).expect("settings")
}

pub fn merged(mut settings: Value, more: Value) -> Value {
    settings.as_object_mut().expect("a table").extend(more.as_object().expect("a table").clone());
    settings
}

fn build<P: Part>(name: &str, task: &P::Task) -> Box<dyn AnyPart> {
    let spec = part::spec::<P>(name.to_owned(), HERE, task).expect("plain data");
    (part::kind::<P>().build)(&spec).expect("a part")
}

/// A trial under way.
pub struct Trial {
    /// Keeps the ports reserved.
    pub _port: Box<dyn AnyPart>,
    pub facts: PortEndpoint,
    pub builder: Box<dyn AnyPart>,
    pub sources: Option<Box<dyn AnyPart>>,
    pub peers: Endpoints,
}

impl Trial {
    /// Prepares port and builder.
    pub fn new(settings: &DaqSettings) -> Self {
        Self::on(&host(), settings)
    }

    /// The same on a host that shows what they announce.
    pub fn on(host: &HostContext, settings: &DaqSettings) -> Self {
        let task = PortTask { settings: settings.clone(), sources_elsewhere: false };
        let mut port = build::<PortPart>("port", &task);
        let endpoint = port.prepare(&Endpoints::new(), host).expect("ports");
        let facts = serde_json::from_value(endpoint.clone()).expect("facts");
        let peers = Endpoints::from([("port".to_owned(), endpoint)]);
        let task = BuilderTask {
            settings: settings.clone(),
            port: "port".into(),
            builder_first: 0,
            builders_all: settings.builders as u16,
            seed: 7,
        };
        let mut builder = build::<BuilderPart>("builder", &task);
        builder.prepare(&peers, host).expect("the builder listens");
        Self { _port: port, facts, builder, sources: None, peers }
    }

    /// Connects all sources except front ends.
    pub fn connect(&mut self, settings: &DaqSettings) -> Result<(), PartError> {
        let sources = (settings.sources - settings.front_ends) as u32;
        let settings = settings.clone();
        let ports = vec!["port".to_owned()];
        let task = SourcesTask { settings, ports, source_first: 0, sources, seed: 7 };
        let mut part = build::<SourcesPart>("sources", &task);
        part.prepare(&self.peers, &host())?;
        self.sources = Some(part);
        Ok(())
    }

    pub fn start(&mut self) {
        let at_ns = sys::clock::monotonic_ns() + 20_000_000;
        self.builder.start(at_ns).expect("it was prepared");
        if let Some(sources) = &mut self.sources {
            sources.start(at_ns).expect("they were prepared");
        }
    }

    /// Waits until the builder has done this share (0 to 1) of its time.
    pub fn wait_until_done(&mut self, share: f64) {
        let from = Instant::now();
        while !matches!(self.builder.progress(), Progress::Running { done: Some(done) } if done > share) {
            assert!(from.elapsed() < PATIENCE, "the builder does nothing: {:?}", self.builder.live());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn wait(&mut self) {
        let from = Instant::now();
        while self.builder.progress() != Progress::Finished {
            assert!(from.elapsed() < PATIENCE, "the builder does not end: {:?}", self.builder.live());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the end of a single builder and of its scripted sources; returns the builder's report.
    pub fn finish(mut self, sources: impl IntoIterator<Item = JoinHandle<()>>) -> BuilderReport {
        self.wait();
        let report = self.end().0.remove(0);
        sources.into_iter().for_each(|source| source.join().expect("an honest source"));
        report
    }

    /// Stops the parts; returns the builders' reports, and the sources'.
    pub fn end(&mut self) -> (Vec<BuilderReport>, SourcesReport) {
        let builders = self.builder.stop().expect("a report");
        let builders: BuildersReport = serde_json::from_value(builders).expect("a report");
        let sources = self.sources.as_mut().map(|part| part.stop().expect("a report"));
        let sources = sources.map(|report| serde_json::from_value(report).expect("a report"));
        (builders.builders, sources.unwrap_or_default())
    }
}

pub fn run(settings: &DaqSettings) -> (Vec<BuilderReport>, SourcesReport) {
    let mut trial = Trial::new(settings);
    trial.connect(settings).expect("the sources connect");
    trial.start();
    trial.wait();
    trial.end()
}
