//! Ranks urgent classes: how much a class may send so that what more urgent classes need stays free, and how
//! much all urgent classes leave to bulk. The rates of [`crate::verdict`] are those of the same allocation.
//!
//! What an idle class needs is lent, but for what it would lack until the next tick: [`Urgent::early_share`]
//! of the need of all its messages. One message of the class that lacks most can always start at once.

use crate::SOCKET_RATE_MIN;
use crate::allocate::{Claim, allocate};

/// A class that shares what is left with others may send this multiple of what it sent last, and this much
/// more, bit/s: it leaves to them what it does not use.
const GROWTH: f64 = 1.5;
const GROWTH_START: f64 = 1e6;
/// Rates are sums of floating-point numbers.
const ROUNDING: f64 = 1e-9;

/// One class at a moment, in the order of the policy. Rates are in bit/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Class {
    Urgent(Urgent),
    Bulk { weight: f64, floor: f64, is_active: bool },
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Urgent {
    /// 1 is the most urgent.
    pub priority: u8,
    pub weight: f64,
    pub floor: f64,
    /// Infinite without a limit.
    pub ceiling: f64,
    /// Messages that may be on their way at the same time.
    pub clients: f64,
    /// What the largest message needs; 0: not known.
    pub message_need: f64,
    /// What all messages need if they are sent at once.
    pub full_need: f64,
    /// What the messages on their way need.
    pub active_need: f64,
    /// Whether a message is on its way.
    pub is_active: bool,
    /// What its sockets sent over the last ticks.
    pub sent: f64,
    /// Share of `full_need` that must be free before messages begin, because the next tick is too late.
    pub early_share: f64,
    /// Whether bulk keeps something free for it while it is idle.
    pub is_expected: bool,
    /// Whether it lends what it needs because others follow within milliseconds: nothing is kept free for the
    /// next message.
    pub lends: bool,
}

impl Urgent {
    /// What it needs at the moment, with what must be free before messages begin.
    pub fn need(&self) -> f64 {
        self.active_need.max(self.early_share * self.full_need).min(self.ceiling)
    }

    /// What one more message needs beyond that.
    pub fn next_message(&self) -> f64 {
        if self.lends {
            return 0.0;
        }
        let with_next = (self.active_need + self.message_need).min(self.full_need).min(self.ceiling);
        (with_next - self.need()).max(0.0)
    }

    fn floor(&self) -> f64 {
        self.floor.max(SOCKET_RATE_MIN * self.clients).min(self.ceiling)
    }
}

/// Whether the class does not get what it needs if all classes send at once: others of its priority, or the
/// floors of others, leave less. Then it is held as a less urgent class is.
fn is_tight(usable: f64, classes: &[Class], at: usize) -> bool {
    let claims = claims_at_once(classes, |_| true);
    let wanted = claims[at].need.unwrap_or(0.0).min(claims[at].ceiling);
    allocate(usable, &claims)[at] < wanted * (1.0 - ROUNDING)
}

/// Claims if all urgent classes send all their messages at once, as in [`crate::verdict`]. `counts`: bulk
/// classes whose floor counts, by whether they send.
fn claims_at_once(classes: &[Class], counts: impl Fn(bool) -> bool) -> Vec<Claim> {
    let claim = |class: &Class| match class {
        Class::Urgent(urgent) => Claim {
            priority: urgent.priority,
            weight: urgent.weight * urgent.clients,
            need: Some(urgent.full_need.max(urgent.active_need)),
            floor: urgent.floor(),
            ceiling: urgent.ceiling,
        },
        Class::Bulk { weight, floor, is_active } => {
            let floor = if counts(*is_active) { floor.max(SOCKET_RATE_MIN) } else { 0.0 };
            bulk_claim(*weight, floor)
        }
    };
    classes.iter().map(claim).collect()
}

fn bulk_claim(weight: f64, floor: f64) -> Claim {
    Claim { priority: u8::MAX, weight, need: None, floor, ceiling: f64::INFINITY }
}

/// Classes that are held: there are more urgent ones, or those of its priority do not fit together.
/// `is_exact`: the capacity does not vary.
pub fn held(usable: f64, classes: &[Class], is_exact: bool) -> Vec<bool> {
    let is_held = |(at, class): (usize, &Class)| {
        let Class::Urgent(urgent) = class else { return false };
        let is_above = |other: &Class| matches!(other, Class::Urgent(o) if o.priority < urgent.priority);
        classes.iter().any(is_above) || (is_exact && is_tight(usable, classes, at))
    };
    classes.iter().enumerate().map(is_held).collect()
}

/// The most that each class may send, of `usable` or of an unknown capacity. `None`: no limit; bulk has none
/// here.
pub fn limits(usable: Option<f64>, classes: &[Class], held: &[bool]) -> Vec<Option<f64>> {
    let limit = |(at, class): (usize, &Class)| {
        let Class::Urgent(urgent) = class else { return None };
        let ceiling = urgent.ceiling.is_finite().then_some(urgent.ceiling);
        let limit = match usable.filter(|_| held[at]) {
            Some(usable) => Some(held_limit(usable, classes, held, at, urgent).min(urgent.ceiling)),
            None => ceiling,
        };
        limit.map(|limit| limit.max(SOCKET_RATE_MIN))
    };
    classes.iter().enumerate().map(limit).collect()
}

/// What class `at` may send: what is allocated to it, and its part of what no class needs.
fn held_limit(usable: f64, classes: &[Class], held: &[bool], at: usize, own: &Urgent) -> f64 {
    match own.is_active {
        true => active_limit(usable, classes, held, at, own),
        false => idle_limit(usable, classes, at, own),
    }
}

/// What an idle class may begin with until the next tick: others may begin at the same moment, so that all of
/// them together fit.
fn idle_limit(usable: f64, classes: &[Class], at: usize, own: &Urgent) -> f64 {
    let claims = claims_at_once(classes, |is_active| is_active);
    let rates = allocate(usable, &claims);
    let (mut left, mut weights) = (usable, 0.0);
    for ((class, rate), claim) in classes.iter().zip(&rates).zip(&claims) {
        match class {
            Class::Urgent(urgent) => {
                left -= rate;
                weights += urgent.weight;
            }
            Class::Bulk { weight, is_active, .. } => {
                left -= claim.floor.min(*rate);
                weights += if *is_active { *weight } else { 0.0 };
            }
        }
    }
    rates[at] + left.max(0.0) * own.weight / weights
}

fn active_limit(usable: f64, classes: &[Class], held: &[bool], at: usize, own: &Urgent) -> f64 {
    let next = next_message(classes, |other| other.priority < own.priority);
    let claims: Vec<Claim> = classes.iter().enumerate().map(|(of, class)| claim(of, class, next)).collect();
    let rates = allocate(usable, &claims);
    let (mut left, mut weights, mut is_shared) = (usable, own.weight, false);
    for (of, (class, rate)) in classes.iter().zip(&rates).enumerate() {
        match class {
            Class::Urgent(other) => {
                // One that is not held may take more than it needs.
                let more = if held[of] { 0.0 } else { (other.sent - rate).max(0.0) };
                left -= rate + more;
                if of != at && held[of] && other.is_active {
                    weights += other.weight;
                    is_shared = true;
                }
            }
            Class::Bulk { weight, is_active, .. } => {
                left -= claims[of].floor.min(*rate);
                if *is_active {
                    weights += weight;
                    is_shared = true;
                }
            }
        }
    }
    let limit = rates[at] + left.max(0.0) * own.weight / weights;
    match is_shared {
        true => limit.min(rates[at].max(GROWTH * own.sent + GROWTH_START)),
        false => limit,
    }
}

/// What class `of` claims at the moment.
fn claim(of: usize, class: &Class, next: Option<(usize, f64)>) -> Claim {
    match class {
        Class::Urgent(urgent) => {
            let more = next.filter(|(index, _)| *index == of).map_or(0.0, |(_, more)| more);
            Claim {
                priority: urgent.priority,
                weight: urgent.weight * urgent.clients,
                need: Some(urgent.need() + more),
                floor: if urgent.is_active { urgent.floor() } else { 0.0 },
                ceiling: urgent.ceiling,
            }
        }
        Class::Bulk { weight, floor, is_active } => {
            bulk_claim(*weight, if *is_active { *floor } else { 0.0 })
        }
    }
}

/// The class that lacks most when one more message begins, of those that count, and what it lacks.
fn next_message(classes: &[Class], counts: impl Fn(&Urgent) -> bool) -> Option<(usize, f64)> {
    let lacking = classes.iter().enumerate().filter_map(|(at, class)| match class {
        Class::Urgent(urgent) if counts(urgent) => Some((at, urgent.next_message())),
        _ => None,
    });
    lacking.max_by(|a, b| a.1.total_cmp(&b.1))
}

/// What bulk leaves to each class, in bit/s. `limits`: rates that count in place of what a held class sends,
/// because it may send them at once; empty: what it sends counts.
pub fn kept_from_bulk(classes: &[Class], held: &[bool], limits: &[Option<f64>]) -> Vec<f64> {
    let wanted = wanted(classes);
    let kept = |(at, class): (usize, &Class)| {
        let Class::Urgent(urgent) = class else { return 0.0 };
        let sent = match (held[at] && urgent.is_active, limits.get(at).copied().flatten()) {
            (true, Some(limit)) => limit,
            _ => urgent.sent,
        };
        wanted[at].max(sent)
    };
    classes.iter().enumerate().map(kept).collect()
}

/// What each urgent class needs and bulk leaves free, in bit/s.
pub fn wanted(classes: &[Class]) -> Vec<f64> {
    let next = next_message(classes, |urgent| urgent.is_expected);
    let wanted = |(at, class): (usize, &Class)| {
        let Class::Urgent(urgent) = class else { return 0.0 };
        let more = next.filter(|(index, _)| *index == at).map_or(0.0, |(_, more)| more);
        if urgent.is_expected { urgent.need() + more } else { urgent.active_need.min(urgent.ceiling) }
    };
    classes.iter().enumerate().map(wanted).collect()
}

#[cfg(test)]
mod tests;
