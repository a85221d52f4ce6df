//! One run: objects, workers, and what they counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use nix::libc::c_long;
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use sys::clock::monotonic_ns;
use tokio::runtime::{Builder, Runtime};
use workload::pauses::PauseWatch;

use super::access::address::Address;
use super::access::client::Client;
use super::content::Slot;
use super::network::{Network, bit_per_s};
use super::populate::{Order, populate};
use super::recorder::{Recorder, add_up};
use super::shared::{Answered, INTERVAL_NS, ObjectsSettings, Shared};
use super::worker::Worker;
use crate::engine::report::{CpuReport, Durable, Ended, RunReport, WaitSamples};
use crate::report::ObjectsReport;

/// Bytes of random content that objects are cut from.
const CONTENT_BYTES: usize = 8 << 20;
const LOOK: Duration = Duration::from_millis(5);
/// Time for requests under way at the end: a little more than a request has by default.
const LEAVE: Duration = Duration::from_secs(32);

/// Why there is no run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectsError {
    #[error("interrupted while objects were made")]
    Stopped,
    #[error("{0}")]
    Failed(String),
}

/// Objects that are made, and workers that can begin.
pub struct ObjectsRun {
    shared: Arc<Shared>,
    runtime: Runtime,
    slots: Vec<Slot>,
    pub data_bytes: u64,
    retries: u64,
    network: Option<Network>,
}

impl ObjectsRun {
    /// Makes the objects that are not there.
    ///
    /// # Errors
    /// An object cannot be made, or `stop` was set.
    pub fn prepare(
        settings: ObjectsSettings,
        client: Client,
        own: Address,
        stop: &AtomicBool,
    ) -> Result<Self, ObjectsError> {
        let runtime = Builder::new_multi_thread().thread_name("files-objects").enable_all().build();
        let runtime =
            runtime.map_err(|error| ObjectsError::Failed(format!("cannot start threads: {error}")))?;
        let mut content = vec![0; CONTENT_BYTES];
        fastrand::Rng::with_seed(settings.seed).fill(&mut content);
        let content = Bytes::from(content);
        let (objects, seed) = (settings.objects, settings.seed);
        let order = Order {
            client: &client,
            own: &own,
            objects,
            size: &settings.size,
            content: &content,
            seed,
            stop,
        };
        let made = runtime.block_on(populate(order)).map_err(|why| match why {
            Some(failure) => {
                ObjectsError::Failed(failure.sentence(&format!("cannot make objects below {own}")))
            }
            None => ObjectsError::Stopped,
        })?;
        let shared = Shared::new(settings, client, own, content);
        let (data_bytes, retries) = (made.bytes, made.retries);
        Ok(Self { shared: Arc::new(shared), runtime, slots: made.slots, data_bytes, retries, network: None })
    }

    /// Watches the network device toward a server on another host.
    pub(crate) fn watch_network(&mut self, server: std::net::SocketAddr) {
        self.network = Network::toward(server);
    }

    #[must_use]
    pub fn watch(&self) -> Answered {
        Answered::new(&self.shared)
    }

    /// Runs the workers from a moment of the monotonic clock on, until the time is over or `stop` is set.
    #[must_use]
    pub fn wait(mut self, start_ns: u64, stop: &AtomicBool) -> (RunReport, ObjectsReport) {
        let shared = Arc::clone(&self.shared);
        let settings = &shared.settings;
        let from_ns = start_ns.saturating_add(settings.omit_ns);
        let to_ns = from_ns.saturating_add(settings.hold_ns);
        shared.begin(start_ns, from_ns, to_ns);
        let tasks: Vec<_> = workers(&shared, &self.slots)
            .into_iter()
            .map(|worker| self.runtime.spawn(worker.run()))
            .collect();
        let (mut before, mut carried) = (None, None);
        let pauses = PauseWatch::start().ok();
        let mut network = self.network.take();
        let mut read = || network.as_mut().and_then(Network::read);
        while !shared.is_over() {
            let now_ns = monotonic_ns();
            if before.is_none() && now_ns >= from_ns {
                before = getrusage(UsageWho::RUSAGE_SELF).ok();
                carried = read();
            }
            if stop.load(Ordering::Relaxed) {
                shared.end(Ended::Stopped);
            } else if now_ns >= to_ns {
                shared.end(Ended::Time);
            } else {
                let left = Duration::from_nanos(to_ns - now_ns);
                std::thread::sleep(LOOK.min(left));
            }
        }
        let after = getrusage(UsageWho::RUSAGE_SELF).ok();
        let carried = carried.zip(read()).and_then(|(before, after)| bit_per_s(before, after));
        let ended_ns = monotonic_ns().clamp(start_ns, to_ns);
        // Requests under way are answered, so that the server's counts are ours.
        let until = Instant::now() + LEAVE;
        while tasks.iter().any(|task| !task.is_finished()) && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
        let hanging = tasks.iter().filter(|task| !task.is_finished()).count() as u64;
        let (mut run, mut facts) = self.report((from_ns, ended_ns), hanging, before.zip(after));
        run.paused_s = pauses.map_or(0.0, |pauses| pauses.finish(from_ns, ended_ns));
        facts.network_bit_per_s = carried;
        if let Some(network) = &network {
            facts.link_bit_per_s = network.link_bit_per_s;
            facts.network_device = Some(network.name().to_owned());
        }
        (run, facts)
    }

    fn report(
        self,
        (from_ns, ended_ns): (u64, u64),
        hanging: u64,
        cpu: Option<(Usage, Usage)>,
    ) -> (RunReport, ObjectsReport) {
        let Self { shared, runtime, retries, .. } = self;
        let recorders = shared.recorders();
        let (rows, first_byte) = add_up(&recorders);
        let sum = |of: fn(&Recorder) -> u64| recorders.iter().map(of).sum::<u64>();
        let start_ns = shared.times().start_ns;
        let s = |ns: u64| ns.saturating_sub(start_ns) as f64 / 1e9;
        let run = RunReport {
            threads: shared.settings.threads,
            hanging,
            ended: shared.ended().unwrap_or(Ended::Time),
            from_s: s(from_ns),
            to_s: s(ended_ns.max(from_ns)),
            rows,
            cpu: cpu.map(|(before, after)| cpu_between(&before, &after)).unwrap_or_default(),
            cpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64),
            intervals: shared.intervals(),
            interval_s: INTERVAL_NS as f64 / 1e9,
            late_rounds: sum(|recorder| recorder.late_rounds),
            rounds: sum(|recorder| recorder.rounds),
            rate_per_s: shared.settings.rate_per_s,
            waits: WaitSamples::default(),
            // A PUT that was answered is durable by the protocol: there is nothing to wait for.
            durable: Durable::Unknown,
            paused_s: 0.0,
            storage_read_bytes: None,
        };
        let facts = ObjectsReport {
            endpoint: shared.client.endpoint().to_owned(),
            requests: sum(|recorder| recorder.requests),
            failed: sum(|recorder| recorder.failed),
            slow_downs: sum(|recorder| recorder.slow_downs),
            first_byte,
            waited_s: sum(|recorder| recorder.waited_ns) as f64 / 1e9,
            retries,
            ..ObjectsReport::default()
        };
        // A request that hangs must not hold up the end.
        runtime.shutdown_background();
        (run, facts)
    }
}

/// Shares out the objects.
fn workers(shared: &Arc<Shared>, slots: &[Slot]) -> Vec<Worker> {
    let threads = shared.settings.threads.max(1);
    let objects = slots.len() as u64;
    let bound = |worker: u64| (objects * worker / threads) as usize;
    let worker = |number: u64| Worker {
        shared: Arc::clone(shared),
        number,
        share: slots[bound(number)..bound(number + 1)].to_vec(),
        rng: fastrand::Rng::with_seed(shared.settings.seed ^ (number << 32) ^ 1),
    };
    (0..threads).map(worker).collect()
}

fn cpu_between(before: &Usage, after: &Usage) -> CpuReport {
    let s = |to: nix::sys::time::TimeVal, from: nix::sys::time::TimeVal| {
        (to.num_microseconds() - from.num_microseconds()) as f64 / 1e6
    };
    let count = |to: c_long, from: c_long| u64::try_from(to - from).unwrap_or(0);
    CpuReport {
        user_s: s(after.user_time(), before.user_time()),
        system_s: s(after.system_time(), before.system_time()),
        ready_s: None,
        waits: count(after.voluntary_context_switches(), before.voluntary_context_switches()),
        preemptions: count(after.involuntary_context_switches(), before.involuntary_context_switches()),
    }
}
