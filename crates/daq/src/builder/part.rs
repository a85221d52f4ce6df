//! The builders of a host as a part of a run: kind `daq.builder`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::format::plural;
use base::part::{HostContext, Live, PartError, Progress};
use reactor::{ThreadControl, ThreadGroup, ThreadSpec};
use sys::clock::Deadline;
use workload::part::{Part, Peers};

use super::config::{BuilderConfig, BuilderProgress};
use super::driver::Driver;
use super::trial::Trial;
use crate::fd_limit;
use crate::listen_addresses::PortPart;
use crate::part_settings::{BuilderTask, FRONT_ENDS_TIMEOUT_S, PortEndpoint};
use crate::report::{BuilderReport, BuildersReport};
use crate::scheduling::{SchedulerPlan, TriggerScheduler};
use crate::settings::{FragmentSizes, Triggers, text_of};

const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Open files besides the sources' connections, including connections without a hello.
const OTHER_FILES: u64 = 4_500;

pub struct BuilderPart {
    task: BuilderTask,
    threads: Option<ThreadGroup<BuilderReport>>,
    progress: Vec<Arc<BuilderProgress>>,
}

/// The rate of the device with the address, bit/s.
pub(crate) fn link_rate(address: std::net::IpAddr) -> Option<f64> {
    let device = (!address.is_loopback()).then(|| sys::proc::interface_with(address).ok()).flatten()?;
    sys::netlink::rate_of(&device, None).ok().flatten().map(|rate| rate as f64)
}

impl BuilderPart {
    fn configs(&self, port: &PortEndpoint, host: &HostContext) -> Result<Vec<BuilderConfig>, PartError> {
        let settings = &self.task.settings;
        let sizes = FragmentSizes::read(&settings.size, self.task.seed, host)?;
        let times_ns = match &settings.triggers {
            Triggers::File(path) => Triggers::times_ns(&text_of(path, "daq.triggers", host)?)
                .map_err(|error| PartError::usage(format!("daq.triggers: {path}: {error}")))?,
            _ => Vec::new(),
        };
        let places = port.addresses.iter().zip(&port.groups).zip(self.task.builder_first..);
        let configs = places.map(|((&address, &group), builder)| BuilderConfig {
            settings: settings.clone(),
            builder,
            builders_all: self.task.builders_all,
            run: port.run,
            address,
            group,
            seed: self.task.seed,
            sizes: sizes.clone(),
            times_ns: times_ns.clone(),
            link_bit_per_s: link_rate(address.ip()),
        });
        Ok(configs.collect())
    }

    /// Prints where front ends find the builders, which listen now.
    fn announce(&self, port: &PortEndpoint, host: &HostContext) {
        let front_ends = self.task.settings.front_ends;
        for (at, address) in port.addresses.iter().enumerate().filter(|_| front_ends > 0) {
            let orders = match port.group(at, &self.task.settings) {
                Some(group) => format!("at {group}"),
                None => "over the connections".to_owned(),
            };
            // Without this line the front ends cannot be started.
            host.announce(format!(
                "builder at {address}, orders {orders}, run {}; waiting for {}, up to \
                 {FRONT_ENDS_TIMEOUT_S} s",
                port.run,
                plural(front_ends, "front end")
            ));
        }
    }

    fn scheduler(&self, configs: &[BuilderConfig]) -> Option<TriggerScheduler> {
        let first = configs.first()?;
        let plan = SchedulerPlan {
            choice: self.task.settings.builder_choice,
            builder_first: self.task.builder_first,
            builders: configs.len() as u16,
            builders_all: self.task.builders_all,
            window: first.window(),
            events: self.task.settings.events,
        };
        Some(TriggerScheduler::new(
            plan,
            self.task.settings.triggers.due(self.task.seed, first.times_ns.clone()),
        ))
    }
}

impl Part for BuilderPart {
    const KIND: &'static str = "daq.builder";
    type Task = BuilderTask;
    type Endpoint = ();
    type Report = BuildersReport;

    fn report_items(task: &BuilderTask) -> u64 {
        task.settings.sources * u64::from(task.settings.builders)
    }

    fn new(task: BuilderTask) -> Result<Self, PartError> {
        Ok(Self { task, threads: None, progress: Vec::new() })
    }

    fn prepare(&mut self, peers: &Peers<'_>, host: &HostContext) -> Result<(), PartError> {
        let port = peers.get::<PortPart>(&self.task.port)?;
        let configs = self.configs(&port, host)?;
        let Some(scheduler) = self.scheduler(&configs).map(Arc::new) else {
            return Err(PartError::new(format!(
                "the endpoint '{}' has no address for a builder",
                self.task.port
            )));
        };
        for one in &configs {
            host.permit.peer(one.address)?;
        }
        let connections = self.task.settings.sources * configs.len() as u64;
        // Sources in this process raise the limit for their own ends.
        fd_limit::raise_for(connections, false, connections + OTHER_FILES)?;
        let mut threads = ThreadGroup::new(u64::MAX).map_err(PartError::new)?;
        for (slot, one) in configs.into_iter().enumerate() {
            let progress = Arc::<BuilderProgress>::default();
            let name = format!("builder-{}", one.builder);
            let stop = threads.control().stop_handle();
            let driver = Driver::new(one, progress.clone(), scheduler.clone(), slot, stop);
            let trial = Trial { driver: driver.map_err(PartError::new)? };
            let spec = ThreadSpec { name, is_precise: true, ..ThreadSpec::default() };
            threads.spawn(spec, |control: &ThreadControl| trial.run(control)).map_err(PartError::new)?;
            self.progress.push(progress);
        }
        self.threads = Some(threads);
        self.announce(&port, host);
        Ok(())
    }

    fn start(&mut self, at_monotonic_ns: u64) -> Result<(), PartError> {
        let threads = self.threads.as_ref();
        threads.ok_or_else(|| PartError::new("the builder was not prepared"))?.begin(at_monotonic_ns);
        Ok(())
    }

    fn progress(&mut self) -> Progress {
        if let Some(why) = self.progress.iter().find_map(|one| one.failure.get()) {
            return Progress::Failed(PartError::new(why));
        }
        if self.threads.as_ref().is_none_or(ThreadGroup::is_finished) {
            return Progress::Finished;
        }
        Progress::Running { done: Some(self.progress.iter().map(|one| one.done()).fold(1.0, f64::min)) }
    }

    fn live(&mut self) -> Live {
        let sum = |of: fn(&BuilderProgress) -> f64| self.progress.iter().map(|one| of(one)).sum::<f64>();
        [
            ("events", sum(|one| one.complete.load(Ordering::Relaxed) as f64)),
            ("events_incomplete", sum(|one| one.incomplete.load(Ordering::Relaxed) as f64)),
            ("sources_connected", sum(|one| f64::from(one.connected.load(Ordering::Relaxed)))),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    fn stop(&mut self) -> Result<BuildersReport, PartError> {
        let Some(mut threads) = self.threads.take() else { return Ok(BuildersReport::default()) };
        threads.stop();
        let builders = threads.finish(Deadline::after(STOP_TIMEOUT)).into_iter().collect::<Result<_, _>>();
        Ok(BuildersReport { builders: builders.map_err(PartError::new)? })
    }
}

impl Drop for BuilderPart {
    fn drop(&mut self) {
        if let Some(threads) = &self.threads {
            threads.stop();
            // Otherwise the sources of the next trial might connect to this one's port.
            threads.wait(Deadline::after(STOP_TIMEOUT));
        }
    }
}
