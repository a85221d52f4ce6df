//! A thread with one flow: a request and its answer are two calls, one of which waits in the kernel; or, spinning, asks
//! again and again.

use std::time::Duration;

use sys::span::{Entered, enter};

use super::super::flow::calls::POLLING;
use super::super::flow::{Ended, Orders, Turn, WAIT_NS};
use super::super::settings::Waiting;
use super::talk::{Desk, Talk};

/// Once in so many polls in vain a spinning thread looks at the clock and gives way to others: where two of them have only
/// one CPU, the peer may be waiting for this one.
pub(super) const POLLS_AT_ONCE: u32 = 32;

/// Drives `talk` to its end.
pub(super) fn run(talk: &mut Talk, desk: &mut Desk, orders: &Orders, waiting: Waiting) -> Ended {
    if talk.is_requester() && !orders.sleep_until_start() {
        return Ended::Stopped;
    }
    let spins = waiting == Waiting::Spin;
    let wait = (!spins).then_some(Duration::from_nanos(WAIT_NS));
    if let Err(error) = talk.socket.set_wait(wait) {
        return Ended::Failed(error.to_string());
    }
    talk.look();
    let mut polls = 0_u32;
    let mut polling: Option<Entered> = None;
    loop {
        if orders.is_stopped() {
            return Ended::Stopped;
        }
        let sent = talk.send(desk);
        if let Turn::Over(ended) = sent {
            return ended;
        }
        let came = if talk.awaits() { talk.receive(desk) } else { Turn::Blocked };
        match (sent, came) {
            (_, Turn::Over(ended)) => return ended,
            (Turn::Moved, _) | (_, Turn::Moved) => {
                polls = 0;
                drop(polling.take());
            }
            _ => {
                if spins {
                    polling.get_or_insert_with(|| enter(&POLLING));
                }
                polls = polls.wrapping_add(1);
                if spins && !polls.is_multiple_of(POLLS_AT_ONCE) {
                    continue;
                }
                if let Some(ended) = talk.overdue(desk, orders) {
                    return ended;
                }
                if spins {
                    std::thread::yield_now();
                }
            }
        }
    }
}
