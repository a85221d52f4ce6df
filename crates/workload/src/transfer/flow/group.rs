//! Flows that start together: the threads that drive them, their counts, their end.

use std::sync::Arc;
use std::time::Duration;

use sys::clock::{Deadline, monotonic_ns};
use sys::net::{NetError, TcpInfo, Waker};
use sys::span::Handle;
use sys::thread::raise_file_limit;

use super::calls::record;
use super::cell::Cell;
use super::choice::{EngineChoice, Engines};
use super::crew::{Crew, Orders, threads_for};
use super::error::FlowError;
use super::flow::{Flow, FlowSocket, Room, problem, report_of};
use super::order::{Ended, Engine, FlowCount, FlowOrder, FlowReport, Side, ThreadReport};
use super::usage::Usage;
use super::{alone, crowd};

/// Files that a process has open beside its flows.
const OTHER_FILES: u64 = 128;
/// A socket and two pipes.
const FILES_A_FLOW: u64 = 5;

/// How a group works.
#[derive(Debug, Clone)]
pub struct GroupSetting {
    /// Threads at most; 0 lets the group choose: one a flow if there are few, else one a CPU.
    pub threads: u32,
    /// How TCP senders work; `None`: as the probe found, see [`super::probe`], if it has run, else `splice`.
    pub engine: Option<Engine>,
    /// A flow that waits for its peer for so long has failed.
    pub silence_max: Duration,
    /// Times the calls of its threads.
    pub recorder: Option<Handle>,
}

impl Default for GroupSetting {
    fn default() -> Self {
        Self { threads: 0, engine: None, silence_max: Duration::from_secs(30), recorder: None }
    }
}

/// What a group came to.
#[derive(Debug)]
pub struct GroupReport {
    /// Its flows, in the order in which they were given.
    pub flows: Vec<FlowReport>,
    /// The threads that drove them.
    pub threads: Vec<ThreadReport>,
    /// How they worked.
    pub engine: EngineChoice,
    /// The flows' sockets, still open: dropping a sender's ends its stream in order. `None` for one whose thread did not
    /// end.
    pub sockets: Vec<Option<FlowSocket>>,
}

/// A thread's share: which flows it has, and what came of them.
type Ran = (Vec<(usize, FlowReport)>, ThreadReport);

/// What a group keeps of a flow.
#[derive(Debug)]
pub(in crate::transfer) struct Member {
    pub(in crate::transfer) socket: Arc<FlowSocket>,
    pub(in crate::transfer) cell: Arc<Cell>,
}

impl Member {
    /// One that nothing has moved over yet.
    pub(in crate::transfer) fn new(socket: FlowSocket) -> Self {
        Self { socket: Arc::new(socket), cell: Arc::default() }
    }
}

/// Flows under way. Dropping it stops them.
pub struct Group {
    members: Vec<Member>,
    crew: Crew<Ran>,
    choice: EngineChoice,
}

impl Group {
    /// Starts `flows`: receivers at once, senders at a moment of the monotonic clock (at once if it has passed).
    ///
    /// # Errors
    /// [`FlowError`]: an order that makes no sense, options that the kernel refuses, or no threads.
    pub fn start(
        flows: Vec<(FlowSocket, FlowOrder)>,
        setting: &GroupSetting,
        at_monotonic_ns: u64,
    ) -> Result<Self, FlowError> {
        // A schedule begins when it can be kept.
        let start_ns = at_monotonic_ns.max(monotonic_ns());
        for (index, (socket, order)) in flows.iter().enumerate() {
            if let Some(problem) = problem(socket, order) {
                return Err(FlowError::Order { flow: index, problem });
            }
        }
        let (threads, shared) = threads_for(flows.len(), setting.threads as usize);
        // As far as it goes: the sockets are open already, and what lacks pipes writes.
        let _ = raise_file_limit(flows.len() as u64 * FILES_A_FLOW + OTHER_FILES);
        let sends_tcp = flows.iter().any(|(s, o)| matches!(s, FlowSocket::Tcp(_)) && o.side == Side::Sender);
        let mode = flows.iter().find(|(_, o)| o.side == Side::Receiver).map(|(_, o)| o.mode);
        let mut engines = Engines::choose(setting.engine, flows.len());
        let mut members = Vec::with_capacity(flows.len());
        let mut shares: Vec<Vec<(usize, Flow)>> = (0..threads).map(|_| Vec::new()).collect();
        for (index, (socket, order)) in flows.into_iter().enumerate() {
            let member = Member::new(socket);
            let (socket, cell) = (member.socket.clone(), member.cell.clone());
            let flow = Flow::new(socket, &order, cell, &mut engines, start_ns)?;
            shares[index % threads].push((index, flow));
            members.push(member);
        }
        let mut crew = Crew::new(Orders::new(start_ns, setting.silence_max));
        for share in shares {
            let recorder = setting.recorder.clone();
            crew.spawn(shared, move |orders, waker| {
                let _recorded = record(recorder.as_ref(), orders);
                drive(share, orders, waker)
            })?;
        }
        Ok(Self { members, crew, choice: engines.choice(sends_tcp, mode, threads, shared) })
    }

    /// How far each flow is, in the order in which they were given. Never waits.
    pub fn counts(&self) -> Vec<FlowCount> {
        self.members.iter().map(|member| member.cell.read()).collect()
    }

    /// `TCP_INFO` of the first flows now, `most` of them; `None` of UDP.
    pub fn tcp_infos(&self, most: usize) -> Vec<Option<TcpInfo>> {
        let info = |member: &Member| match &*member.socket {
            FlowSocket::Tcp(socket) => socket.info().ok(),
            FlowSocket::Udp(_) => None,
        };
        self.members.iter().take(most).map(info).collect()
    }

    /// How the flows are moved.
    pub fn engine(&self) -> &EngineChoice {
        &self.choice
    }

    /// Whether all flows have ended.
    pub fn is_finished(&self) -> bool {
        self.crew.is_finished()
    }

    /// Waits until all flows have ended, or the deadline; whether they have.
    pub fn wait(&self, deadline: Deadline) -> bool {
        self.crew.wait(deadline)
    }

    /// Tells all flows to stop, within 100 ms. Receivers take what has come by then.
    pub fn stop(&self) {
        self.crew.stop();
    }

    /// Waits for the flows to end until the deadline, stops those that have not, and reports. Never waits longer than a
    /// second beyond the deadline.
    pub fn finish(mut self, deadline: Deadline) -> GroupReport {
        let mut reports: Vec<Option<FlowReport>> = self.members.iter().map(|_| None).collect();
        let mut threads = Vec::new();
        for (ended, thread) in self.crew.finish(deadline) {
            threads.push(thread);
            for (index, report) in ended {
                reports[index] = Some(report);
            }
        }
        let (flows, sockets) = close(self.members, reports);
        GroupReport { flows, threads, engine: self.choice, sockets }
    }
}

/// What is told of each member, by its thread or in its place, and the sockets.
pub(in crate::transfer) fn close(
    members: Vec<Member>,
    reports: Vec<Option<FlowReport>>,
) -> (Vec<FlowReport>, Vec<Option<FlowSocket>>) {
    let stuck = || Ended::Failed("its thread did not end; please report this".into());
    let or_stuck = |(report, member): (Option<FlowReport>, &Member)| {
        report.unwrap_or_else(|| report_of(&member.socket, &member.cell, stuck()))
    };
    let flows = reports.into_iter().zip(&members).map(or_stuck).collect();
    let sockets = members.into_iter().map(|member| Arc::try_unwrap(member.socket).ok()).collect();
    (flows, sockets)
}

/// Lets this process have the files open that `flows` flows need, raising its limit if it may.
///
/// # Errors
/// [`FlowError::Files`]: it may not have so many.
pub fn room_for(flows: usize) -> Result<(), FlowError> {
    let needed = flows as u64 + OTHER_FILES;
    match raise_file_limit(needed) {
        Ok(limit) if limit >= needed => Ok(()),
        Ok(limit) => Err(FlowError::Files { flows, needed, limit }),
        Err(error) => {
            Err(NetError { action: "raise", target: "the limit of open files".into(), source: error }.into())
        }
    }
}

/// What a thread does: drives its flows to their ends.
fn drive(share: Vec<(usize, Flow)>, orders: &Orders, waker: Option<&Waker>) -> Ran {
    let usage = Usage::begin(orders.start_ns);
    let (indices, mut flows): (Vec<usize>, Vec<Flow>) = share.into_iter().unzip();
    let mut room = Room::for_flows(&flows);
    let ended = match waker {
        Some(waker) => crowd::run(&mut flows, &mut room, orders, waker),
        None => flows.iter_mut().map(|flow| alone::run(flow, &mut room, orders)).collect(),
    };
    let reports = flows.iter().zip(ended).map(|(flow, ended)| flow.report(ended));
    let reports = indices.into_iter().zip(reports).collect();
    (reports, usage.end())
}
