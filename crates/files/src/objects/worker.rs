//! A worker: one task that sends one request after the other.

use std::sync::Arc;
use std::time::Duration;

use sys::clock::monotonic_ns;

use super::access::failure::Failure;
use super::access::keys;
use super::content::{Slot, chunks};
use super::mix::Step;
use super::recorder::{Ended, Row};
use super::shared::Shared;
use super::size::{OBJECT_BYTES_MAX, draw};
use crate::engine::report::Ended as RunEnded;

/// Mean of what an append adds, as of the fileserver.
const APPEND_BYTES: u64 = 16 << 10;
/// A worker looks at least so often whether the run is over.
const LOOK: Duration = Duration::from_millis(50);
/// After a failure that may pass, so that a dead server does not take the CPU.
const PAUSE: Duration = Duration::from_millis(10);
/// A round may begin this much late: the timer's resolution is 1 ms.
const LATE_NS: u64 = 3_000_000;

pub(crate) struct Worker {
    pub shared: Arc<Shared>,
    pub number: u64,
    pub share: Vec<Slot>,
    pub rng: fastrand::Rng,
}

impl Worker {
    pub(crate) async fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let mut steps = shared.mix.steps().to_vec();
        let between_ns = shared.settings.rate_per_s.map(|rate| 1e9 / rate);
        let start_ns = shared.times().start_ns;
        self.sleep_until(start_ns).await;
        let mut due = between_ns.map(|ns| start_ns as f64 + ns * self.number as f64);
        loop {
            if shared.mix.is_shuffled {
                self.rng.shuffle(&mut steps);
            }
            for step in &steps {
                if let Some(due) = due {
                    self.sleep_until(due as u64).await;
                }
                if shared.is_over() {
                    return;
                }
                let late_ns = due.map_or(0, |due| monotonic_ns().saturating_sub(due as u64));
                shared.count_round(self.number, late_ns > LATE_NS);
                self.step(*step, late_ns).await;
                let taken = (step.requests() * shared.settings.threads) as f64;
                due = due.zip(between_ns).map(|(due, ns)| due + ns * taken);
                if due.is_none() {
                    // A server on this host answers without a wait, and other tasks have their turn.
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    async fn sleep_until(&self, at_ns: u64) {
        while !self.shared.is_over() {
            let left_ns = at_ns.saturating_sub(monotonic_ns());
            if left_ns == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_nanos(left_ns).min(LOOK)).await;
        }
    }

    /// An object that is there.
    fn any_object(&mut self) -> Option<usize> {
        let start = self.rng.usize(..self.share.len());
        let places = (start..self.share.len()).chain(0..start);
        places.into_iter().find(|place| self.share[*place].size.is_some())
    }

    async fn step(&mut self, step: Step, late_ns: u64) {
        match step {
            Step::Put => {
                let absent = self.share.iter().position(|slot| slot.size.is_none());
                let place = absent.unwrap_or_else(|| self.rng.usize(..self.share.len()));
                let bytes = draw(&self.shared.settings.size, &mut self.rng);
                self.put(Row::Put, place, bytes, late_ns).await;
            }
            Step::Get => {
                let Some(place) = self.any_object() else { return };
                self.get(Row::Get, place, late_ns).await;
            }
            Step::Append => {
                let Some(place) = self.any_object() else { return };
                if let Some(bytes) = self.get(Row::AppendGet, place, late_ns).await {
                    let more = self.rng.u64(1..2 * APPEND_BYTES);
                    self.put(Row::AppendPut, place, (bytes + more).min(OBJECT_BYTES_MAX), late_ns).await;
                }
            }
            Step::Head => {
                let Some(place) = self.any_object() else { return };
                let (key, size) = (self.key(place), self.share[place].size);
                let (began, answer) = self.timed(self.shared.client.head(&key)).await;
                let answer = answer.and_then(|found| check_size(found, size));
                self.end(Row::Head, began, late_ns, answer.map(|()| (0, None)));
            }
            Step::Delete => {
                let Some(place) = self.any_object() else { return };
                let key = self.key(place);
                // Until it is answered, it may be there or not.
                self.share[place].size = None;
                let (began, answer) = self.timed(self.shared.client.delete(&key)).await;
                self.end(Row::Delete, began, late_ns, answer.map(|()| (0, None)));
            }
            Step::List => {
                let place = self.rng.usize(..self.share.len());
                let group = keys::group(&self.shared.own, self.share[place].number);
                let (began, answer) = self.timed(self.shared.client.list(&group, 1000, None)).await;
                self.end(Row::List, began, late_ns, answer.map(|_| (0, None)));
            }
        }
    }

    fn key(&self, place: usize) -> String {
        keys::key(&self.shared.own, self.share[place].number)
    }

    async fn put(&mut self, row: Row, place: usize, bytes: u64, late_ns: u64) {
        let key = self.key(place);
        let content = chunks(&self.shared.content, self.rng.usize(..self.shared.content.len()), bytes);
        self.share[place].size = None;
        let (began, answer) = self.timed(self.shared.client.put(&key, content)).await;
        if answer.is_ok() {
            self.share[place].size = Some(bytes);
        }
        self.end(row, began, late_ns, answer.map(|()| (bytes, None)));
    }

    /// The object's size.
    async fn get(&mut self, row: Row, place: usize, late_ns: u64) -> Option<u64> {
        let (key, size) = (self.key(place), self.share[place].size);
        let (began, answer) = self.timed(self.shared.client.get(&key, size)).await;
        let answer = answer.and_then(|body| check_size(body.bytes, size).map(|()| body));
        let bytes = answer.as_ref().ok().map(|body| body.bytes);
        let counts = answer.map(|body| (body.bytes, Some(body.first_byte.as_nanos() as u64)));
        self.end(row, began, late_ns, counts);
        bytes
    }

    /// When a request began and ended, and its answer.
    async fn timed<T>(
        &self,
        request: impl Future<Output = Result<T, Failure>>,
    ) -> ((u64, u64), Result<T, Failure>) {
        let began_ns = monotonic_ns();
        let answer = request.await;
        let ended_ns = monotonic_ns();
        if let Err(failure) = &answer
            && failure.is_passing
        {
            tokio::time::sleep(PAUSE).await;
        }
        ((began_ns, ended_ns), answer)
    }

    /// Counts a request: its bytes and its time to the first byte.
    fn end(
        &self,
        row: Row,
        (began_ns, ended_ns): (u64, u64),
        late_ns: u64,
        answer: Result<(u64, Option<u64>), Failure>,
    ) {
        let shared = &self.shared;
        let took_ns = ended_ns.saturating_sub(began_ns);
        let is_judged = shared.times().is_judged(ended_ns);
        match answer {
            Ok((bytes, first_byte_ns)) => {
                let latency_ns = took_ns + late_ns;
                shared.succeed(ended_ns);
                let ended = Ended { row, latency_ns, took_ns, first_byte_ns, bytes, is_judged };
                shared.record(self.number, |recorder| recorder.count(ended));
            }
            Err(failure) => {
                let is_late = failure.is_late && shared.times().is_judged_late(began_ns, ended_ns);
                let is_judged = is_judged || is_late;
                shared.record(self.number, |recorder| recorder.fail(row, &failure, took_ns, is_judged));
                if failure.is_final {
                    shared.end(RunEnded::Failed(failure.sentence(&shared.own.to_string())));
                } else if !failure.is_slow_down {
                    shared.check_alive(ended_ns, &failure);
                }
            }
        }
    }
}

fn check_size(found: u64, expected: Option<u64>) -> Result<(), Failure> {
    match expected {
        Some(expected) if expected != found => Err(Failure::wrong_length(found, expected)),
        _ => Ok(()),
    }
}
