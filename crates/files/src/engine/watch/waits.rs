//! In which functions of the kernel the threads wait: looks at some of them, again and again.

use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use sys::proc::wait_channel;

use crate::engine::report::WaitSamples;

const EVERY: Duration = Duration::from_millis(100);
/// Threads of one look: 160 looks a second take less than a thousandth of a CPU.
const THREADS: usize = 16;
/// Functions that are kept apart; a kernel has few in which threads wait for files.
const FUNCTIONS_MAX: usize = 100;

#[derive(Default)]
pub(in crate::engine) struct WaitSampler {
    pub samples: WaitSamples,
    looked: Option<Instant>,
    /// The thread to look at next.
    next: usize,
}

impl WaitSampler {
    /// Looks at the next threads, if it is time to.
    pub(in crate::engine) fn look(&mut self, ids: &[AtomicI32]) {
        if ids.is_empty() || self.looked.is_some_and(|looked| looked.elapsed() < EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        for _ in 0..ids.len().min(THREADS) {
            let id = ids[self.next % ids.len()].load(Ordering::Relaxed);
            self.next = (self.next + 1) % ids.len();
            let Some(function) = (id != 0).then(|| wait_channel(Path::new("/"), id)).flatten() else {
                continue;
            };
            self.samples.looks += 1;
            let functions = &mut self.samples.by_function;
            if !function.is_empty() && (functions.len() < FUNCTIONS_MAX || functions.contains_key(&function))
            {
                *functions.entry(function).or_default() += 1;
            }
        }
    }
}
