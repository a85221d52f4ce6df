//! Starts requesters or responders.

use sys::clock::monotonic_ns;

use super::exchange::ThreadBuffers;
use super::request_flow::RequestFlow;
use super::request_spec::{RequestSide, RequestSpec};
use crate::driver::{DriveSetting, EngineChoice, FlowError, FlowSocket, Group, Member, cpus, threads_for};
use crate::settings::Waiting;

/// Starts flows over `sockets`: responders at once, requesters at this moment of the monotonic clock, or at
/// once if it has passed.
///
/// # Errors
/// [`FlowError`]: an impossible spec, options that the kernel refuses, no threads.
pub fn start(sockets: Vec<FlowSocket>, spec: &RequestSpec, at_monotonic_ns: u64) -> Result<Group, FlowError> {
    // A schedule begins when it can be kept.
    let start_ns = at_monotonic_ns.max(monotonic_ns());
    let number = sockets.len();
    let flow = |(index, socket): (usize, FlowSocket)| {
        if let Some(problem) = spec.problem(&socket) {
            return Err(FlowError::Spec { flow: index, problem });
        }
        let member = Member::from(socket);
        let flow = RequestFlow::new(&member, spec, start_ns, (index, number))?;
        Ok((member, flow))
    };
    let flows = sockets.into_iter().enumerate().map(flow).collect::<Result<Vec<_>, FlowError>>()?;
    let (threads, uses_epoll) = threads_of(spec, number);
    let setting = DriveSetting {
        threads,
        uses_epoll,
        spins: spec.waiting == Waiting::Spin,
        start_ns,
        silence_max: spec.silence_max,
        recorder: spec.recorder.clone(),
    };
    let engine = EngineChoice {
        sender: None,
        mode: None,
        segmented: None,
        threads: u32::try_from(threads).unwrap_or(u32::MAX),
        shared_threads: number > threads,
        probe: None,
    };
    let spec = spec.clone();
    Group::drive(flows, &setting, engine, move |_| ThreadBuffers::new(&spec))
}

/// The number of threads for `flows`, and whether each waits for several descriptors or moments at once.
fn threads_of(spec: &RequestSpec, flows: usize) -> (usize, bool) {
    let wanted = spec.threads as usize;
    match spec.waiting {
        Waiting::Block => {
            let (threads, shared) = threads_for(flows, wanted);
            (threads, shared || (spec.side == RequestSide::Requester && spec.rate_per_s.is_some()))
        }
        Waiting::Spin => {
            // The other half is for the kernel, and for the peer if it is on this host too.
            let most = if wanted == 0 { (cpus() / 2).max(1) } else { wanted };
            (flows.min(most), flows > most)
        }
    }
}
