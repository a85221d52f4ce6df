//! The clocks of a run's agents, compared before, during and after.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ask;
use super::roster::Roster;
use crate::clock::{self, Batch, DatagramAddress, Key, Offset, Responder};
use crate::protocol::{Answer, Ask};
use crate::{BusError, FleetError};
use sys::clock::monotonic_ns;
use zenoh::Session;

/// So many agents probe at once: each waits for few others at the one thread that answers.
const AT_ONCE: usize = 4;
/// How long a batch may take beyond its own deadline.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);

/// What is known of the agents' clocks.
pub struct Clocks {
    key: Key,
    responder: Responder,
    batches: BTreeMap<String, Vec<Batch>>,
    /// Why an agent's last comparison said nothing, where that is known.
    failures: BTreeMap<String, String>,
}

/// Why nothing can be said of an agent's clock.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Unknown {
    /// The comparison itself did not come about.
    #[error("{0}")]
    Failed(String),
    /// What the probes say together.
    #[error(transparent)]
    Unsynchronised(#[from] clock::Unsynchronised),
}

impl Clocks {
    /// Begin to answer probes there.
    pub fn start(address: &DatagramAddress) -> Result<Self, FleetError> {
        let key = Key::random();
        let responder = Responder::start(address, key.clone())?;
        Ok(Self { key, responder, batches: BTreeMap::new(), failures: BTreeMap::new() })
    }

    /// Let these agents compare their clocks with this host's, a few at a time.
    pub fn probe(
        &mut self,
        session: &Session,
        roster: &Roster,
        hosts: &[String],
        goes_on: &dyn Fn() -> bool,
    ) {
        for some in hosts.chunks(AT_ONCE) {
            let ask = Ask::Probe {
                target: self.responder.address().clone(),
                key: self.key.clone(),
                batch: clock::Ask::default(),
            };
            let asks = some.iter().map(|host| (host.clone(), ask.clone())).collect();
            for (host, answer) in ask::each(session, roster, asks, ANSWER_WITHIN, goes_on) {
                self.hear(host, answer);
            }
        }
    }

    fn hear(&mut self, host: String, answer: Result<Answer, BusError>) {
        let failure = match answer {
            Ok(Answer::Probed(clock::Probed { batch, .. })) => {
                self.failures.remove(&host);
                self.batches.entry(host).or_default().extend(batch);
                return;
            }
            Ok(Answer::Refused { error, .. }) => error.message,
            Ok(_) => "its answer does not fit".to_owned(),
            Err(BusError::Lost { why, .. }) => why,
            Err(error) => error.to_string(),
        };
        self.failures.insert(host, failure);
    }

    /// How an agent's clock is to this host's.
    ///
    /// # Errors
    /// It was never compared, and why; or no probe was answered, or they contradict each other.
    pub fn offset(&self, host: &str) -> Result<Offset, Unknown> {
        match (self.batches.get(host), self.failures.get(host)) {
            (None, Some(why)) => Err(Unknown::Failed(why.clone())),
            (batches, _) => Ok(Offset::from_batches(batches.map(Vec::as_slice).unwrap_or_default())?),
        }
    }

    /// How far apart hosts may have begun that were told to begin at `at_ns`, in ns: each at a moment of its own clock, by
    /// what was known of that then. What has become known since says how wrong that was, and how surely. This host's own
    /// clock is exact.
    pub fn apart_ns(&self, told: &[(String, u64)], at_ns: u64) -> Option<u64> {
        let (mut first_ns, mut last_ns) = (at_ns, at_ns);
        for (host, agent_ns) in told {
            let offset = self.offset(host).ok()?;
            let (began_ns, bound_ns) = (offset.to_coordinator_ns(*agent_ns), offset.bound_ns(at_ns));
            first_ns = first_ns.min(began_ns.saturating_sub(bound_ns));
            last_ns = last_ns.max(began_ns.saturating_add(bound_ns));
        }
        Some(last_ns - first_ns)
    }

    /// Now.
    pub fn now_ns(&self) -> u64 {
        monotonic_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::part::PartError;

    #[test]
    fn who_was_never_compared_is_not_told_of_as_unanswered() {
        let mut clocks = Clocks::start(&DatagramAddress::Udp(([127, 0, 0, 1], 0).into())).unwrap();
        let said = |clocks: &Clocks| clocks.offset("nas").unwrap_err().to_string();
        assert!(said(&clocks).contains("no clock probe was answered"));
        let error = PartError::new("its owner's policy does not let it");
        clocks.hear("nas".into(), Ok(Answer::Refused { part: None, error }));
        assert_eq!(said(&clocks), "its owner's policy does not let it");
        clocks.hear("nas".into(), Err(BusError::Lost { host: "nas".into(), why: "it was cut off".into() }));
        assert_eq!(said(&clocks), "it was cut off");
        clocks.hear("nas".into(), Ok(Answer::Probed(clock::Probed { sent: 9, ..Default::default() })));
        assert!(said(&clocks).contains("no clock probe was answered"));
    }
}
