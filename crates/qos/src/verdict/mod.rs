//! Which targets of a policy can be met, before anything is enforced.

mod fix;

use base::units::BitRate;

pub use fix::Fix;

use crate::SOCKET_RATE_MIN;
use crate::allocate::{Claim, USABLE, allocate};
use crate::need::Demand;
use crate::policy::{Capacity, Class, Policy};

/// From good to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The target is met even if all messages of all classes are sent at once.
    Guaranteed,
    /// The target is met on average at the classes' usual load, but not if all send at once.
    Statistical,
    /// The target is not met under load.
    Degraded,
    /// A message on its own, on an otherwise idle link, does not meet the target.
    Impossible,
    /// No target: the class gets what others leave.
    BestEffort,
    /// Something that the verdict needs is learned only while the class sends.
    Unknown,
}

impl Verdict {
    /// As in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Guaranteed => "GUARANTEED",
            Self::Statistical => "STATISTICAL",
            Self::Degraded => "DEGRADED",
            Self::Impossible => "IMPOSSIBLE",
            Self::BestEffort => "BEST_EFFORT",
            Self::Unknown => "UNKNOWN",
        }
    }

    /// Whether messages miss their target.
    pub fn is_missed(self) -> bool {
        matches!(self, Self::Degraded | Self::Impossible)
    }
}

/// The verdict on one class. Rates are in bit/s.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    pub verdict: Verdict,
    /// Response time that is predicted, in seconds: with all messages sent at once, or for `Statistical` the
    /// average at the usual load.
    pub predicted_response_s: Option<f64>,
    /// Rate that meets the target; `None`: no rate does, or it is unknown.
    pub need_bit_per_s: Option<f64>,
    /// Rate if all classes send at once; `None`: the capacity is unknown.
    pub allocated_bit_per_s: Option<f64>,
    /// Settings without which there is no verdict.
    pub unknown: Vec<&'static str>,
}

/// Judgement of a whole policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Assessment {
    /// In the order of the policy's classes.
    pub classes: Vec<Judgement>,
    /// Changes of which each alone makes the class `Guaranteed` and no other class worse, the smallest first.
    /// Empty for classes that do not miss their target.
    pub fixes: Vec<Vec<Fix>>,
    /// Capacity that guarantees every target of known size; `None`: no capacity does, or there is no target.
    pub capacity_needed: Option<BitRate>,
}

impl Policy {
    /// The policy's verdicts with the changes that would fix them.
    pub fn assess(&self) -> Assessment {
        let classes = self.judge();
        let fixes = classes.iter().enumerate().map(|(at, judgement)| match judgement.verdict.is_missed() {
            true => fix::fixes(self, at, &classes),
            false => Vec::new(),
        });
        Assessment { fixes: fixes.collect(), capacity_needed: fix::capacity_needed(self), classes }
    }

    /// The verdict on every class, in the order of the policy.
    pub fn judge(&self) -> Vec<Judgement> {
        let Capacity::Given(capacity) = self.bottleneck.capacity else {
            return self.classes.iter().map(without_capacity).collect();
        };
        let usable = USABLE * capacity.bit_per_s() as f64;
        let claims: Vec<Claim> = self.classes.iter().map(claim).collect();
        let rates = allocate(usable, &claims);
        let judged = self.classes.iter().zip(rates);
        judged.map(|(class, rate)| judge_class(self, class, usable, rate)).collect()
    }
}

/// The demand of an urgent class whose size is known.
pub fn demand(class: &Class) -> Option<Demand> {
    Some(Demand {
        message_bytes: class.size?.bytes() as f64,
        target_s: class.target?.s(),
        overhead_s: class.overhead.s(),
        concurrency: f64::from(class.clients),
    })
}

/// What a class claims of the capacity. Every class has a floor of [`SOCKET_RATE_MIN`] for each client.
pub fn claim(class: &Class) -> Claim {
    let clients = f64::from(class.clients);
    let ceiling = class.ceiling.map_or(f64::INFINITY, |rate| rate.bit_per_s() as f64);
    // A class of unknown size takes its floor only; a class that no rate helps takes what it can get.
    let need = class.target.map(|_| match demand(class) {
        Some(demand) => demand.need_bit_per_s().unwrap_or(f64::INFINITY),
        None => 0.0,
    });
    Claim {
        priority: class.priority,
        weight: class.weight * clients,
        need,
        floor: (class.floor.bit_per_s() as f64).max(SOCKET_RATE_MIN * clients).min(ceiling),
        ceiling,
    }
}

fn without_capacity(class: &Class) -> Judgement {
    let mut unknown = vec!["capacity"];
    if class.is_urgent() && class.size.is_none() {
        unknown.push("size");
    }
    let verdict = if class.is_urgent() { Verdict::Unknown } else { Verdict::BestEffort };
    let need_bit_per_s = demand(class).and_then(|demand| demand.need_bit_per_s());
    Judgement { verdict, predicted_response_s: None, need_bit_per_s, allocated_bit_per_s: None, unknown }
}

fn judge_class(policy: &Policy, class: &Class, usable: f64, rate: f64) -> Judgement {
    let judgement = |verdict, predicted_response_s: Option<f64>, need_bit_per_s| Judgement {
        verdict,
        predicted_response_s: predicted_response_s.filter(|s| s.is_finite()),
        need_bit_per_s,
        allocated_bit_per_s: Some(rate),
        unknown: Vec::new(),
    };
    if !class.is_urgent() {
        return judgement(Verdict::BestEffort, None, None);
    }
    let Some(demand) = demand(class) else {
        return Judgement { unknown: vec!["size"], ..judgement(Verdict::Unknown, None, None) };
    };
    let ceiling = class.ceiling.map_or(f64::INFINITY, |rate| rate.bit_per_s() as f64);
    let alone = Demand { concurrency: 1.0, ..demand }.response_s(usable.min(ceiling));
    let at_once = demand.response_s(rate);
    let need = demand.need_bit_per_s();
    let Some(need) = need.filter(|_| alone <= demand.target_s) else {
        return judgement(Verdict::Impossible, Some(at_once), need);
    };
    // Rates are sums of floating-point numbers.
    if rate >= need * (1.0 - 1e-9) {
        return judgement(Verdict::Guaranteed, Some(at_once), Some(need));
    }
    // It fits, but without the margin for variation.
    if at_once <= demand.target_s {
        return judgement(Verdict::Statistical, Some(at_once), Some(need));
    }
    let usual = usual_response_s(policy, class, &demand, usable).map(|usual| usual.min(at_once));
    match usual.filter(|usual| *usual <= demand.target_s) {
        Some(usual) => judgement(Verdict::Statistical, Some(usual), Some(need)),
        None => judgement(Verdict::Degraded, Some(at_once), Some(need)),
    }
}

/// Average response time at the classes' usual load, in seconds. `None`: messages of this class may come at
/// any time, or the load is more than the link carries.
///
/// A message shares the link with its own priority and waits for more urgent ones: processor sharing behind
/// preemptive priorities, T = x / ((1 - a) (1 - a - b)) with the loads `a` of more urgent classes and `b` of
/// this priority (Kleinrock, Queueing Systems, volume 2, 3.5 and 4.4).
fn usual_response_s(policy: &Policy, class: &Class, demand: &Demand, usable: f64) -> Option<f64> {
    class.interval?;
    // Floors of other classes are never free.
    let others = policy.classes.iter().filter(|other| other.name != class.name);
    let reserved: f64 = others.filter(|other| !other.is_urgent()).map(|other| claim(other).floor).sum();
    let ceiling = claim(class).ceiling;
    let link = usable - reserved;
    let load = |is_counted: &dyn Fn(&Class) -> bool| -> f64 {
        policy
            .classes
            .iter()
            .filter(|other| is_counted(other))
            .map(|other| load_bit_per_s(other) / link)
            .sum()
    };
    let above = load(&|other| other.priority < class.priority);
    let until = load(&|other| other.priority <= class.priority);
    if link <= 0.0 || until >= 1.0 || load_bit_per_s(class) >= ceiling {
        return None;
    }
    let alone_s = 8.0 * demand.message_bytes / link.min(ceiling);
    let response_s = demand.overhead_s + alone_s / ((1.0 - above) * (1.0 - until));
    (response_s > 0.0).then_some(response_s)
}

/// Average rate of an urgent class; of one whose messages come at any time, its claim.
fn load_bit_per_s(class: &Class) -> f64 {
    let Some(demand) = demand(class) else { return 0.0 };
    match class.interval {
        Some(interval) => demand.concurrency * 8.0 * demand.message_bytes / interval.s(),
        None => demand.need_bit_per_s().unwrap_or(f64::INFINITY),
    }
}

#[cfg(test)]
mod tests;
