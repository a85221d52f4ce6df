//! The smallest change that turns a missed target into a guaranteed one.
//!
//! Every candidate is a change of one number. Its smallest sufficient value is found by bisection on the
//! verdict itself, rounded to two or three digits, and verified: the verdict is computed again for the
//! changed policy.

use std::fmt;
use std::time::Duration;

use base::units::{BitRate, ByteSize, Span};

use super::{Judgement, Verdict};
use crate::SOCKET_RATE_MIN;
use crate::policy::{Capacity, Policy, TARGET_MAX};

/// Other classes whose floors are considered: those with the highest.
const FLOORS_MAX: usize = 4;
const BISECTIONS: u32 = 60;
/// Two digits are enough if they change the value by less than this share.
const ROUNDING_MAX: f64 = 0.03;
const CAPACITY_MAX: f64 = 1e13;

/// A change of one number of a policy. Classes are indices.
#[derive(Debug, Clone, PartialEq)]
pub enum Fix {
    Target {
        class: usize,
        at_least: Span,
    },
    Size {
        class: usize,
        at_most: ByteSize,
    },
    Clients {
        class: usize,
        at_most: u32,
    },
    Ceiling {
        class: usize,
        at_least: BitRate,
    },
    Floor {
        class: usize,
        name: String,
        at_most: BitRate,
    },
    /// Caps another class.
    Cap {
        class: usize,
        name: String,
        at_most: BitRate,
    },
    Capacity {
        at_least: BitRate,
    },
}

impl fmt::Display for Fix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use base::units::spaced;
        match self {
            Self::Target { at_least, .. } => write!(f, "target >= {}", spaced(at_least)),
            Self::Size { at_most, .. } => write!(f, "size <= {}", spaced(at_most)),
            Self::Clients { at_most, .. } => write!(f, "clients <= {at_most}"),
            Self::Ceiling { at_least, .. } => write!(f, "ceiling >= {}", spaced(at_least)),
            Self::Floor { name, at_most, .. } => write!(f, "floor of {name} <= {}", spaced(at_most)),
            Self::Cap { name, at_most, .. } => write!(f, "cap {name} at {}", spaced(at_most)),
            Self::Capacity { at_least } => write!(f, "capacity >= {}", spaced(at_least)),
        }
    }
}

impl Fix {
    /// The policy with this change.
    #[must_use]
    pub fn applied(&self, policy: &Policy) -> Policy {
        let mut changed = policy.clone();
        match self {
            Self::Target { class, at_least } => changed.classes[*class].target = Some(*at_least),
            Self::Size { class, at_most } => changed.classes[*class].size = Some(*at_most),
            Self::Clients { class, at_most } => changed.classes[*class].clients = *at_most,
            Self::Ceiling { class, at_least } => changed.classes[*class].ceiling = Some(*at_least),
            Self::Floor { class, at_most, .. } => changed.classes[*class].floor = *at_most,
            Self::Cap { class, at_most, .. } => {
                let class = &mut changed.classes[*class];
                class.ceiling = Some(*at_most);
                class.floor = class.floor.min(*at_most);
            }
            Self::Capacity { at_least } => changed.bottleneck.capacity = Capacity::Given(*at_least),
        }
        changed
    }
}

/// One number of a policy that can be changed.
struct Candidate {
    now: f64,
    /// The largest change that is considered.
    extreme: f64,
    is_whole: bool,
    make: Box<dyn Fn(f64) -> Fix>,
}

/// Verified fixes of class `at`, the smallest change first; a faster link comes last.
pub(super) fn fixes(policy: &Policy, at: usize, before: &[Judgement]) -> Vec<Fix> {
    let is_fixed = |fix: &Fix| {
        let after = fix.applied(policy).judge();
        after[at].verdict == Verdict::Guaranteed
            && before.iter().zip(&after).all(|(before, after)| after.verdict <= before.verdict)
    };
    let mut found: Vec<(f64, Fix)> = candidates(policy, at)
        .iter()
        .filter_map(|candidate| {
            let (value, fix) = smallest(candidate, &is_fixed)?;
            let change = (value.max(f64::MIN_POSITIVE) / candidate.now).ln().abs();
            // Changes that differ by rounding only keep the order of the candidates.
            Some(((change * 50.0).round(), fix))
        })
        .collect();
    found.sort_by(|(a, fix_a), (b, fix_b)| {
        let is_link = |fix: &Fix| matches!(fix, Fix::Capacity { .. });
        (is_link(fix_a), *a).partial_cmp(&(is_link(fix_b), *b)).unwrap_or(std::cmp::Ordering::Equal)
    });
    found.into_iter().map(|(_, fix)| fix).collect()
}

fn candidates(policy: &Policy, at: usize) -> Vec<Candidate> {
    let class = &policy.classes[at];
    let (Some(target), Some(size)) = (class.target, class.size) else { return Vec::new() };
    let mut all: Vec<Candidate> = Vec::new();
    let mut add = |now: f64, extreme: f64, is_whole: bool, make: Box<dyn Fn(f64) -> Fix>| {
        all.push(Candidate { now, extreme, is_whole, make });
    };
    let span = |s: f64| Span::from_duration(Duration::from_nanos((s * 1e9).round() as u64));
    add(target.s(), TARGET_MAX.s(), false, Box::new(move |s| Fix::Target { class: at, at_least: span(s) }));
    let bytes = |bytes: f64| ByteSize::from_bytes(bytes as u64);
    add(
        size.bytes() as f64,
        1.0,
        false,
        Box::new(move |value| Fix::Size { class: at, at_most: bytes(value) }),
    );
    if class.clients > 1 {
        let make = move |value: f64| Fix::Clients { class: at, at_most: value as u32 };
        add(f64::from(class.clients), 1.0, true, Box::new(make));
    }
    let rate = |bit_per_s: f64| BitRate::from_bit_per_s(bit_per_s.round() as u64);
    if let Some(ceiling) = class.ceiling {
        let make = move |value| Fix::Ceiling { class: at, at_least: rate(value) };
        add(ceiling.bit_per_s() as f64, CAPACITY_MAX, false, Box::new(make));
    }
    let others = policy.classes.iter().enumerate().filter(|(other, _)| *other != at);
    let mut floors: Vec<_> = others.filter(|(_, other)| other.floor > BitRate::default()).collect();
    floors.sort_by_key(|(_, other)| std::cmp::Reverse(other.floor));
    for (other, class) in floors.into_iter().take(FLOORS_MAX) {
        let name = class.name.clone();
        let now = class.floor.bit_per_s() as f64;
        let is_bulk = !class.is_urgent();
        let make = move |value: f64| match is_bulk && value >= SOCKET_RATE_MIN {
            true => Fix::Cap { class: other, name: name.clone(), at_most: rate(value) },
            false => Fix::Floor { class: other, name: name.clone(), at_most: rate(value) },
        };
        add(now, 0.0, false, Box::new(make));
    }
    if let Capacity::Given(capacity) = policy.bottleneck.capacity {
        let make = move |value| Fix::Capacity { at_least: rate(value) };
        add(capacity.bit_per_s() as f64, CAPACITY_MAX, false, Box::new(make));
    }
    all
}

/// The smallest value that `is_fixed` accepts, and its change, rounded away from the present value.
fn smallest(candidate: &Candidate, is_fixed: &dyn Fn(&Fix) -> bool) -> Option<(f64, Fix)> {
    let fix = |value: f64| (candidate.make)(value);
    if !is_fixed(&fix(candidate.extreme)) {
        return None;
    }
    // `near` is too small a change, `far` is enough.
    let (mut near, mut far) = (candidate.now, candidate.extreme);
    for _ in 0..BISECTIONS {
        let middle = match near.min(far) > 0.0 {
            true => (near * far).sqrt(),
            false => f64::midpoint(near, far),
        };
        match is_fixed(&fix(middle)) {
            true => far = middle,
            false => near = middle,
        }
    }
    let upward = candidate.extreme > candidate.now;
    let [two, three] = [2, 3].map(|digits| rounded(far, digits, upward));
    let near_enough = (two / far).ln().abs() < ROUNDING_MAX;
    let whole = if upward { far.ceil() } else { far.floor() };
    let choices = match (candidate.is_whole, near_enough) {
        (true, _) => [whole; 3],
        (false, true) => [two, three, far],
        (false, false) => [three, far, far],
    };
    let inside = |value: &f64| *value != candidate.now && (upward == (*value > candidate.now));
    let fix = choices.into_iter().filter(inside).map(fix).find(is_fixed)?;
    Some((if candidate.is_whole { whole } else { far }, fix))
}

/// `value` with this number of significant digits, rounded up or down.
fn rounded(value: f64, digits: i32, upward: bool) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let step = 10f64.powi(value.log10().floor() as i32 - digits + 1);
    // A value that is already round is not moved by its own rounding error.
    let steps = value / step;
    step * if upward { (steps - 1e-9).ceil() } else { (steps + 1e-9).floor() }
}

/// The smallest capacity that guarantees every target of known size.
pub(super) fn capacity_needed(policy: &Policy) -> Option<BitRate> {
    let has_target = |judged: &&Judgement| !matches!(judged.verdict, Verdict::BestEffort | Verdict::Unknown);
    let is_fixed = |fix: &Fix| {
        let judged = fix.applied(policy).judge();
        let mut targets = judged.iter().filter(has_target).peekable();
        targets.peek().is_some() && targets.all(|judged| judged.verdict == Verdict::Guaranteed)
    };
    let make = |value: f64| Fix::Capacity { at_least: BitRate::from_bit_per_s(value.round() as u64) };
    let candidate = Candidate { now: 1.0, extreme: CAPACITY_MAX, is_whole: false, make: Box::new(make) };
    match smallest(&candidate, &is_fixed)?.1 {
        Fix::Capacity { at_least } => Some(at_least),
        _ => None,
    }
}
