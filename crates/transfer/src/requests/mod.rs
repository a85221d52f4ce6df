//! Requests and responses: how long one takes, and how many there are a second.
//!
//! Each flow is a loop of its own:
//!
//! | loop | when the next request is sent | from when latency counts |
//! |---|---|---|
//! | closed | when the last has its response, or is given up | from the sending |
//! | open | at moments of a schedule, whatever the responses do | from the intended moment |
//!
//! | waiting | what a thread does | for |
//! |---|---|---|
//! | block | one flow, closed loop: `send` and a `recv` that sleeps; else `epoll_pwait2` | most programs |
//! | spin | polls the socket | the least latency; a whole core |
//!
//! Over a connection responses come in the order of their requests. A datagram begins with the low bytes of
//! its number, as many as fit it and its response, at most 8; its response begins with the same. A request
//! without a response within a second is given up.

mod exchange;
mod in_flight;
mod request_flow;
mod request_spec;
mod requester;
mod responder;

pub use request_spec::{RequestEnd, RequestSide, RequestSpec};

use sys::clock::monotonic_ns;

use self::exchange::ThreadBuffers;
use self::request_flow::RequestFlow;
use super::driver::{DriveSetting, EngineChoice, FlowError, FlowSocket, Group, Member, cpus, threads_for};
use super::settings::Waiting;

/// Starts flows over `sockets`: responders at once, requesters at this moment of the monotonic clock, or at
/// once if it is past.
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
    Group::drive(flows, &setting, engine, move |_| ThreadBuffers::new(&spec, start_ns))
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
