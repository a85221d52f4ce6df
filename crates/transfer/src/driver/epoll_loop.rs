//! A thread with several flows, or with responses and the moment of the next request to wait for.

use reactor::{EventLoop, Reactor, StateMachine, ThreadControl, Token};
use sys::clock::monotonic_ns;
use sys::net::{Event, NetError};
use sys::span::{Entered, enter};

use super::span_names::{EPOLL_WAIT, POLLING};
use super::{DRAIN_NS, Drive, EndReason, POLLS_PER_CHECK, SilenceLimit, Step};

const EVENTS_MAX: usize = 256;
/// The token class of flows; the index is the flow's in its thread.
const FLOW: u8 = 1;

struct EpollLoop<'a, F: Drive> {
    entries: Vec<Entry<'a, F>>,
    buffers: &'a mut F::Buffers,
    running: usize,
    /// The wait of a spinning thread, until something happens.
    polling: Option<Entered>,
}

struct Entry<'a, F> {
    flow: &'a mut F,
    watched: Option<sys::net::Interest>,
    timer_ns: u64,
    ended: Option<EndReason>,
}

/// Drives `flows` to their ends; the reasons, in the same order.
pub(super) fn run<F: Drive>(
    flows: &mut [F],
    buffers: &mut F::Buffers,
    control: &ThreadControl,
    silence: SilenceLimit,
    spins: bool,
) -> Vec<EndReason> {
    let number = flows.len();
    let entry = |flow| Entry { flow, watched: None, timer_ns: u64::MAX, ended: None };
    let entries: Vec<_> = flows.iter_mut().map(entry).collect();
    let mut machine = EpollLoop { entries, buffers, running: number, polling: None };
    // Without epoll no flow can go on, though none has failed.
    match machine.run(control, silence, spins) {
        Ok(()) => machine.ends(),
        Err(error) => vec![EndReason::Failed(error.to_string()); number],
    }
}

impl<F: Drive> EpollLoop<'_, F> {
    fn run(&mut self, control: &ThreadControl, silence: SilenceLimit, spins: bool) -> Result<(), NetError> {
        let mut events = EventLoop::new(control.stop_handle(), EVENTS_MAX)?;
        if !spins {
            events = events.with_wait_span(&EPOLL_WAIT);
        }
        for index in 0..self.entries.len() {
            self.begin(index, control.start_ns(), events.reactor())?;
        }
        let mut check_ns = monotonic_ns() + F::CHECK_EVERY_NS;
        let mut polls = 0_u32;
        while self.running > 0 && !control.is_stopped() {
            let number = events.poll_once(self, if spins { 0 } else { check_ns })?;
            let reactor = events.reactor();
            if reactor.now_ns() >= check_ns {
                check_ns = reactor.now_ns() + F::CHECK_EVERY_NS;
                self.check_all(silence, reactor);
            }
            if spins && number == 0 {
                self.polling.get_or_insert_with(|| enter(&POLLING));
                polls = polls.wrapping_add(1);
                if polls.is_multiple_of(POLLS_PER_CHECK) {
                    std::thread::yield_now();
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, index: usize, start_ns: u64, reactor: &mut Reactor) -> Result<(), NetError> {
        let entry = &mut self.entries[index];
        entry.flow.set_wait(None)?;
        if entry.flow.waits_for_start() {
            self.set_timer(index, start_ns, reactor);
            return Ok(());
        }
        self.set_timer(index, u64::MAX, reactor);
        self.watch(index, &Step::Blocked, reactor)
    }

    fn advance(&mut self, token: Token, is_ready: bool, reactor: &mut Reactor) {
        let index = token.index();
        let Some(entry) = self.entries.get_mut(index).filter(|entry| entry.ended.is_none()) else { return };
        let step = entry.flow.step_ready(is_ready, self.buffers);
        let timer_ns = match step {
            Step::Over(reason) => return self.end(index, reason, reactor),
            Step::WaitUntil(at_ns) => at_ns,
            Step::Moved | Step::Blocked => u64::MAX,
        };
        if matches!(step, Step::Moved) {
            reactor.resume(token);
        }
        self.set_timer(index, timer_ns, reactor);
        if let Err(error) = self.watch(index, &step, reactor) {
            self.end(index, EndReason::Failed(error.to_string()), reactor);
        }
    }

    /// Sets the timer to `at_ns`, or to the flow's end if that is earlier.
    fn set_timer(&mut self, index: usize, at_ns: u64, reactor: &mut Reactor) {
        let entry = &mut self.entries[index];
        let at_ns = entry.flow.end_ns().map_or(at_ns, |end_ns| end_ns.min(at_ns));
        if at_ns != std::mem::replace(&mut entry.timer_ns, at_ns) {
            reactor.set_timer(Token::fixed(FLOW, index as u32), at_ns);
        }
    }

    fn watch(&mut self, index: usize, after: &Step, reactor: &mut Reactor) -> Result<(), NetError> {
        let entry = &mut self.entries[index];
        let wanted = entry.flow.interest(after);
        let (socket, token) = (entry.flow.socket(), Token::fixed(FLOW, index as u32));
        match (entry.watched, wanted) {
            (watched, wanted) if watched == wanted => {}
            (None, Some(wanted)) => reactor.watch(socket, token, wanted)?,
            (Some(_), Some(wanted)) => reactor.change_watch(socket, token, wanted)?,
            (_, None) => reactor.unwatch(socket)?,
        }
        entry.watched = wanted;
        Ok(())
    }

    fn end(&mut self, index: usize, reason: EndReason, reactor: &mut Reactor) {
        let entry = &mut self.entries[index];
        if entry.watched.take().is_some() {
            // A watch that stays ends with the loop.
            let _ = reactor.unwatch(entry.flow.socket());
        }
        self.running -= usize::from(entry.ended.replace(reason).is_none());
    }

    fn check_all(&mut self, silence: SilenceLimit, reactor: &mut Reactor) {
        for index in 0..self.entries.len() {
            let entry = &mut self.entries[index];
            if entry.watched.is_none() || entry.ended.is_some() {
                continue;
            }
            match entry.flow.check(self.buffers, silence) {
                Step::Over(reason) => self.end(index, reason, reactor),
                Step::Moved => self.advance(Token::fixed(FLOW, index as u32), false, reactor),
                Step::Blocked | Step::WaitUntil(_) => {}
            }
        }
    }

    /// The reasons of all ends; flows that still run were stopped.
    fn ends(self) -> Vec<EndReason> {
        let until_ns = monotonic_ns() + DRAIN_NS;
        let Self { entries, buffers, .. } = self;
        let end = |Entry { flow, ended, .. }: Entry<'_, F>| {
            ended.unwrap_or_else(|| {
                flow.read_clock();
                flow.drain(buffers, until_ns);
                EndReason::Stopped
            })
        };
        entries.into_iter().map(end).collect()
    }
}

impl<F: Drive> StateMachine for EpollLoop<'_, F> {
    fn on_ready(&mut self, reactor: &mut Reactor, token: Token, _: Event) {
        drop(self.polling.take());
        self.advance(token, true, reactor);
    }

    fn on_timer(&mut self, reactor: &mut Reactor, token: Token) {
        self.entries[token.index()].timer_ns = u64::MAX;
        self.advance(token, false, reactor);
    }

    fn on_resume(&mut self, reactor: &mut Reactor, token: Token) {
        self.advance(token, false, reactor);
    }

    fn on_stop(&mut self, _: &mut Reactor) {}
}
