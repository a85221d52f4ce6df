//! Compares the clocks of a run's agents before, during and after it.

use std::collections::BTreeMap;
use std::time::Duration;

use base::doubt::Doubt;

use super::fan_out;
use super::membership::Membership;
use crate::clock::{self, Batch, DatagramAddress, Key, Offset, Responder};
use crate::protocol::{Request, Response};
use crate::{BusError, FleetError};
use sys::clock::monotonic_ns;
use zenoh::Session;

/// One responder thread serves all: a few agents wait little for each other.
const PARALLEL_PROBES_MAX: usize = 4;
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// A larger clock bound is reported as a doubt.
const BOUND_DOUBT_NS: u64 = 1_000_000;
/// A larger error of the wall clock is reported as a doubt.
const WALL_CLOCK_OFF_S: f64 = 2.0;

pub struct Clocks {
    key: Key,
    responder: Responder,
    batches: BTreeMap<String, Vec<Batch>>,
    failures: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ClockUnknown {
    #[error("{0}")]
    Failed(String),
    /// The probes gave no offset.
    #[error(transparent)]
    Unsynchronised(#[from] clock::Unsynchronised),
}

impl Clocks {
    pub fn start(address: &DatagramAddress) -> Result<Self, FleetError> {
        let key = Key::random();
        let responder = Responder::start(address, key.clone())?;
        Ok(Self { key, responder, batches: BTreeMap::new(), failures: BTreeMap::new() })
    }

    /// Lets these agents compare their clocks with this host's, a few at a time.
    pub fn probe(
        &mut self,
        session: &Session,
        membership: &Membership,
        hosts: &[String],
        is_running: &dyn Fn() -> bool,
    ) {
        for some in hosts.chunks(PARALLEL_PROBES_MAX) {
            let request = Request::Probe {
                target: self.responder.address().clone(),
                key: self.key.clone(),
                batch: clock::BatchRequest::default(),
            };
            let requests = some.iter().map(|host| (host.clone(), request.clone())).collect();
            for (host, answer) in
                fan_out::request_each(session, membership, requests, ANSWER_WITHIN, is_running)
            {
                self.record(host, answer);
            }
        }
    }

    fn record(&mut self, host: String, answer: Result<Response, BusError>) {
        let failure = match answer {
            Ok(Response::Probed(clock::BatchResult { batch, .. })) => {
                self.failures.remove(&host);
                self.batches.entry(host).or_default().extend(batch);
                return;
            }
            Ok(Response::Refused { error, .. }) => error.message,
            Ok(_) => "it sent an unexpected response".to_owned(),
            Err(BusError::HostLost { why, .. }) => why,
            Err(error) => error.to_string(),
        };
        self.failures.insert(host, failure);
    }

    /// The doubts about the clocks of a host: the bound of its comparison during the run, and how far its
    /// wall clock is from ours.
    pub fn doubts(&self, host: &str, bound_ns: Option<u64>, wall_clock_off_s: f64) -> Vec<Doubt> {
        let clock = match self.offset(host) {
            Ok(_) => bound_ns.filter(|bound_ns| *bound_ns > BOUND_DOUBT_NS).map(|bound_ns| {
                Doubt::ClockUncertain { host: host.to_owned(), bound_us: bound_ns as f64 / 1e3 }
            }),
            Err(why) => Some(Doubt::NotSampled { what: vec![why.to_string()] }.on(host)),
        };
        let wall = Doubt::WallClockOff { host: host.to_owned(), off_s: wall_clock_off_s };
        clock.into_iter().chain((wall_clock_off_s.abs() > WALL_CLOCK_OFF_S).then_some(wall)).collect()
    }

    /// Offset of an agent's clock to this host's.
    /// Errors: The clock was never compared, no probe was answered, or the probes contradict each other.
    pub fn offset(&self, host: &str) -> Result<Offset, ClockUnknown> {
        match (self.batches.get(host), self.failures.get(host)) {
            (None, Some(why)) => Err(ClockUnknown::Failed(why.clone())),
            (batches, _) => Ok(Offset::from_batches(batches.map(Vec::as_slice).unwrap_or_default())?),
        }
    }

    /// Largest difference between the actual start times of hosts that should start at `at_ns`, in ns.
    /// Uses the offsets known now, which are better than those at the start. This host's own clock is exact.
    pub fn start_spread_ns(&self, start_times: &[(String, u64)], at_ns: u64) -> Option<u64> {
        let (mut first_ns, mut last_ns) = (at_ns, at_ns);
        for (host, agent_ns) in start_times {
            let offset = self.offset(host).ok()?;
            let (began_ns, bound_ns) = (offset.to_coordinator_ns(*agent_ns), offset.bound_ns(at_ns));
            first_ns = first_ns.min(began_ns.saturating_sub(bound_ns));
            last_ns = last_ns.max(began_ns.saturating_add(bound_ns));
        }
        Some(last_ns - first_ns)
    }

    pub fn now_ns(&self) -> u64 {
        monotonic_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::part::PartError;

    #[test]
    fn failed_comparison_is_reported_with_its_reason() {
        let mut clocks = Clocks::start(&DatagramAddress::Udp(([127, 0, 0, 1], 0).into())).unwrap();
        let said = |clocks: &Clocks| clocks.offset("nas").unwrap_err().to_string();
        assert!(said(&clocks).contains("no clock probe was answered"));
        let error = PartError::new("its owner's policy does not let it");
        clocks.record("nas".into(), Ok(Response::Refused { part: None, error }));
        assert_eq!(said(&clocks), "its owner's policy does not let it");
        clocks.record(
            "nas".into(),
            Err(BusError::HostLost { host: "nas".into(), why: "it was cut off".into() }),
        );
        assert_eq!(said(&clocks), "it was cut off");
        clocks
            .record("nas".into(), Ok(Response::Probed(clock::BatchResult { sent: 9, ..Default::default() })));
        assert!(said(&clocks).contains("no clock probe was answered"));
    }
}
