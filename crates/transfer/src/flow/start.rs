//! Starts flows.

use std::time::Duration;

use sys::clock::monotonic_ns;
use sys::span::Handle;

use super::engines::Engines;
use super::flow::{Buffers, Flow, problem};
use super::flow_spec::{FlowSpec, Side};
use crate::driver::{DriveSetting, Engine, FlowError, FlowSocket, Group, Member, threads_for};

/// How a group of flows works.
#[derive(Debug, Clone)]
pub struct GroupSetting {
    /// Threads at most; 0: one for each flow if there are few, else one for each CPU.
    pub threads: u32,
    /// How TCP senders work; `None`: as [`super::probe`] found if it has run, else `splice`.
    pub engine: Option<Engine>,
    /// A flow has failed after waiting for its peer for so long.
    pub silence_max: Duration,
    /// Times the calls of the threads.
    pub recorder: Option<Handle>,
}

impl Default for GroupSetting {
    fn default() -> Self {
        Self { threads: 0, engine: None, silence_max: Duration::from_secs(30), recorder: None }
    }
}

/// Starts `flows`: receivers at once, senders at this moment of the monotonic clock, or at once if it has
/// passed.
///
/// # Errors
/// [`FlowError`]: an impossible spec, options that the kernel refuses, no threads.
pub fn start(
    flows: Vec<(FlowSocket, FlowSpec)>,
    setting: &GroupSetting,
    at_monotonic_ns: u64,
) -> Result<Group, FlowError> {
    // A schedule begins when it can be kept.
    let start_ns = at_monotonic_ns.max(monotonic_ns());
    for (index, (socket, spec)) in flows.iter().enumerate() {
        if let Some(problem) = problem(socket, spec) {
            return Err(FlowError::Spec { flow: index, problem });
        }
    }
    let (threads, uses_epoll) = threads_for(flows.len(), setting.threads as usize);
    let sends_tcp =
        flows.iter().any(|(s, spec)| matches!(s, FlowSocket::Tcp(_)) && spec.side == Side::Sender);
    let mode = flows.iter().find(|(_, spec)| spec.side == Side::Receiver).map(|(_, spec)| spec.mode);
    let mut engines = Engines::choose(setting.engine, flows.len());
    let flow = |(socket, spec): (FlowSocket, FlowSpec)| {
        let member = Member::from(socket);
        let flow = Flow::new(&member, &spec, &mut engines, start_ns)?;
        Ok((member, flow))
    };
    let flows = flows.into_iter().map(flow).collect::<Result<Vec<_>, FlowError>>()?;
    let setting = DriveSetting {
        threads,
        uses_epoll,
        spins: false,
        start_ns,
        silence_max: setting.silence_max,
        recorder: setting.recorder.clone(),
    };
    Group::drive(flows, &setting, engines.choice(sends_tcp, mode, threads, uses_epoll), Buffers::for_flows)
}
