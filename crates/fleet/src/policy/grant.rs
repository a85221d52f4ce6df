//! What one part may do: a policy, applied to one coordinator and one kind of part.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use base::part::PartError;
use base::permit::{Permit, SystemChange};

use super::path::resolve;
use super::{Action, ActionRequest, Located, Policy, Refusal, Rule};

/// The permissions of one part. Dropping it returns its share of the rate limit.
#[derive(Debug)]
pub struct Grant {
    policy: Arc<Policy>,
    coordinator: String,
    part: String,
    fleet: Vec<IpAddr>,
    /// Requested rate in bit/s.
    rate: Mutex<u64>,
}

impl Grant {
    /// Grants a kind of part to a coordinator in a fleet with these addresses.
    pub fn new(
        policy: Arc<Policy>,
        coordinator: &str,
        part: &str,
        fleet: Vec<IpAddr>,
    ) -> Result<Self, Refusal> {
        let grant =
            Self { policy, coordinator: coordinator.into(), part: part.into(), fleet, rate: Mutex::new(0) };
        grant.decide(Action::Run)?;
        Ok(grant)
    }

    fn request<'a>(&'a self, action: Action<'a>) -> ActionRequest<'a> {
        ActionRequest { coordinator: &self.coordinator, part: &self.part, fleet: &self.fleet, action }
    }

    fn decide(&self, action: Action<'_>) -> Result<(), Refusal> {
        self.policy.decide(&self.request(action))
    }

    fn rule(&self) -> Option<&Rule> {
        self.policy.rule(&self.coordinator, &self.part)
    }

    /// Replaces this part's share of the rate limit; the parts under one rule share it.
    fn reserve(&self, bit_per_s: u64) -> Result<(), Refusal> {
        let action = Action::Rate(bit_per_s);
        self.decide(action)?;
        let Some(rule) = self.rule() else { return Ok(()) };
        // A panic elsewhere cannot damage the number.
        let mut mine = self.rate.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = rule.sending_bit_per_s.lock().unwrap_or_else(PoisonError::into_inner);
        let others = all.saturating_sub(*mine);
        match &rule.rate_max {
            None => Ok(()),
            Some(max) if others.saturating_add(bit_per_s) > max.value.bit_per_s() => {
                Err(self.policy.refusal(&self.request(action), rule.too_fast(max, others)))
            }
            Some(_) => {
                *all = others + bit_per_s;
                *mine = bit_per_s;
                Ok(())
            }
        }
    }

    fn below(&self, path: &Path) -> Result<(), Refusal> {
        let action = Action::Directory(path);
        let Some(rule) = self.rule() else { return self.decide(action) };
        let resolved = resolve(path).map_err(|why| self.policy.refusal(&self.request(action), why))?;
        // Listed directories may be symbolic links: compare their targets.
        let listed = rule.directories.value.iter().filter_map(|directory| resolve(directory).ok());
        let rule_resolved = Rule {
            directories: Located { value: listed.collect(), line: rule.directories.line },
            ..rule.clone()
        };
        rule_resolved.permits(&self.request(Action::Directory(&resolved))).map_err(|reason| {
            let leads = match resolved == path {
                true => String::new(),
                false => format!("it leads to {}; ", resolved.display()),
            };
            self.policy.refusal(&self.request(action), format!("{leads}{reason}"))
        })
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let mine = *self.rate.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(rule) = self.rule() {
            let mut all = rule.sending_bit_per_s.lock().unwrap_or_else(PoisonError::into_inner);
            *all = all.saturating_sub(mine);
        }
    }
}

impl Permit for Grant {
    fn peer(&self, address: SocketAddr) -> Result<(), PartError> {
        Ok(self.decide(Action::Peer(address))?)
    }

    /// Requests the whole rate of this part: replaces its earlier request and adds to the other parts under
    /// the same rule.
    fn rate(&self, bit_per_s: u64) -> Result<(), PartError> {
        Ok(self.reserve(bit_per_s)?)
    }

    fn directory(&self, path: &Path) -> Result<(), PartError> {
        Ok(self.below(path)?)
    }

    fn system_change(&self, kind: SystemChange) -> Result<(), PartError> {
        Ok(self.decide(Action::SystemChange(kind))?)
    }

    fn program(&self, program: &str) -> Result<(), PartError> {
        Ok(self.decide(Action::Program(program))?)
    }
}
