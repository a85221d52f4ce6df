//! Flows that start together: the threads that drive them, their counts, their end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use sys::clock::{Deadline, monotonic_ns};
use sys::net::{NetError, TcpInfo, Waker};
use sys::thread::{online_cpus, raise_file_limit, set_timer_slack_ns, thread_cpu_ns};

use super::cell::Cell;
use super::choice::{EngineChoice, Engines};
use super::error::FlowError;
use super::flow::{Flow, FlowSocket, Room, problem, report_of};
use super::order::{Ended, Engine, FlowCount, FlowOrder, FlowReport, Side, ThreadReport};
use super::{alone, crowd};

/// So many flows each have a thread of their own, on any host, unless the setting says otherwise.
const ALONE_LEAST: usize = 16;
/// Files that a process has open beside its flows.
const OTHER_FILES: u64 = 128;
/// A socket and two pipes.
const FILES_A_FLOW: u64 = 5;
/// After a stop, threads that have not ended by then are left behind.
const STOP_WITHIN: Duration = Duration::from_secs(1);
/// Threads need little: their buffers are on the heap.
const STACK_BYTES: usize = 256 << 10;

/// How a group works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSetting {
    /// Threads at most; 0 lets the group choose: one a flow if there are few, else one a CPU.
    pub threads: u32,
    /// How TCP senders work; `None`: as the probe found, see [`super::probe`], if it has run, else `splice`.
    pub engine: Option<Engine>,
    /// A flow that waits for its peer for so long has failed.
    pub silence_max: Duration,
}

impl Default for GroupSetting {
    fn default() -> Self {
        Self { threads: 0, engine: None, silence_max: Duration::from_secs(30) }
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

/// What all threads of a group are told.
#[derive(Debug)]
pub(super) struct Orders {
    pub(super) start_ns: u64,
    silence_max: Duration,
    is_stopped: AtomicBool,
}

impl Orders {
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// How a flow ends that waits for its peer since `since_ns`, if that is too long.
    pub(super) fn silence(&self, since_ns: u64, now_ns: u64) -> Option<Ended> {
        // Before the common start nobody is expected to move.
        let silent_ns = now_ns.saturating_sub(since_ns.max(self.start_ns));
        (u128::from(silent_ns) >= self.silence_max.as_nanos()).then(|| {
            let seconds = self.silence_max.as_secs_f64();
            Ended::Failed(format!(
                "nothing moved for {seconds} s: is the peer alive, and does a firewall let it through?"
            ))
        })
    }
}

/// How many threads are still at work, and the wish to know when none is.
#[derive(Debug)]
struct AtWork {
    threads: Mutex<usize>,
    changed: Condvar,
}

/// A thread's share: which flows it has, and what came of them.
type Ran = (Vec<(usize, FlowReport)>, ThreadReport);

struct Member {
    socket: Arc<FlowSocket>,
    cell: Arc<Cell>,
}

/// Flows under way. Dropping it stops them.
pub struct Group {
    members: Vec<Member>,
    orders: Arc<Orders>,
    at_work: Arc<AtWork>,
    threads: Vec<JoinHandle<Ran>>,
    wakers: Vec<Arc<Waker>>,
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
            let member = Member { socket: Arc::new(socket), cell: Arc::new(Cell::default()) };
            let (socket, cell) = (member.socket.clone(), member.cell.clone());
            let flow = Flow::new(socket, &order, cell, &mut engines, start_ns)?;
            shares[index % threads].push((index, flow));
            members.push(member);
        }
        let orders =
            Orders { start_ns, silence_max: setting.silence_max, is_stopped: AtomicBool::new(false) };
        let at_work = AtWork { threads: Mutex::new(0), changed: Condvar::new() };
        let mut group = Self {
            members,
            orders: Arc::new(orders),
            at_work: Arc::new(at_work),
            threads: Vec::with_capacity(threads),
            wakers: Vec::new(),
            choice: engines.choice(sends_tcp, mode, threads, shared),
        };
        for share in shares {
            group.spawn(share, shared)?;
        }
        Ok(group)
    }

    fn spawn(&mut self, share: Vec<(usize, Flow)>, shared: bool) -> Result<(), FlowError> {
        let (orders, at_work) = (self.orders.clone(), self.at_work.clone());
        let waker = if shared { Some(Arc::new(Waker::new()?)) } else { None };
        self.wakers.extend(waker.clone());
        *at_work.lock() += 1;
        let run = move || {
            // Left also when something panics, so that nobody waits for this thread.
            let _leave = Leave(at_work);
            drive(share, &orders, waker.as_deref())
        };
        let spawned = std::thread::Builder::new().name("flow".into()).stack_size(STACK_BYTES).spawn(run);
        self.threads.push(spawned.map_err(FlowError::Thread)?);
        Ok(())
    }

    /// How far each flow is, in the order in which they were given. Never waits.
    pub fn counts(&self) -> Vec<FlowCount> {
        self.members.iter().map(|member| member.cell.read()).collect()
    }

    /// `TCP_INFO` of each flow now; `None` of UDP.
    pub fn tcp_infos(&self) -> Vec<Option<TcpInfo>> {
        let info = |member: &Member| match &*member.socket {
            FlowSocket::Tcp(socket) => socket.info().ok(),
            FlowSocket::Udp(_) => None,
        };
        self.members.iter().map(info).collect()
    }

    /// How the flows are moved.
    pub fn engine(&self) -> &EngineChoice {
        &self.choice
    }

    /// Whether all flows have ended.
    pub fn is_finished(&self) -> bool {
        *self.at_work.lock() == 0
    }

    /// Waits until all flows have ended, or the deadline; whether they have.
    pub fn wait(&self, deadline: Deadline) -> bool {
        let mut threads = self.at_work.lock();
        while *threads > 0 && !deadline.passed() {
            let waited = self.at_work.changed.wait_timeout(threads, deadline.left());
            threads = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *threads == 0
    }

    /// Tells all flows to stop, within 100 ms. Receivers take what has come by then.
    pub fn stop(&self) {
        self.orders.is_stopped.store(true, Ordering::Relaxed);
        for waker in &self.wakers {
            waker.wake();
        }
    }

    /// Waits for the flows to end until the deadline, stops those that have not, and reports. Never waits longer than a
    /// second beyond the deadline.
    pub fn finish(mut self, deadline: Deadline) -> GroupReport {
        if !self.wait(deadline) {
            self.stop();
            self.wait(Deadline::after(STOP_WITHIN));
        }
        let all_ended = self.is_finished();
        let mut reports: Vec<Option<FlowReport>> = self.members.iter().map(|_| None).collect();
        let mut threads = Vec::with_capacity(self.threads.len());
        for thread in std::mem::take(&mut self.threads) {
            // One that has left is about to end, so that joining it does not wait.
            let ran = (all_ended || thread.is_finished()).then(|| thread.join().ok()).flatten();
            let Some((ended, thread)) = ran else { continue };
            threads.push(thread);
            for (index, report) in ended {
                reports[index] = Some(report);
            }
        }
        let stuck = || Ended::Failed("its thread did not end; please report this".into());
        let members = std::mem::take(&mut self.members);
        let or_stuck = |(report, member): (Option<FlowReport>, &Member)| {
            report.unwrap_or_else(|| report_of(&member.socket, &member.cell, stuck()))
        };
        let flows = reports.into_iter().zip(&members).map(or_stuck).collect();
        let sockets = members.into_iter().map(|member| Arc::try_unwrap(member.socket).ok()).collect();
        GroupReport { flows, threads, engine: self.choice.clone(), sockets }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.stop();
    }
}

impl AtWork {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says that a thread is leaving when it is dropped.
struct Leave(Arc<AtWork>);

impl Drop for Leave {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.changed.notify_all();
    }
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

/// How many threads drive `flows`, and whether several flows share one; `wanted` 0 lets us choose.
fn threads_for(flows: usize, wanted: usize) -> (usize, bool) {
    let cpus = online_cpus().map_or(1, |cpus| cpus.len().max(1));
    let alone_most = if wanted == 0 { ALONE_LEAST.max(2 * cpus) } else { wanted };
    match wanted {
        _ if flows <= alone_most => (flows, false),
        0 => (cpus, true),
        _ => (wanted, true),
    }
}

/// What a thread does: drives its flows to their ends.
fn drive(share: Vec<(usize, Flow)>, orders: &Orders, waker: Option<&Waker>) -> Ran {
    // Wake-ups at the moment asked for. Where the kernel refuses, senders at a rate are a little late.
    let _ = set_timer_slack_ns(1);
    let (from_ns, from_cpu_ns) = (monotonic_ns().max(orders.start_ns), thread_cpu_ns());
    let (indices, mut flows): (Vec<usize>, Vec<Flow>) = share.into_iter().unzip();
    let mut room = Room::for_flows(&flows);
    let ended = match waker {
        Some(waker) => crowd::run(&mut flows, &mut room, orders, waker),
        None => flows.iter_mut().map(|flow| alone::run(flow, &mut room, orders)).collect(),
    };
    let reports = flows.iter().zip(ended).map(|(flow, ended)| flow.report(ended));
    let reports = indices.into_iter().zip(reports).collect();
    let cpu_ns = thread_cpu_ns().saturating_sub(from_cpu_ns);
    (reports, ThreadReport { cpu_ns, wall_ns: monotonic_ns().saturating_sub(from_ns) })
}
