//! Requesters or answerers that start together: the threads that drive them, their counts, their end.

use sys::clock::{Deadline, monotonic_ns};
use sys::net::Waker;

use super::super::flow::calls::record;
use super::super::flow::{
    Crew, FlowCount, FlowError, FlowReport, FlowSocket, Member, Orders, ThreadReport, Usage, close, cpus,
    threads_for,
};
use super::super::settings::Waiting;
use super::account::Account;
use super::order::{RequestOrder, RequestReport, RequestSide};
use super::talk::{Desk, Talk};
use super::{alone, crowd};

/// A thread's share: which flows it had, what came of them, what it used.
type Ran = (Vec<(usize, FlowReport)>, ThreadReport, Account);

/// Flows under way. Dropping it stops them.
pub struct RequestGroup {
    members: Vec<Member>,
    crew: Crew<Ran>,
    side: RequestSide,
}

impl RequestGroup {
    /// Starts flows over `sockets`: answerers at once, requesters at a moment of the monotonic clock (at once if it has
    /// passed).
    ///
    /// # Errors
    /// [`FlowError`]: an order that makes no sense, options that the kernel refuses, or no threads.
    pub fn start(
        sockets: Vec<FlowSocket>,
        order: &RequestOrder,
        at_monotonic_ns: u64,
    ) -> Result<Self, FlowError> {
        // A schedule begins when it can be kept.
        let start_ns = at_monotonic_ns.max(monotonic_ns());
        let flows = sockets.len();
        let (threads, waits_for_several) = threads_of(order, flows);
        let mut members = Vec::with_capacity(flows);
        let mut shares: Vec<Vec<(usize, Talk)>> = (0..threads).map(|_| Vec::new()).collect();
        for (index, socket) in sockets.into_iter().enumerate() {
            if let Some(problem) = order.problem(&socket) {
                return Err(FlowError::Order { flow: index, problem });
            }
            let member = Member::new(socket);
            shares[index % threads].push((index, Talk::new(&member, order, start_ns, (index, flows))?));
            members.push(member);
        }
        let mut crew = Crew::new(Orders::new(start_ns, order.silence_max));
        for share in shares {
            let order = order.clone();
            crew.spawn(waits_for_several, move |orders, waker| {
                let _recorded = record(order.recorder.as_ref(), orders);
                drive(share, &order, orders, waker)
            })?;
        }
        Ok(Self { members, crew, side: order.side })
    }

    /// How far each flow is, in the order in which they were given: what this side received. Never waits.
    pub fn counts(&self) -> Vec<FlowCount> {
        self.members.iter().map(|member| member.cell.read()).collect()
    }

    /// Whether all flows have ended.
    pub fn is_finished(&self) -> bool {
        self.crew.is_finished()
    }

    /// Waits until all flows have ended, or the deadline; whether they have.
    pub fn wait(&self, deadline: Deadline) -> bool {
        self.crew.wait(deadline)
    }

    /// Tells all flows to stop, within 100 ms.
    pub fn stop(&self) {
        self.crew.stop();
    }

    /// Waits for the flows to end until the deadline, stops those that have not, and reports. Never waits longer than a
    /// second beyond the deadline.
    pub fn finish(mut self, deadline: Deadline) -> RequestReport {
        let mut reports: Vec<Option<FlowReport>> = self.members.iter().map(|_| None).collect();
        let mut threads = Vec::new();
        let mut sum = Account::default();
        for (ended, thread, account) in self.crew.finish(deadline) {
            threads.push(thread);
            sum.merge(&account);
            for (index, report) in ended {
                reports[index] = Some(report);
            }
        }
        let responses = (self.side == RequestSide::Requester).then(|| sum.responses());
        let (flows, sockets) = close(self.members, reports);
        RequestReport { flows, threads, responses, sockets }
    }
}

/// How many threads drive `flows`, and whether each waits for several things at once.
fn threads_of(order: &RequestOrder, flows: usize) -> (usize, bool) {
    let wanted = order.threads as usize;
    match order.waiting {
        Waiting::Block => {
            let (threads, shared) = threads_for(flows, wanted);
            (threads, shared || (order.side == RequestSide::Requester && order.rate_per_s.is_some()))
        }
        Waiting::Spin => {
            // The other half is left to the kernel, and to the peer if it is on this host too.
            let most = if wanted == 0 { (cpus() / 2).max(1) } else { wanted };
            (flows.min(most), flows > most)
        }
    }
}

/// What a thread does: drives its flows to their ends.
fn drive(share: Vec<(usize, Talk)>, order: &RequestOrder, orders: &Orders, waker: Option<&Waker>) -> Ran {
    let usage = Usage::begin(orders.start_ns);
    let (indices, mut talks): (Vec<usize>, Vec<Talk>) = share.into_iter().unzip();
    let mut desk = Desk::new(order);
    let ended = match waker {
        Some(waker) => crowd::run(&mut talks, &mut desk, orders, order.waiting, waker),
        None => talks.iter_mut().map(|talk| alone::run(talk, &mut desk, orders, order.waiting)).collect(),
    };
    let reports = talks.iter_mut().zip(ended).map(|(talk, ended)| talk.close(ended, &mut desk.account));
    let reports = indices.into_iter().zip(reports).collect();
    let thread = usage.end();
    (reports, thread, desk.account)
}
