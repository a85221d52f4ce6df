//! A requester: sends when its schedule says, and tells how long each answer took.

use sys::net::Moved;

use super::super::flow::{BLOCK_BYTES, Ended, FlowSocket, Orders, Turn, block, failed};
use super::account::Account;
use super::order::RequestEnd;
use super::schedule::Schedule;
use super::talk::{Desk, Progress, Sizes, receive, send};
use super::window::{Sent, WINDOW, Window};

/// So long an answer is waited for after the last request was due; of UDP, after any. Longer than any path takes that
/// still works.
const PATIENCE_NS: u64 = 1_000_000_000;

/// The asking side of a flow.
#[derive(Debug)]
pub(super) struct Requester {
    sizes: Sizes,
    end: RequestEnd,
    schedule: Schedule,
    window: Window,
    /// What is left to be sent of the request that is under way; of a connection.
    unsent: usize,
    /// What has come of the answer that is under way; of a connection.
    partly: usize,
    lacks_room: bool,
    /// Since when nothing has come though an answer is awaited.
    silent_since_ns: Option<u64>,
    pub(super) progress: Progress,
}

impl Requester {
    pub(super) fn new(sizes: Sizes, end: RequestEnd, schedule: Schedule, progress: Progress) -> Self {
        let window = Window::default();
        let (unsent, partly) = (0, 0);
        Self {
            sizes,
            end,
            schedule,
            window,
            unsent,
            partly,
            lacks_room: false,
            silent_since_ns: None,
            progress,
        }
    }

    fn is_closed_loop(&self) -> bool {
        self.schedule == Schedule::Closed
    }

    pub(super) fn send(&mut self, socket: &FlowSocket, desk: &mut Desk) -> Turn {
        if self.unsent > 0 {
            return self.send_on(socket, desk.spins);
        }
        let intended_ns = match self.due(socket, &mut desk.account) {
            Ok(intended_ns) => intended_ns,
            Err(turn) => return turn,
        };
        let whole = self.sizes.request;
        let first = match socket {
            FlowSocket::Tcp(_) => &block()[..whole.min(BLOCK_BYTES)],
            FlowSocket::Udp(_) => {
                self.sizes.write_number(&mut desk.datagram, self.window.next());
                &desk.datagram[..whole]
            }
        };
        match send(socket, first, desk.spins) {
            Ok(Moved::Bytes(bytes)) => {
                let sent = Sent { intended_ns, sent_ns: self.progress.now_ns };
                self.window.push(sent);
                desk.account.sent(sent, self.schedule.late_ns());
                self.progress.moved();
                self.silent_since_ns.get_or_insert(sent.sent_ns);
                self.unsent = whole - bytes;
                self.lacks_room = false;
                Turn::Moved
            }
            Ok(Moved::WouldBlock | Moved::End) => {
                self.lacks_room = true;
                if let FlowSocket::Udp(_) = socket {
                    self.progress.refused();
                }
                Turn::Blocked
            }
            Err(error) => Turn::Over(failed(&error, self.progress.bytes())),
        }
    }

    /// Sends more of a request that had no room before.
    fn send_on(&mut self, socket: &FlowSocket, spins: bool) -> Turn {
        match send(socket, &block()[..self.unsent.min(BLOCK_BYTES)], spins) {
            Ok(Moved::Bytes(bytes)) => {
                self.unsent -= bytes;
                self.lacks_room = false;
                self.silent_since_ns = Some(self.progress.look());
                Turn::Moved
            }
            Ok(Moved::WouldBlock | Moved::End) => {
                self.lacks_room = true;
                Turn::Blocked
            }
            Err(error) => Turn::Over(failed(&error, self.progress.bytes())),
        }
    }

    /// The moment at which the next request is intended, if that has come; or why none is due.
    fn due(&mut self, socket: &FlowSocket, account: &mut Account) -> Result<u64, Turn> {
        let number = self.window.next();
        let intended_ns = self.schedule.moment_ns(number).unwrap_or(self.progress.now_ns);
        let is_last_sent = match self.end {
            RequestEnd::AtNs(end_ns) => intended_ns >= end_ns,
            RequestEnd::Requests(requests) => number >= requests,
            RequestEnd::Peer => false,
        };
        if is_last_sent {
            let is_done = self.window.waiting() == 0;
            return Err(if is_done { Turn::Over(Ended::Done) } else { Turn::Blocked });
        }
        if self.is_closed_loop() {
            return if self.window.waiting() == 0 { Ok(intended_ns) } else { Err(Turn::Blocked) };
        }
        if intended_ns > self.progress.look() {
            return Err(Turn::NotBefore(intended_ns));
        }
        match socket {
            FlowSocket::Tcp(_) if self.window.waiting() >= WINDOW => return Err(Turn::Blocked),
            FlowSocket::Tcp(_) => {}
            FlowSocket::Udp(_) => self.give_up_old(0, account),
        }
        Ok(intended_ns)
    }

    pub(super) fn receive(&mut self, socket: &FlowSocket, desk: &mut Desk) -> Turn {
        let bytes = match receive(socket, &mut desk.room, desk.spins) {
            Ok(Moved::Bytes(bytes)) => bytes,
            Ok(Moved::WouldBlock) => return Turn::Blocked,
            Ok(Moved::End) => return Turn::Over(self.closed()),
            Err(error) => return Turn::Over(failed(&error, self.progress.bytes())),
        };
        self.progress.look();
        let answered = match socket {
            FlowSocket::Tcp(_) => self.take(bytes, &mut desk.account),
            FlowSocket::Udp(_) => {
                self.take_datagram(&desk.room[..bytes], &mut desk.account);
                Ok(())
            }
        };
        self.silent_since_ns = (self.window.waiting() > 0).then_some(self.progress.now_ns);
        match answered {
            Ok(()) => Turn::Moved,
            Err(ended) => Turn::Over(ended),
        }
    }

    /// Bytes of answers came over a connection.
    fn take(&mut self, bytes: usize, account: &mut Account) -> Result<(), Ended> {
        self.progress.came(bytes);
        self.partly += bytes;
        while self.partly >= self.sizes.answer {
            self.partly -= self.sizes.answer;
            let Some(sent) = self.window.answered_next() else { return Err(unasked()) };
            account.answered(sent, self.progress.now_ns);
        }
        if self.partly > 0 && self.window.waiting() == 0 { Err(unasked()) } else { Ok(()) }
    }

    /// A datagram came. One that answers nothing that waits came twice, or after it was given up.
    fn take_datagram(&mut self, datagram: &[u8], account: &mut Account) {
        let Some(number) = self.sizes.read_number(datagram) else { return };
        if let Some(sent) = self.window.answered(number, self.sizes.number_bits()) {
            self.progress.datagram_came(datagram.len());
            account.answered(sent, self.progress.now_ns);
        }
    }

    fn closed(&self) -> Ended {
        if self.end == RequestEnd::Peer {
            return Ended::ByPeer;
        }
        let (waiting, bytes) = (self.window.waiting(), self.progress.bytes());
        Ended::Failed(format!(
            "the peer closed the connection after {bytes} bytes of answers; requests without one: {waiting}"
        ))
    }

    pub(super) fn awaits(&self) -> bool {
        !self.is_closed_loop() || (self.unsent == 0 && self.window.waiting() > 0)
    }

    pub(super) fn lacks_room(&self) -> bool {
        self.lacks_room
    }

    pub(super) fn overdue(
        &mut self,
        socket: &FlowSocket,
        account: &mut Account,
        orders: &Orders,
    ) -> Option<Ended> {
        let now_ns = self.progress.look();
        if let FlowSocket::Udp(_) = socket {
            self.give_up_old(now_ns.saturating_sub(PATIENCE_NS), account);
        }
        match self.end {
            RequestEnd::AtNs(end_ns) if now_ns >= end_ns.saturating_add(PATIENCE_NS) => Some(Ended::Done),
            _ => orders.silence(self.silent_since_ns?, now_ns),
        }
    }

    /// Gives up the oldest requests that were sent before a moment.
    fn give_up_old(&mut self, before_ns: u64, account: &mut Account) {
        while let Some(sent) = self.window.given_up(before_ns) {
            account.unanswered(sent);
            self.progress.lost();
        }
    }

    /// Puts down what was due and is not answered. Of one that was told to stop, what may still be under way is not.
    pub(super) fn give_up(&mut self, ended: &Ended, account: &mut Account) {
        let now_ns = self.progress.look();
        let due_ns = match (ended, self.end) {
            (Ended::Stopped, _) => now_ns.saturating_sub(PATIENCE_NS),
            (_, RequestEnd::AtNs(end_ns)) => now_ns.min(end_ns),
            _ => now_ns,
        };
        let last = match self.end {
            RequestEnd::Requests(requests) => requests,
            _ => u64::MAX,
        };
        let due = self.schedule.number_before(due_ns).min(last);
        let told = self.window.next().max(self.schedule.number_before(account.begin_ns()));
        account.unsent(due.saturating_sub(told));
        while let Some(sent) = self.window.answered_next() {
            if sent.sent_ns < due_ns || *ended != Ended::Stopped {
                account.unanswered(sent);
            }
        }
    }
}

fn unasked() -> Ended {
    let why = "more came than was asked for: do both ends mean the same size of an answer?";
    Ended::Failed(why.into())
}
