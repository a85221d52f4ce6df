//! A thread with one flow: its calls wait in the kernel, which saves a readiness call for each.

use std::time::Duration;

use reactor::ThreadControl;
use sys::clock::sleep_until_ns;
use sys::span::{Entered, enter, time};

use super::span_names::{POLLING, SLEEP};
use super::{DRAIN_NS, Drive, EndReason, POLLS_PER_CHECK, SilenceLimit, Step, WAIT_NS};

/// Pause after a call that failed at once for lack of room (a device's queue is full): an earlier repetition
/// fails as well.
const PAUSE_NS: u64 = 20_000;

pub(super) fn run<F: Drive>(
    flow: &mut F,
    buffers: &mut F::Buffers,
    control: &ThreadControl,
    silence: SilenceLimit,
    spins: bool,
) -> EndReason {
    match flow.waits_for_start().then(|| control.sleep_until_start()).transpose() {
        Ok(Some(false)) => return EndReason::Stopped,
        Ok(_) => {}
        Err(error) => return EndReason::Failed(error.to_string()),
    }
    if let Err(error) = flow.set_wait((!spins).then_some(Duration::from_nanos(WAIT_NS))) {
        return EndReason::Failed(error.to_string());
    }
    flow.read_clock();
    let mut polls = 0_u32;
    let mut polling: Option<Entered> = None;
    loop {
        if control.is_stopped() {
            let until_ns = flow.read_clock().saturating_add(DRAIN_NS);
            flow.drain(buffers, until_ns);
            return EndReason::Stopped;
        }
        match flow.step_blocking(buffers) {
            Step::Moved => {
                polls = 0;
                drop(polling.take());
            }
            Step::Over(reason) => return reason,
            Step::WaitUntil(at_ns) if !spins => {
                let until_ns = flow.read_clock().saturating_add(WAIT_NS).min(at_ns);
                time(&SLEEP, || sleep_until_ns(until_ns));
                flow.read_clock();
            }
            Step::WaitUntil(_) | Step::Blocked => {
                polls = polls.wrapping_add(1);
                if spins {
                    polling.get_or_insert_with(|| enter(&POLLING));
                    if !polls.is_multiple_of(POLLS_PER_CHECK) {
                        continue;
                    }
                }
                if let Step::Over(reason) = flow.check(buffers, silence) {
                    return reason;
                }
                if spins {
                    std::thread::yield_now();
                } else {
                    let until_ns = flow.read_clock() + PAUSE_NS;
                    time(&SLEEP, || sleep_until_ns(until_ns));
                }
            }
        }
    }
}
