//! What one part may do: a policy, for one coordinator and one kind of part.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use base::part::PartError;
use base::permit::{Permit, SystemChange};

use super::path::resolve;
use super::{Policy, Refusal, Request, Rule, Said, Wish};

/// What one part of one coordinator may do on this host. Dropping it gives back the rate that it was granted.
#[derive(Debug)]
pub struct Grant {
    policy: Arc<Policy>,
    coordinator: String,
    part: String,
    fleet: Vec<IpAddr>,
    /// What this part asked to send, in bit/s.
    rate: Mutex<u64>,
}

impl Grant {
    /// For a part of this kind, asked for by this coordinator, in a fleet of these addresses.
    ///
    /// # Errors
    /// The policy does not let it run at all.
    pub fn new(
        policy: Arc<Policy>,
        coordinator: &str,
        part: &str,
        fleet: Vec<IpAddr>,
    ) -> Result<Self, Refusal> {
        let grant =
            Self { policy, coordinator: coordinator.into(), part: part.into(), fleet, rate: Mutex::new(0) };
        grant.decide(Wish::Run)?;
        Ok(grant)
    }

    fn request<'a>(&'a self, wish: Wish<'a>) -> Request<'a> {
        Request { coordinator: &self.coordinator, part: &self.part, fleet: &self.fleet, wish }
    }

    fn decide(&self, wish: Wish<'_>) -> Result<(), Refusal> {
        self.policy.decide(&self.request(wish))
    }

    fn rule(&self) -> Option<&Rule> {
        self.policy.rule(&self.coordinator, &self.part)
    }

    /// Replace what this part was granted; the parts under one rule share its rate.
    fn reserve(&self, bit_per_s: u64) -> Result<(), Refusal> {
        let wish = Wish::Rate(bit_per_s);
        self.decide(wish)?;
        let Some(rule) = self.rule() else { return Ok(()) };
        // Numbers are whole whatever happened to whoever held the lock.
        let mut mine = self.rate.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = rule.sending_bit_per_s.lock().unwrap_or_else(PoisonError::into_inner);
        let others = all.saturating_sub(*mine);
        match &rule.rate_max {
            None => Ok(()),
            Some(max) if others.saturating_add(bit_per_s) > max.value.bit_per_s() => {
                Err(self.policy.refusal(&self.request(wish), rule.too_fast(max, others)))
            }
            Some(_) => {
                *all = others + bit_per_s;
                *mine = bit_per_s;
                Ok(())
            }
        }
    }

    fn below(&self, path: &Path) -> Result<(), Refusal> {
        let wish = Wish::Directory(path);
        let Some(rule) = self.rule() else { return self.decide(wish) };
        let resolved = resolve(path).map_err(|why| self.policy.refusal(&self.request(wish), why))?;
        // What the owner listed may itself be reached by a link, and is compared where it leads.
        let listed = rule.directories.value.iter().filter_map(|directory| resolve(directory).ok());
        let rule_resolved = Rule {
            directories: Said { value: listed.collect(), line: rule.directories.line },
            ..rule.clone()
        };
        rule_resolved.permits(&self.request(Wish::Directory(&resolved))).map_err(|reason| {
            let leads = match resolved == path {
                true => String::new(),
                false => format!("it leads to {}; ", resolved.display()),
            };
            self.policy.refusal(&self.request(wish), format!("{leads}{reason}"))
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
        Ok(self.decide(Wish::Peer(address))?)
    }

    /// The whole rate of this part: it replaces what the part asked for before, and adds to that of the other parts
    /// under the same rule.
    fn rate(&self, bit_per_s: u64) -> Result<(), PartError> {
        Ok(self.reserve(bit_per_s)?)
    }

    fn directory(&self, path: &Path) -> Result<(), PartError> {
        Ok(self.below(path)?)
    }

    fn system_change(&self, kind: SystemChange) -> Result<(), PartError> {
        Ok(self.decide(Wish::SystemChange(kind))?)
    }

    fn program(&self, program: &str) -> Result<(), PartError> {
        Ok(self.decide(Wish::Program(program))?)
    }
}
