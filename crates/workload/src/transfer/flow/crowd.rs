//! A thread with many flows: one epoll(7) loop, with a queue of moments for senders that keep a rate.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use sys::clock::monotonic_ns;
use sys::net::{Epoll, Events, Interest, NetError, Waker};
use sys::span::time;

use super::alone::DRAIN_NS;
use super::calls::EPOLL_WAIT;
use super::course::Turn;
use super::crew::{Orders, WAIT_NS};
use super::flow::{Flow, FlowSocket, Room};
use super::order::Ended;

const EVENTS_MAX: usize = 256;
/// The token of the waker; flows have their index.
const STOP: u64 = u64::MAX;
/// How often silent flows are looked for.
const LOOK_EVERY_NS: u64 = 1_000_000_000;

/// The flows of one thread.
struct Crowd<'a> {
    orders: &'a Orders,
    epoll: Epoll,
    members: Vec<Member<'a>>,
    /// When which member is to be looked at.
    moments: BinaryHeap<Reverse<(u64, usize)>>,
    left: usize,
}

struct Member<'a> {
    flow: &'a mut Flow,
    is_watched: bool,
    moved_ns: u64,
    ended: Option<Ended>,
}

/// Drives `flows` to their ends; how each ended, in the same order.
pub(super) fn run(flows: &mut [Flow], room: &mut Room, orders: &Orders, waker: &Waker) -> Vec<Ended> {
    let number = flows.len();
    let ended = Crowd::new(flows, orders).and_then(|mut crowd| {
        crowd.run(room, waker)?;
        Ok(crowd.ends(room))
    });
    // No epoll, or no room in it, is no flow's fault, but none can go on.
    ended.unwrap_or_else(|error| vec![Ended::Failed(error.to_string()); number])
}

impl<'a> Crowd<'a> {
    fn new(flows: &'a mut [Flow], orders: &'a Orders) -> Result<Self, NetError> {
        let now_ns = monotonic_ns();
        let left = flows.len();
        let member = |flow| Member { flow, is_watched: false, moved_ns: now_ns, ended: None };
        let members = flows.iter_mut().map(member).collect();
        let mut crowd = Self { orders, epoll: Epoll::new()?, members, moments: BinaryHeap::new(), left };
        for index in 0..left {
            let member = &mut crowd.members[index];
            member.flow.socket.set_wait(None)?;
            if let Some(end_ns) = member.flow.course.end_ns() {
                crowd.moments.push(Reverse((end_ns, index)));
            }
            if member.flow.is_sender() {
                crowd.moments.push(Reverse((orders.start_ns, index)));
            } else {
                crowd.watch(index)?;
            }
        }
        Ok(crowd)
    }

    fn run(&mut self, room: &mut Room, waker: &Waker) -> Result<(), NetError> {
        self.epoll.add(waker, STOP, Interest::READ)?;
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut look_ns = monotonic_ns() + LOOK_EVERY_NS;
        while self.left > 0 && !self.orders.is_stopped() {
            let now_ns = monotonic_ns();
            let next_ns = self.moments.peek().map_or(u64::MAX, |Reverse((ns, _))| *ns);
            time(&EPOLL_WAIT, || self.epoll.wait_until(&mut events, next_ns.min(now_ns + WAIT_NS)))?;
            for event in events.iter().filter(|event| event.token != STOP) {
                self.serve(event.token as usize, room);
            }
            let now_ns = monotonic_ns();
            while let Some(index) = self.due(now_ns) {
                self.serve(index, room);
            }
            if now_ns >= look_ns {
                look_ns = now_ns + LOOK_EVERY_NS;
                self.end_silent_ones(now_ns);
            }
        }
        Ok(())
    }

    /// The next member whose moment has come.
    fn due(&mut self, now_ns: u64) -> Option<usize> {
        self.moments.peek().filter(|Reverse((ns, _))| *ns <= now_ns)?;
        self.moments.pop().map(|Reverse((_, index))| index)
    }

    /// Lets one flow move for a while.
    fn serve(&mut self, index: usize, room: &mut Room) {
        let Some(member) = self.members.get_mut(index).filter(|member| member.ended.is_none()) else {
            return;
        };
        let now_ns = member.flow.course.look();
        if member.flow.is_sender() && now_ns < self.orders.start_ns {
            return;
        }
        let mut turn = Turn::Blocked;
        for _ in 0..member.flow.turns_at_once() {
            turn = member.flow.turn(room);
            if !matches!(turn, Turn::Moved) {
                break;
            }
            member.moved_ns = member.flow.course.now_ns();
        }
        let done = match turn {
            Turn::Moved | Turn::Blocked => self.watch(index),
            Turn::NotBefore(at_ns) => {
                member.moved_ns = now_ns;
                self.moments.push(Reverse((at_ns, index)));
                self.unwatch(index)
            }
            Turn::Over(ended) => {
                self.end(index, ended);
                Ok(())
            }
        };
        if let Err(error) = done {
            self.end(index, Ended::Failed(error.to_string()));
        }
    }

    fn watch(&mut self, index: usize) -> Result<(), NetError> {
        let member = &mut self.members[index];
        if !member.is_watched {
            let interest = member.flow.interest();
            match &*member.flow.socket {
                FlowSocket::Tcp(socket) => self.epoll.add(socket, index as u64, interest)?,
                FlowSocket::Udp(socket) => self.epoll.add(socket, index as u64, interest)?,
            }
            member.is_watched = true;
        }
        Ok(())
    }

    fn unwatch(&mut self, index: usize) -> Result<(), NetError> {
        let member = &mut self.members[index];
        if member.is_watched {
            match &*member.flow.socket {
                FlowSocket::Tcp(socket) => self.epoll.delete(socket)?,
                FlowSocket::Udp(socket) => self.epoll.delete(socket)?,
            }
            member.is_watched = false;
        }
        Ok(())
    }

    fn end(&mut self, index: usize, ended: Ended) {
        // A watch that cannot be taken away ends with the epoll instance.
        let _ = self.unwatch(index);
        let member = &mut self.members[index];
        if member.ended.is_none() {
            member.ended = Some(ended);
            self.left -= 1;
        }
    }

    fn end_silent_ones(&mut self, now_ns: u64) {
        for index in 0..self.members.len() {
            let member = &self.members[index];
            let waits = member.is_watched && member.ended.is_none();
            if let Some(ended) = self.orders.silence(member.moved_ns, now_ns).filter(|_| waits) {
                self.end(index, ended);
            }
        }
    }

    /// How all have ended; those that are left were told to stop.
    fn ends(self, room: &mut Room) -> Vec<Ended> {
        let until_ns = monotonic_ns() + DRAIN_NS;
        let end = |member: Member<'_>| {
            member.ended.unwrap_or_else(|| {
                member.flow.course.look();
                member.flow.drain(room, until_ns);
                Ended::Stopped
            })
        };
        self.members.into_iter().map(end).collect()
    }
}
