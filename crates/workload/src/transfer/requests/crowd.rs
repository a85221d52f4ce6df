//! A thread that waits for several things at once: many flows, or answers and the moment of the next request. One epoll(7)
//! loop with a queue of moments; spinning, it never sleeps in it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use sys::clock::monotonic_ns;
use sys::net::{Epoll, Events, Interest, NetError, Waker};
use sys::span::{Entered, enter, time};

use super::super::flow::calls::{EPOLL_WAIT, POLLING};
use super::super::flow::{Ended, FlowSocket, Orders, Turn, WAIT_NS};
use super::super::settings::Waiting;
use super::alone::POLLS_AT_ONCE;
use super::talk::{Desk, Talk};

const EVENTS_MAX: usize = 256;
/// The token of the waker; flows have their index.
const STOP: u64 = u64::MAX;
/// How often each flow is asked whether it is overdue.
const LOOK_EVERY_NS: u64 = WAIT_NS;
/// How much one flow may send before others have their turn.
const TURNS_AT_ONCE: u32 = 16;

struct Crowd<'a> {
    orders: &'a Orders,
    epoll: Epoll,
    members: Vec<Member<'a>>,
    /// When which member is to be looked at.
    moments: BinaryHeap<Reverse<(u64, usize)>>,
    left: usize,
}

struct Member<'a> {
    talk: &'a mut Talk,
    watched: Option<Interest>,
    /// The moment in the queue that counts; `u64::MAX` if there is none.
    queued_ns: u64,
    ended: Option<Ended>,
}

/// Drives `talks` to their ends; how each ended, in the same order.
pub(super) fn run(
    talks: &mut [Talk],
    desk: &mut Desk,
    orders: &Orders,
    waiting: Waiting,
    waker: &Waker,
) -> Vec<Ended> {
    let number = talks.len();
    let ended = Crowd::new(talks, orders).and_then(|mut crowd| {
        crowd.run(desk, waiting, waker)?;
        Ok(crowd.members.into_iter().map(|member| member.ended.unwrap_or(Ended::Stopped)).collect())
    });
    // No epoll, or no room in it, is no flow's fault, but none can go on.
    ended.unwrap_or_else(|error| vec![Ended::Failed(error.to_string()); number])
}

impl<'a> Crowd<'a> {
    fn new(talks: &'a mut [Talk], orders: &'a Orders) -> Result<Self, NetError> {
        let left = talks.len();
        let member = |talk| Member { talk, watched: None, queued_ns: u64::MAX, ended: None };
        let members = talks.iter_mut().map(member).collect();
        let mut crowd = Self { orders, epoll: Epoll::new()?, members, moments: BinaryHeap::new(), left };
        for index in 0..left {
            let member = &mut crowd.members[index];
            member.talk.socket.set_wait(None)?;
            if member.talk.is_requester() {
                crowd.queue(index, orders.start_ns);
            } else {
                crowd.watch(index)?;
            }
        }
        Ok(crowd)
    }

    fn run(&mut self, desk: &mut Desk, waiting: Waiting, waker: &Waker) -> Result<(), NetError> {
        self.epoll.add(waker, STOP, Interest::READ)?;
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut look_ns = monotonic_ns() + LOOK_EVERY_NS;
        let mut polls = 0_u32;
        let mut polling: Option<Entered> = None;
        while self.left > 0 && !self.orders.is_stopped() {
            let next_ns = self.moments.peek().map_or(u64::MAX, |Reverse((ns, _))| *ns);
            match waiting {
                Waiting::Block => {
                    time(&EPOLL_WAIT, || self.epoll.wait_until(&mut events, next_ns.min(look_ns)))?
                }
                Waiting::Spin => self.epoll.wait_until(&mut events, 0)?,
            };
            if !events.is_empty() {
                drop(polling.take());
            } else if waiting == Waiting::Spin {
                polling.get_or_insert_with(|| enter(&POLLING));
            }
            for event in events.iter().filter(|event| event.token != STOP) {
                self.serve(event.token as usize, true, desk);
            }
            let now_ns = monotonic_ns();
            while let Some(index) = self.due(now_ns) {
                self.serve(index, false, desk);
            }
            if now_ns >= look_ns {
                look_ns = now_ns + LOOK_EVERY_NS;
                self.end_overdue_ones(desk);
            }
            polls = if events.is_empty() { polls.wrapping_add(1) } else { 0 };
            if waiting == Waiting::Spin && polls % POLLS_AT_ONCE == POLLS_AT_ONCE - 1 {
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// The next member whose moment has come.
    fn due(&mut self, now_ns: u64) -> Option<usize> {
        self.moments.peek().filter(|Reverse((ns, _))| *ns <= now_ns)?;
        let Reverse((_, index)) = self.moments.pop()?;
        self.members[index].queued_ns = u64::MAX;
        Some(index)
    }

    /// A later moment that is in the queue already does no harm when it comes.
    fn queue(&mut self, index: usize, at_ns: u64) {
        let member = &mut self.members[index];
        if at_ns < member.queued_ns {
            member.queued_ns = at_ns;
            self.moments.push(Reverse((at_ns, index)));
        }
    }

    /// Lets one flow move: takes what has come, then sends what is due.
    fn serve(&mut self, index: usize, may_have_come: bool, desk: &mut Desk) {
        let Some(member) = self.members.get_mut(index).filter(|member| member.ended.is_none()) else {
            return;
        };
        let talk = &mut *member.talk;
        let mut turn = Turn::Blocked;
        if may_have_come && talk.awaits() {
            turn = talk.receive(desk);
        } else {
            talk.look();
        }
        if !matches!(turn, Turn::Over(_)) {
            turn = talk.send(desk);
            for _ in 1..TURNS_AT_ONCE {
                if !matches!(turn, Turn::Moved) {
                    break;
                }
                turn = talk.send(desk);
            }
        }
        let watched = match turn {
            Turn::Over(ended) => {
                self.end(index, ended);
                return;
            }
            Turn::NotBefore(at_ns) => {
                self.queue(index, at_ns);
                self.watch(index)
            }
            // More is due, after the others' turns.
            Turn::Moved => {
                self.queue(index, 0);
                self.watch(index)
            }
            Turn::Blocked => self.watch(index),
        };
        if let Err(error) = watched {
            self.end(index, Ended::Failed(error.to_string()));
        }
    }

    /// Waits for what the member wants now.
    fn watch(&mut self, index: usize) -> Result<(), NetError> {
        let member = &mut self.members[index];
        let wanted = member.talk.interest();
        let token = index as u64;
        match (&*member.talk.socket, member.watched) {
            (_, Some(watched)) if watched == wanted => {}
            (FlowSocket::Tcp(socket), Some(_)) => self.epoll.modify(socket, token, wanted)?,
            (FlowSocket::Udp(socket), Some(_)) => self.epoll.modify(socket, token, wanted)?,
            (FlowSocket::Tcp(socket), None) => self.epoll.add(socket, token, wanted)?,
            (FlowSocket::Udp(socket), None) => self.epoll.add(socket, token, wanted)?,
        }
        member.watched = Some(wanted);
        Ok(())
    }

    fn end(&mut self, index: usize, ended: Ended) {
        let member = &mut self.members[index];
        if member.ended.is_some() {
            return;
        }
        member.ended = Some(ended);
        self.left -= 1;
        if member.watched.is_some() {
            // A watch that cannot be taken away ends with the epoll instance.
            let _ = match &*member.talk.socket {
                FlowSocket::Tcp(socket) => self.epoll.delete(socket),
                FlowSocket::Udp(socket) => self.epoll.delete(socket),
            };
        }
    }

    fn end_overdue_ones(&mut self, desk: &mut Desk) {
        for index in 0..self.members.len() {
            let member = &mut self.members[index];
            if member.ended.is_some() {
                continue;
            }
            match member.talk.overdue(desk, self.orders) {
                Some(ended) => self.end(index, ended),
                // What was given up may have made the next one due, or have been the last.
                None if member.watched.is_some() => self.serve(index, false, desk),
                None => {}
            }
        }
    }
}
