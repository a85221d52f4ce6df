//! Rates of links that change during a trial: a thread changes them at their times, for as long as the client
//! that started them keeps its connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::units::BitRate;
use sys::clock::{monotonic_ns, sleep_until_ns};
use sys::shaping::{BucketRate, TokenBucket};

use super::control::Client;
use super::network::{Network, burst_bytes};
use crate::error::{Error, Result};
use crate::state::{LinkState, Response, StepDone};

/// In this time before a step the thread sleeps to the nanosecond. A wait for the client's end can take an
/// eighth longer than asked for, by the kernel's coarse timers.
const EXACT_NS: u64 = 50_000_000;
/// How often the client is looked for after the last step.
const LOOK_EVERY: Duration = Duration::from_secs(3600);

/// The steps of all links of a lab; one client at a time.
#[derive(Debug, Default)]
pub(super) struct Steps {
    is_in_use: Arc<AtomicBool>,
}

impl Steps {
    /// Answers the client, and changes the rates from `at_ns` on.
    pub(super) fn start(
        &self,
        lab: &str,
        network: &Network,
        links: &[LinkState],
        at_ns: u64,
        mut client: Client,
    ) {
        let refused = |message: String| Response::Error { message, usage: false };
        if links.iter().all(|link| link.steps.is_empty()) {
            return client.respond(&refused(format!("lab {lab} has no link with steps")));
        }
        if self.is_in_use.swap(true, Ordering::AcqRel) {
            let message = format!("another measurement in lab {lab} changes the rates of its links now");
            return client.respond(&refused(message));
        }
        let free = Release(Arc::clone(&self.is_in_use));
        let schedule = match Schedule::open(network, links, at_ns) {
            Ok(schedule) => schedule,
            Err(error) => return client.respond(&refused(error.to_string())),
        };
        client.send(&Response::StepsStart);
        let run = move || {
            // For microseconds at each step.
            let _ = sys::thread::set_realtime();
            let ended = schedule.run(&mut client);
            drop(free);
            client.respond(&ended);
        };
        // Without the thread the client's connection is closed, which it reports.
        let _ = std::thread::Builder::new().name("link-steps".to_owned()).spawn(run);
    }
}

struct Release(Arc<AtomicBool>);

impl Drop for Release {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Both ends of a link with steps.
struct Ends {
    buckets: Vec<(TokenBucket, u32)>,
    first: BitRate,
}

impl Ends {
    fn open(network: &Network, link: &LinkState) -> Result<Self> {
        let first = link.rate_up_bit_per_s.unwrap_or_default();
        let mut buckets = Vec::new();
        for (end, bytes) in link.ends.iter().zip(link.buffer_bytes) {
            let bucket = network.of(&end.namespace)?.within(|| TokenBucket::open(&end.device))??;
            buckets.push((bucket, u32::try_from(bytes.unwrap_or_default()).unwrap_or(u32::MAX)));
        }
        Ok(Self { buckets, first: BitRate::from_bit_per_s(first) })
    }

    fn set(&mut self, rate: BitRate) -> Result<()> {
        for (bucket, limit_bytes) in &mut self.buckets {
            let burst = burst_bytes(rate.bit_per_s(), (*limit_bytes).into());
            bucket.set(BucketRate {
                bytes_per_s: rate.byte_per_s(),
                burst_bytes: u32::try_from(burst).unwrap_or(u32::MAX),
                limit_bytes: *limit_bytes,
            })?;
        }
        Ok(())
    }
}

struct Schedule {
    at_ns: u64,
    ends: Vec<Ends>,
    /// In the order of their times, with the index in `ends`.
    due: Vec<(usize, StepDone)>,
    done: Vec<StepDone>,
}

impl Schedule {
    fn open(network: &Network, links: &[LinkState], at_ns: u64) -> Result<Self> {
        let mut this = Self { at_ns, ends: Vec::new(), due: Vec::new(), done: Vec::new() };
        for link in links.iter().filter(|link| !link.steps.is_empty()) {
            let ends = this.ends.len();
            this.ends.push(Ends::open(network, link)?);
            this.due.extend(link.steps.iter().map(|step| {
                let (after_s, bit_per_s) = (step.after.s(), step.rate.bit_per_s());
                (ends, StepDone { link: link.number, after_s, bit_per_s, late_us: 0.0 })
            }));
        }
        this.due.sort_by(|(_, a), (_, b)| a.after_s.total_cmp(&b.after_s));
        Ok(this)
    }

    /// Until the client ends its connection. The links have their first rates again then.
    fn run(mut self, client: &mut Client) -> Response {
        let stepped = self.step_all(client);
        let restored = self.ends.iter_mut().try_for_each(|ends| ends.set(ends.first));
        let problem = stepped.and(restored).err().map(|error: Error| error.to_string());
        Response::StepsEnd { done: self.done, problem }
    }

    fn step_all(&mut self, client: &mut Client) -> Result<()> {
        for (ends, mut step) in std::mem::take(&mut self.due) {
            let due_ns = self.at_ns.saturating_add((step.after_s * 1e9) as u64);
            if has_ended_before(client, due_ns) {
                return Ok(());
            }
            sleep_until_ns(due_ns);
            self.ends[ends].set(BitRate::from_bit_per_s(step.bit_per_s))?;
            step.late_us = monotonic_ns().saturating_sub(due_ns) as f64 / 1e3;
            self.done.push(step);
        }
        while !client.has_ended_within(LOOK_EVERY) {}
        Ok(())
    }
}

/// Whether the client ends its connection until [`EXACT_NS`] before a moment of the monotonic clock.
fn has_ended_before(client: &mut Client, due_ns: u64) -> bool {
    loop {
        let left_ns = due_ns.saturating_sub(monotonic_ns());
        if left_ns <= EXACT_NS {
            return false;
        }
        // Half of it, because the wait may be longer.
        if client.has_ended_within(Duration::from_nanos(left_ns / 2)) {
            return true;
        }
    }
}
