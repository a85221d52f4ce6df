//! Forwards one direction of a delay line.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sys::clock::monotonic_ns;
use sys::tap::{Tap, TapWait};

use super::counters::Counters;
use super::queue::{PacketFate, Queue};

/// Largest frame, also on links with jumbo frames.
const FRAME_BYTES_MAX: usize = 65_550;
/// An idle CPU wakes up late: after longer waits, spin for the last moment. Closely spaced packets keep the
/// CPU awake anyway.
const LONG_WAIT_NS: u64 = 1_000_000;
const LAST_MOMENT_NS: u64 = 80_000;
/// Frames to receive before due frames are delivered.
const BATCH: usize = 32;

pub(super) struct Direction {
    pub(super) from: Arc<Tap>,
    pub(super) to: Arc<Tap>,
    pub(super) queue: Queue,
    pub(super) count: Arc<Counters>,
}

impl Direction {
    pub(super) fn run(mut self) -> io::Error {
        // A cable never waits for a CPU. If either call fails, packets are late, which the counters show.
        let _ = sys::thread::set_timer_slack_ns(1);
        let _ = sys::thread::set_realtime();
        let mut frame = vec![0; FRAME_BYTES_MAX];
        let wait = match TapWait::new() {
            Ok(wait) => wait,
            Err(error) => return error,
        };
        loop {
            self.deliver_due();
            let mut taken = 0;
            while taken < BATCH {
                match self.from.receive(&mut frame) {
                    Ok(Some(length)) => self.enqueue(&frame[..length]),
                    Ok(None) => break,
                    Err(error) => return error,
                }
                taken += 1;
            }
            // After a full batch, more packets may be waiting.
            if taken < BATCH
                && let Err(error) = self.wait(&wait)
            {
                return error;
            }
        }
    }

    fn enqueue(&mut self, frame: &[u8]) {
        match self.queue.push(frame, monotonic_ns()) {
            PacketFate::Queued => {}
            PacketFate::Lost => Counters::add(&self.count.lost, 1),
            PacketFate::Dropped => Counters::add(&self.count.dropped, 1),
        }
    }

    fn deliver_due(&mut self) {
        let (to, count) = (&self.to, &self.count);
        while self.queue.pop(monotonic_ns(), |frame, due_ns| {
            let late_ns = monotonic_ns().saturating_sub(due_ns);
            count.late_ns_max.fetch_max(late_ns, Ordering::Relaxed);
            match to.send(frame) {
                Ok(()) => {
                    Counters::add(&count.forwarded, 1);
                    Counters::add(&count.forwarded_bytes, frame.len() as u64);
                }
                // The device is down, and with it the line.
                Err(_) => Counters::add(&count.dropped, 1),
            }
        }) {}
    }

    /// Waits for a packet to receive or to deliver. May return early.
    fn wait(&self, wait: &TapWait) -> io::Result<()> {
        let Some(due_ns) = self.queue.next_due_ns() else { return wait.wait(&self.from, None) };
        if due_ns.saturating_sub(monotonic_ns()) <= LONG_WAIT_NS {
            return wait.wait(&self.from, Some(due_ns));
        }
        let nearly_ns = due_ns - LAST_MOMENT_NS;
        wait.wait(&self.from, Some(nearly_ns))?;
        // Unless a packet ended the wait.
        if monotonic_ns() >= nearly_ns {
            while monotonic_ns() < due_ns {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }
}
