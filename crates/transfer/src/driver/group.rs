//! Flows that start together: the threads that drive them, their counts, their end.

use std::sync::Arc;
use std::time::Duration;

use reactor::{ThreadControl, ThreadGroup, ThreadSpec};
use sys::clock::Deadline;
use sys::net::{NetError, TcpInfo};
use sys::span::Handle;
use sys::thread::{online_cpus, raise_file_limit};

use super::{
    CpuUsage, Drive, EndReason, EngineChoice, FlowCount, FlowCounters, FlowError, FlowReport, FlowSocket,
    LatencyStats, Responses, SilenceLimit, ThreadReport, blocking_loop, epoll_loop,
};

/// Files that a process has open beside its flows.
const OTHER_FILES: u64 = 128;
/// A socket and two pipes.
const FILES_A_FLOW: u64 = 5;
/// Up to this number of flows have a thread each on any host, unless the setting says otherwise.
const BLOCKING_FLOWS_MIN: usize = 16;
const THREADS_MAX: usize = 1024;
/// Buffers are on the heap.
const STACK_BYTES: usize = 256 << 10;

pub(crate) struct DriveSetting {
    pub(crate) threads: usize,
    /// Whether each thread waits for several descriptors or moments at once.
    pub(crate) uses_epoll: bool,
    pub(crate) spins: bool,
    pub(crate) start_ns: u64,
    pub(crate) silence_max: Duration,
    pub(crate) recorder: Option<Handle>,
}

/// What a group keeps of a flow.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) socket: Arc<FlowSocket>,
    pub(crate) counters: Arc<FlowCounters>,
}

impl From<FlowSocket> for Member {
    fn from(socket: FlowSocket) -> Self {
        Self { socket: Arc::new(socket), counters: Arc::default() }
    }
}

/// The results of one thread: of its flows by their index in the group, and its own.
#[derive(Debug)]
struct Share {
    flows: Vec<(usize, FlowReport)>,
    thread: ThreadReport,
    latency: Option<LatencyStats>,
}

/// Flows that run. Dropping it stops them.
#[derive(Debug)]
pub struct Group {
    members: Vec<Member>,
    threads: ThreadGroup<Share>,
    pub engine: EngineChoice,
}

#[derive(Debug)]
pub struct GroupReport {
    /// In the order in which the flows were given. `count.bytes` of a requester are those of its responses,
    /// of a responder those of its requests; `count.lost` of a UDP requester are unanswered requests.
    pub flows: Vec<FlowReport>,
    pub threads: Vec<ThreadReport>,
    pub engine: EngineChoice,
    /// Latencies of all requests; of requesters only.
    pub responses: Option<Responses>,
    /// The sockets, still open: dropping a sender's ends its stream in order. `None` if its thread did not
    /// end.
    pub sockets: Vec<Option<FlowSocket>>,
}

impl Group {
    /// Starts threads for `flows`.
    pub(crate) fn drive<F: Drive>(
        flows: Vec<(Member, F)>,
        setting: &DriveSetting,
        engine: EngineChoice,
        buffers: impl Fn(&[F]) -> F::Buffers + Clone + Send + 'static,
    ) -> Result<Self, FlowError> {
        let &DriveSetting { threads, uses_epoll, spins, start_ns, silence_max, .. } = setting;
        // Best effort: the sockets are open already, and senders without pipes write.
        let _ = raise_file_limit(flows.len() as u64 * FILES_A_FLOW + OTHER_FILES);
        let mut members = Vec::with_capacity(flows.len());
        let mut shares: Vec<Vec<(usize, F)>> = (0..threads).map(|_| Vec::new()).collect();
        for (index, (member, flow)) in flows.into_iter().enumerate() {
            shares[index % threads].push((index, flow));
            members.push(member);
        }
        let silence = SilenceLimit { start_ns, max: silence_max };
        let mut group = ThreadGroup::new(start_ns)?;
        for share in shares {
            let (recorder, buffers) = (setting.recorder.clone(), buffers.clone());
            let work = move |control: &ThreadControl| {
                let recorded = recorder.as_ref().map(Handle::join);
                // A wait for the common start is no wait for the peer.
                let _ = recorded.as_ref().map(|_| control.sleep_until_start());
                let usage = CpuUsage::begin(start_ns);
                let (indices, mut flows): (Vec<usize>, Vec<F>) = share.into_iter().unzip();
                let mut buffers = buffers(&flows);
                let reasons = if uses_epoll {
                    epoll_loop::run(&mut flows, &mut buffers, control, silence, spins)
                } else {
                    let run = |flow| blocking_loop::run(flow, &mut buffers, control, silence, spins);
                    flows.iter_mut().map(run).collect()
                };
                let ended = flows.iter_mut().zip(reasons);
                let reports = ended.map(|(flow, reason)| flow.report(reason, &mut buffers));
                let flows = indices.into_iter().zip(reports).collect();
                Share { flows, thread: usage.end(), latency: F::latency_stats(buffers) }
            };
            let spec = ThreadSpec {
                name: "flow".to_owned(),
                stack_bytes: Some(STACK_BYTES),
                is_precise: true,
                ..ThreadSpec::default()
            };
            group.spawn(spec, work)?;
        }
        Ok(Self { members, threads: group, engine })
    }

    /// The counts of each flow, in the order in which the flows were given. Never waits.
    pub fn counts(&self) -> Vec<FlowCount> {
        self.members.iter().map(|member| member.counters.read()).collect()
    }

    /// `TCP_INFO` of the first flows, at most `flows_max`; `None` for UDP.
    pub fn tcp_infos(&self, flows_max: usize) -> Vec<Option<TcpInfo>> {
        let info = |member: &Member| match &*member.socket {
            FlowSocket::Tcp(socket) => socket.info().ok(),
            FlowSocket::Udp(_) => None,
        };
        self.members.iter().take(flows_max).map(info).collect()
    }

    pub fn is_finished(&self) -> bool {
        self.threads.is_finished()
    }

    /// Waits until all flows have ended or the deadline has passed; whether they have ended.
    pub fn wait(&self, deadline: Deadline) -> bool {
        self.threads.wait(deadline)
    }

    /// Stops all flows, within 100 ms. Receivers read what their sockets have queued by then.
    pub fn stop(&self) {
        self.threads.stop();
    }

    /// Waits for the flows until the deadline, stops those that still run, and reports. Returns at most a
    /// second after the deadline.
    pub fn finish(mut self, deadline: Deadline) -> GroupReport {
        let mut reports: Vec<Option<FlowReport>> = self.members.iter().map(|_| None).collect();
        let (mut threads, mut latency, mut problem) = (Vec::new(), None::<LatencyStats>, String::new());
        for result in self.threads.finish(deadline) {
            let share = match result {
                Ok(share) => share,
                Err(error) => {
                    problem = error.to_string();
                    continue;
                }
            };
            threads.push(share.thread);
            for (index, report) in share.flows {
                reports[index] = Some(report);
            }
            latency = match (latency, share.latency) {
                (Some(all), Some(one)) => Some(all.with(&one)),
                (all, one) => all.or(one),
            };
        }
        let or_failed = |(report, member): (Option<FlowReport>, &Member)| {
            let failed = || member.socket.report(&member.counters, EndReason::Failed(problem.clone()));
            report.unwrap_or_else(failed)
        };
        let flows = reports.into_iter().zip(&self.members).map(or_failed).collect();
        let sockets = self.members.into_iter().map(|member| Arc::try_unwrap(member.socket).ok()).collect();
        let responses = latency.map(|latency| latency.responses());
        GroupReport { flows, threads, engine: self.engine, responses, sockets }
    }
}

/// The number of threads for `flows`, and whether they share threads; `wanted` 0: as many as are of use.
pub(crate) fn threads_for(flows: usize, wanted: usize) -> (usize, bool) {
    let (cpus, wanted) = (cpus(), wanted.min(THREADS_MAX));
    let blocking_max = if wanted == 0 { BLOCKING_FLOWS_MIN.max(2 * cpus) } else { wanted };
    match wanted {
        _ if flows <= blocking_max => (flows, false),
        0 => (cpus, true),
        _ => (wanted, true),
    }
}

/// The CPUs that this process may use, at least one.
pub(crate) fn cpus() -> usize {
    online_cpus().map_or(1, |cpus| cpus.len().max(1))
}

/// Raises this process's limit of open files so that `flows` flows can be opened.
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
