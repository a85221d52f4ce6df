//! One direction of a line: out of one device, into the other a while later.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sys::clock::monotonic_ns;
use sys::tap::{Tap, TapWait};

use super::counters::Counters;
use super::queue::{Fate, Queue};

/// The largest frame there can be, on links that take jumbo frames as well.
const FRAME_BYTES_MAX: usize = 65_550;
/// A processor that has slept for long wakes up late: after waits longer than the first, the last moment is not slept
/// but spent looking at the clock. Packets that follow each other closely keep it awake, and cost nothing more.
const LONG_WAIT_NS: u64 = 1_000_000;
const LAST_MOMENT_NS: u64 = 80_000;
/// So many are taken in before it is looked whether some have arrived.
const BATCH: usize = 32;

pub(super) struct Direction {
    pub(super) from: Arc<Tap>,
    pub(super) to: Arc<Tap>,
    pub(super) queue: Queue,
    pub(super) count: Arc<Counters>,
}

impl Direction {
    /// Carries packets until a device has gone; returns why.
    pub(super) fn run(mut self) -> io::Error {
        // It stands for a cable, which is never busy with something else. Where either cannot be set, packets arrive
        // later than they should, which the counters tell.
        let _ = sys::thread::set_timer_slack_ns(1);
        let _ = sys::thread::set_realtime();
        let mut frame = vec![0; FRAME_BYTES_MAX];
        let wait = match TapWait::new() {
            Ok(wait) => wait,
            Err(error) => return error,
        };
        loop {
            self.hand_over();
            let mut taken = 0;
            while taken < BATCH {
                match self.from.receive(&mut frame) {
                    Ok(Some(length)) => self.take(&frame[..length]),
                    Ok(None) => break,
                    Err(error) => return error,
                }
                taken += 1;
            }
            // Whoever had a full batch may have more waiting.
            if taken < BATCH
                && let Err(error) = self.wait(&wait)
            {
                return error;
            }
        }
    }

    fn take(&mut self, frame: &[u8]) {
        match self.queue.push(frame, monotonic_ns()) {
            Fate::Carried => {}
            Fate::Lost => Counters::add(&self.count.lost, 1),
            Fate::Dropped => Counters::add(&self.count.dropped, 1),
        }
    }

    /// Whatever has arrived goes into the other device.
    fn hand_over(&mut self) {
        let (to, count) = (&self.to, &self.count);
        while self.queue.pop(monotonic_ns(), |frame, due_ns| {
            let late_ns = monotonic_ns().saturating_sub(due_ns);
            count.late_ns_max.fetch_max(late_ns, Ordering::Relaxed);
            match to.send(frame) {
                Ok(()) => {
                    Counters::add(&count.forwarded, 1);
                    Counters::add(&count.forwarded_bytes, frame.len() as u64);
                }
                // The device is down: so is the line.
                Err(_) => Counters::add(&count.dropped, 1),
            }
        }) {}
    }

    /// Until a packet comes or one arrives; it may be earlier.
    fn wait(&self, wait: &TapWait) -> io::Result<()> {
        let Some(due_ns) = self.queue.next_due_ns() else { return wait.wait(&self.from, None) };
        if due_ns.saturating_sub(monotonic_ns()) <= LONG_WAIT_NS {
            return wait.wait(&self.from, Some(due_ns));
        }
        let nearly_ns = due_ns - LAST_MOMENT_NS;
        wait.wait(&self.from, Some(nearly_ns))?;
        // Unless it was a packet that ended the wait.
        if monotonic_ns() >= nearly_ns {
            while monotonic_ns() < due_ns {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }
}
