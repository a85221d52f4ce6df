//! From which share on a resource counts as used up: one table for every workload and for the explanation of
//! a search.

use crate::outcome::Resource;

/// From which share on something counts as used up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LimitRule {
    /// At or above this share it is used up.
    pub used_up_from: f64,
    /// Above this share it cannot be: the ceiling that the share was taken of is wrong.
    pub refuted_above: f64,
}

impl LimitRule {
    /// Whether this share says that it is used up.
    pub fn is_used_up(&self, share: f64) -> bool {
        (self.used_up_from..=self.refuted_above).contains(&share)
    }

    /// Whether this share says that its ceiling is wrong.
    pub fn is_refuted(&self, share: f64) -> bool {
        share > self.refuted_above
    }
}

/// Usage against a ceiling (quota, calibration, line rate). Below 95 % the mean of a hold leaves room for
/// another load; a calibrated ceiling can be exceeded by its own error, and a shaped link by the shaper's
/// first burst.
const CEILING: LimitRule = LimitRule { used_up_from: 0.95, refuted_above: 1.08 };

/// A thread's time on a CPU, or ready and waiting for one: the rest is lost to wake-ups and short waits.
pub const THREAD: LimitRule = LimitRule { used_up_from: 0.9, refuted_above: f64::INFINITY };

/// A connection's busy time spent waiting for one thing: more than anything else.
const WAITING: LimitRule = LimitRule { used_up_from: 0.5, refuted_above: f64::INFINITY };

/// Packets or events that were lost for want of room: fewer are an accident.
pub const LOSS: LimitRule = LimitRule { used_up_from: 0.01, refuted_above: f64::INFINITY };

/// The rule of a resource.
pub const fn rule(resource: Resource) -> LimitRule {
    match resource {
        Resource::Player => THREAD,
        Resource::Window | Resource::SendBuffer => WAITING,
        Resource::Buffer => LOSS,
        Resource::Cpu | Resource::Disk | Resource::Network | Resource::Memory | Resource::None => CEILING,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_resource_has_its_threshold() {
        for (resource, share, is_used_up) in [
            (Resource::Network, 0.94, false),
            (Resource::Network, 0.95, true),
            (Resource::Network, 1.09, false),
            (Resource::Cpu, 0.96, true),
            (Resource::Player, 0.9, true),
            (Resource::Window, 0.4, false),
            (Resource::SendBuffer, 0.5, true),
            (Resource::Buffer, 0.02, true),
        ] {
            assert_eq!(rule(resource).is_used_up(share), is_used_up, "{resource} {share}");
        }
        assert!(rule(Resource::Network).is_refuted(1.09) && !THREAD.is_refuted(3.0));
    }
}
