//! The sampler as a part.

use std::path::Path;

use base::part::{HostContext, Live, PartError, Progress, Watch};
use serde::{Deserialize, Serialize};
use sys::clock::monotonic_ns;
use workload::part::{Part, Peers};

use super::policy::permitted;
use super::quantity::Quantity;
use super::recorder::{Recorder, Report, Watched};
use super::sources::Sources;
use super::thread::SamplerThread;

const RATE_HZ: u64 = 10;
const INTERVAL_NS: u64 = 1_000_000_000 / RATE_HZ;
/// The live numbers of hosts beside the target: few, because every host sends them twice a second.
const SHOWN: [Quantity; 4] = [Quantity::ServerCpu, Quantity::HostCpu, Quantity::DiskRead, Quantity::Network];
/// Those of the target.
const SHOWN_OF_TARGET: [Quantity; 16] = [
    Quantity::ServerCpu,
    Quantity::HostCpu,
    Quantity::OtherCpu,
    Quantity::Softirq,
    Quantity::Steal,
    Quantity::Throttled,
    Quantity::ServerMemory,
    Quantity::SocketMemory,
    Quantity::PageCache,
    Quantity::Slab,
    Quantity::DiskRead,
    Quantity::DiskWrite,
    Quantity::DiskBusy,
    Quantity::Network,
    Quantity::NetworkDrops,
    Quantity::NetworkQueue,
];

/// What a sampler can watch.
#[derive(Debug, Serialize, Deserialize)]
pub struct SamplerEndpoint {
    pub series: Vec<String>,
    /// What cannot be watched, and why; one sentence each.
    pub unavailable: Vec<String>,
}

enum Stage {
    Built,
    Prepared(Box<Sources>),
    Running(SamplerThread),
    Ended,
}

pub struct Sampler {
    watch: Watch,
    stage: Stage,
}

impl Sampler {
    fn watched(&self, sources: &Sources) -> Watched {
        Watched {
            pids: sources.server_pids(),
            cgroup: self.watch.cgroup_cpu.clone(),
            block_device: sources.disk_name().map(str::to_owned),
            network_device: self.watch.network_device.clone(),
            rate_hz: RATE_HZ as f64,
        }
    }

    fn report(&self, sources: &Sources, recorder: Recorder) -> Report {
        let report =
            recorder.report(sources.offered(), sources.unavailable().to_vec(), self.watched(sources));
        let cores = sys::thread::online_cpus().ok().map(|cpus| cpus.len() as u32);
        Report { cores, ..report }
    }
}

impl Part for Sampler {
    const KIND: &'static str = "observe.sampler";
    type Task = Watch;
    type Endpoint = SamplerEndpoint;
    type Report = Report;

    fn new(watch: Watch) -> Result<Self, PartError> {
        Ok(Self { watch, stage: Stage::Built })
    }

    fn prepare(&mut self, _: &Peers<'_>, host: &HostContext) -> Result<SamplerEndpoint, PartError> {
        let root = Path::new("/");
        let (watch, refused) = permitted(root, &self.watch, host);
        let sources = Sources::open(root, &watch).without(refused);
        let endpoint = SamplerEndpoint {
            series: sources.offered().iter().map(|quantity| quantity.name().to_owned()).collect(),
            unavailable: sources.unavailable().to_vec(),
        };
        self.stage = Stage::Prepared(Box::new(sources));
        Ok(endpoint)
    }

    fn start(&mut self, at_monotonic_ns: u64) -> Result<(), PartError> {
        if at_monotonic_ns < monotonic_ns() {
            return Err(PartError::new("the sampler's start time has already passed"));
        }
        match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Prepared(sources) => {
                let watcher = SamplerThread::start(*sources, at_monotonic_ns, INTERVAL_NS);
                let watcher = watcher.map_err(|error| {
                    PartError::new(format!("the sampler's thread cannot be started: {error}"))
                })?;
                self.stage = Stage::Running(watcher);
                Ok(())
            }
            other => {
                self.stage = other;
                Err(PartError::new("the sampler can be started only once, after it has been prepared"))
            }
        }
    }

    fn progress(&mut self) -> Progress {
        match &self.stage {
            Stage::Running(watcher) if watcher.is_dead() => {
                Progress::Failed(PartError::new("the sampler's thread has died; please report this"))
            }
            Stage::Ended => Progress::Finished,
            _ => Progress::Running { done: None },
        }
    }

    fn live(&mut self) -> Live {
        let Stage::Running(watcher) = &self.stage else { return Live::new() };
        let Some(sample) = watcher.last() else { return Live::new() };
        let known = |quantity: &Quantity| Some((quantity.name().to_owned(), sample.get(*quantity)?));
        match self.watch.elsewhere {
            None => SHOWN_OF_TARGET.iter().filter_map(known).collect(),
            Some(_) => SHOWN.iter().filter_map(known).collect(),
        }
    }

    fn stop(&mut self) -> Result<Report, PartError> {
        match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Running(watcher) => {
                let watch = watcher.finish();
                let watch = watch
                    .ok_or_else(|| PartError::new("the sampler's thread has died; please report this"))?;
                let mut report = self.report(&watch.sources, watch.recorder);
                report.cost_cpu_percent = watch.cost_cpu_percent;
                Ok(report)
            }
            Stage::Prepared(sources) => Ok(self.report(&sources, Recorder::default())),
            Stage::Built | Stage::Ended => {
                Err(PartError::new("the sampler has nothing to report: it was not started"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use base::part::PartSpec;
    use serde_json::{Value, json};
    use workload::part;

    use super::*;

    fn refused(settings: Value) -> PartError {
        let spec = part::spec::<Sampler>("sampler".into(), "here", &Watch::default()).unwrap();
        (part::kind::<Sampler>().build)(&PartSpec { settings, ..spec }).err().unwrap()
    }

    #[test]
    fn sampler_rejects_unknown_and_unreadable_keys() {
        let error = refused(json!({"watch_peer": "server"}));
        assert!(error.usage && error.message.contains("`watch_peer`"), "{error}");
        assert!(refused(json!({"pids": "four"})).usage);
    }
}
