//! The kernel's network work (softirqs NET_RX and NET_TX) while a part's calls are timed, where the kernel
//! permits it: of all programs of this machine, for the kernel does not tell whose packets they are.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use base::timeline::{SoftirqRow, Times, softirq_name};
use sys::trace::{Backend, Event, Setting, Tracer};

/// How often the kernel's rings are emptied.
const EVERY: Duration = Duration::from_millis(10);
/// Room for events in the kernel, of each CPU: at 100 bytes for a softirq enough for a tenth of a second of
/// the most that a CPU makes.
const RING_BYTES: usize = 1 << 20;
/// Softirqs to keep, of 32 bytes each.
const KEPT_MAX: usize = 200_000;

/// The watch of this process: softirqs are the machine's, so that one is enough for all of its parts.
static CURRENT: Mutex<Weak<SoftirqWatch>> = Mutex::new(Weak::new());

/// Sees the machine's network softirqs for as long as it lives.
pub struct SoftirqWatch(Arc<Mutex<Seen>>);

/// One softirq.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Softirq {
    /// When it began, ns of the monotonic clock.
    pub from_ns: u64,
    pub to_ns: u64,
    pub cpu: u32,
    /// 2 NET_TX, 3 NET_RX.
    pub vector: u32,
}

/// Those of a time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Softirqs {
    /// In the order of their ends.
    pub all: Vec<Softirq>,
    /// Since when they are known, ns of the monotonic clock.
    pub from_ns: u64,
    /// Until when.
    pub to_ns: u64,
    /// Events that are missing.
    pub lost: u64,
}

struct Seen {
    tracer: Box<dyn Tracer>,
    events: Vec<Event>,
    /// Softirqs that have begun, by CPU and vector.
    begun: BTreeMap<(u32, u32), u64>,
    ended: Vec<Softirq>,
    since_ns: u64,
    /// When the first one ended that found no room.
    full_ns: Option<u64>,
    lost: u64,
}

impl SoftirqWatch {
    /// Begins to watch, or joins the watch of another part of this process.
    /// Errors: why the kernel does not permit it.
    pub fn start() -> Result<Arc<Self>, String> {
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watch) = current.upgrade() {
            return Ok(watch);
        }
        // Of perf, because its softirqs need no tracepoints of system calls, which would cost every call.
        let setting = Setting { calls: Vec::new(), picture: true, softirqs: true, ring_bytes: RING_BYTES };
        let mut tracer = sys::trace::open(Backend::Perf, &setting).map_err(|error| error.to_string())?;
        tracer.start().map_err(|error| error.to_string())?;
        let seen = Arc::new(Mutex::new(Seen {
            tracer,
            events: Vec::new(),
            begun: BTreeMap::new(),
            ended: Vec::new(),
            since_ns: sys::clock::monotonic_ns(),
            full_ns: None,
            lost: 0,
        }));
        let watched = Arc::downgrade(&seen);
        let drain = move || {
            while let Some(seen) = watched.upgrade() {
                locked(&seen).drain();
                drop(seen);
                std::thread::sleep(EVERY);
            }
        };
        std::thread::Builder::new()
            .name("softirqs".into())
            .spawn(drain)
            .map_err(|error| format!("cannot start a thread for them: {error}"))?;
        let watch = Arc::new(Self(seen));
        *current = Arc::downgrade(&watch);
        Ok(watch)
    }

    /// Those that ended between two moments of the monotonic clock, which have passed.
    pub fn between(&self, from_ns: u64, to_ns: u64) -> Softirqs {
        let mut seen = locked(&self.0);
        // The tracer keeps the newest back until the next time.
        seen.drain();
        seen.drain();
        let (from_ns, to_ns) = (from_ns.max(seen.since_ns), to_ns.min(seen.full_ns.unwrap_or(u64::MAX)));
        let is_within = |softirq: &&Softirq| (from_ns..=to_ns).contains(&softirq.to_ns);
        let all = seen.ended.iter().filter(is_within).copied().collect();
        Softirqs { all, from_ns, to_ns: to_ns.max(from_ns), lost: seen.lost }
    }
}

fn locked(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seen {
    fn drain(&mut self) {
        self.tracer.drain(&mut self.events);
        for event in std::mem::take(&mut self.events) {
            match event {
                Event::SoftirqBegan { at_ns, cpu, vector } => {
                    self.begun.insert((cpu, vector), at_ns);
                }
                Event::SoftirqEnded { at_ns, cpu, vector } => {
                    if let Some(from_ns) = self.begun.remove(&(cpu, vector)) {
                        self.keep(Softirq { from_ns, to_ns: at_ns, cpu, vector });
                    }
                }
                Event::Softirq { from_ns, to_ns, cpu, vector } => {
                    self.keep(Softirq { from_ns, to_ns, cpu, vector });
                }
                Event::Lost { events, .. } => self.lost += events,
                _ => {}
            }
        }
    }

    fn keep(&mut self, softirq: Softirq) {
        if self.ended.len() < KEPT_MAX && self.full_ns.is_none() {
            self.ended.push(softirq);
        } else {
            self.full_ns.get_or_insert(softirq.to_ns);
        }
    }
}

impl Softirqs {
    /// By kind and CPU: how long they took, and the time from the beginning of one to that of the next.
    pub fn rows(&self) -> Vec<SoftirqRow> {
        let mut kinds: BTreeMap<(u32, u32), (Times, Times, Option<u64>)> = BTreeMap::new();
        for softirq in &self.all {
            let (run, period, last_ns) = kinds.entry((softirq.vector, softirq.cpu)).or_default();
            run.add(softirq.to_ns.saturating_sub(softirq.from_ns));
            if let Some(last_ns) = last_ns.replace(softirq.from_ns) {
                period.add(softirq.from_ns.saturating_sub(last_ns));
            }
        }
        let wall_ns = self.to_ns.saturating_sub(self.from_ns);
        let row = |((vector, cpu), (run, period, _)): ((u32, u32), (Times, Times, Option<u64>))| {
            let of_period = |us: f64| Some(us).filter(|_| period.count() > 0);
            SoftirqRow {
                name: softirq_name(vector).to_owned(),
                cpu,
                count: run.count(),
                period_p50_us: of_period(period.percentile_us(50.0)),
                period_mean_us: of_period(period.mean_us()),
                period_p99_us: of_period(period.percentile_us(99.0)),
                run_p50_us: run.percentile_us(50.0),
                run_mean_us: run.mean_us(),
                run_p99_us: run.percentile_us(99.0),
                wall_share: run.share_of(wall_ns),
            }
        };
        kinds.into_iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn rows_have_period_and_run() {
        let softirq = |from_ns, to_ns, cpu| Softirq { from_ns, to_ns, cpu, vector: 3 };
        let all = vec![softirq(0, 2_000, 0), softirq(10_000, 12_000, 0), softirq(5_000, 6_000, 1)];
        let rows = Softirqs { all, from_ns: 0, to_ns: 20_000, lost: 0 }.rows();
        let facts: Vec<_> =
            rows.iter().map(|row| (row.cpu, row.count, row.period_mean_us, row.run_mean_us)).collect();
        assert_eq!(facts, [(0, 2, Some(10.0), 2.0), (1, 1, None, 1.0)]);
        assert_eq!((rows[0].name.as_str(), rows[0].wall_share), ("NET_RX", 0.2));
    }

    /// How many softirqs NET_RX the kernel has counted on all CPUs (`/proc/softirqs`).
    fn counted() -> u64 {
        let text = std::fs::read_to_string("/proc/softirqs").unwrap();
        let line = text.lines().find_map(|line| line.trim().strip_prefix("NET_RX:")).unwrap();
        line.split_whitespace().map(|count| count.parse::<u64>().unwrap()).sum()
    }

    #[test]
    fn as_many_are_seen_as_the_kernel_counts() {
        let watch = match SoftirqWatch::start() {
            Ok(watch) => watch,
            Err(why) => return features::skip(&why),
        };
        let ends = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let to = ends[1].local_addr().unwrap();
        // Others receive, too: what the kernel counts around the time that is watched, and within it.
        let (outer, from_ns) = (counted(), sys::clock::monotonic_ns());
        let inner = counted();
        for _ in 0..2000 {
            ends[0].send_to(b"a datagram", to).unwrap();
            ends[1].recv(&mut [0; 100]).unwrap();
        }
        let inner = counted() - inner;
        let to_ns = sys::clock::monotonic_ns();
        let outer = counted() - outer;
        let seen = watch.between(from_ns, to_ns);
        let received = seen.all.iter().filter(|softirq| softirq.vector == 3).count() as u64;
        assert_eq!(seen.lost, 0);
        assert!((inner.saturating_sub(2)..=outer).contains(&received), "{inner} <= {received} <= {outer}");
        assert!(received > 100, "{received}: loopback is received by softirq");
    }
}
