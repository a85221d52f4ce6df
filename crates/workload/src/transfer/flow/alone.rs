//! A thread with one flow: its calls wait in the kernel, which spares a readiness call for each.

use std::time::Duration;

use sys::clock::sleep_until_ns;
use sys::span::time;

use super::calls::SLEEP;
use super::course::Turn;
use super::crew::{Orders, WAIT_NS};
use super::flow::{Flow, Room};
use super::order::Ended;

/// What is queued when a receiver is told to stop is taken within this.
pub(super) const DRAIN_NS: u64 = 40_000_000;

/// A pause where the kernel said at once that it has no room (a full queue of a device): asking again sooner finds the
/// same.
const PAUSE_NS: u64 = 20_000;

/// Drives `flow` to its end.
pub(super) fn run(flow: &mut Flow, room: &mut Room, orders: &Orders) -> Ended {
    if flow.is_sender() && !orders.sleep_until_start() {
        return Ended::Stopped;
    }
    if let Err(error) = flow.set_wait(Duration::from_nanos(WAIT_NS)) {
        return Ended::Failed(error.to_string());
    }
    let mut moved_ns = flow.course.look();
    let mut waits_to_the_end = false;
    loop {
        if orders.is_stopped() {
            flow.drain(room, flow.course.now_ns().saturating_add(DRAIN_NS));
            return Ended::Stopped;
        }
        let left_ns = flow.course.end_ns().map(|end| end.saturating_sub(flow.course.now_ns()));
        if let Some(left_ns) = left_ns.filter(|&left| left < WAIT_NS && !waits_to_the_end) {
            waits_to_the_end = flow.set_wait(Duration::from_nanos(left_ns)).is_ok();
        }
        match flow.turn(room) {
            Turn::Moved => moved_ns = flow.course.now_ns(),
            Turn::Over(ended) => return ended,
            Turn::NotBefore(at_ns) => {
                time(&SLEEP, || sleep_until_ns(at_ns.min(flow.course.now_ns() + WAIT_NS)));
                moved_ns = flow.course.look();
            }
            Turn::Blocked => {
                let now_ns = flow.course.look();
                if let Some(ended) = orders.silence(moved_ns, now_ns) {
                    return ended;
                }
                time(&SLEEP, || sleep_until_ns(now_ns + PAUSE_NS));
            }
        }
    }
}
