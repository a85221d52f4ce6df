//! What must hold: `stalls==0`, `capacity>=4`, `slack_min>=500ms`.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::metric::Metrics;
use crate::units::{BitRate, ByteSize, Span};

/// How a metric is compared with its bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    AtMost,
    AtLeast,
    Below,
    Above,
    Equal,
}

impl Relation {
    fn holds(self, value: f64, bound: f64) -> bool {
        match self {
            Self::AtMost => value <= bound,
            Self::AtLeast => value >= bound,
            Self::Below => value < bound,
            Self::Above => value > bound,
            Self::Equal => value == bound,
        }
    }
}

const OPERATOR_CHARS: [char; 3] = ['<', '>', '='];

/// Longer signs first, so that `<=` is not read as `<`.
const RELATIONS: [(&str, Relation); 6] = [
    ("<=", Relation::AtMost),
    (">=", Relation::AtLeast),
    ("==", Relation::Equal),
    ("<", Relation::Below),
    (">", Relation::Above),
    ("=", Relation::Equal),
];

/// Reads a bound in one unit; `None` for a text that is no such quantity.
type ReadBound = fn(&str) -> Option<f64>;

/// The unit suffixes of metric names, longest first, and how a bound's text becomes a number of that unit.
const SUFFIXES: [(&str, ReadBound); 8] = [
    ("_bit_per_s", |text| text.parse::<BitRate>().ok().map(|rate| rate.bit_per_s() as f64)),
    ("_percent", |text| text.trim_end_matches('%').trim().parse().ok()),
    ("_bytes", |text| text.parse::<ByteSize>().ok().map(|size| size.bytes() as f64)),
    ("_ratio", |text| match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok().map(|p| p / 100.0),
        None => text.parse().ok(),
    }),
    ("_ms", |text| text.parse::<Span>().ok().map(|span| span.s() * 1e3)),
    ("_us", |text| text.parse::<Span>().ok().map(|span| span.s() * 1e6)),
    ("_ns", |text| text.parse::<Span>().ok().map(|span| span.s() * 1e9)),
    ("_s", |text| text.parse::<Span>().ok().map(|span| span.s())),
];

#[derive(Debug, Clone, PartialEq)]
pub struct Objective {
    metric: String,
    relation: Relation,
    bound: String,
}

/// Why a text is no objective, or why it cannot be checked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the requirement '{text}' cannot be checked: {problem}; write for example 'capacity>=4'")]
pub struct ObjectiveError {
    text: String,
    problem: String,
}

/// A requirement and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Requirement {
    /// As it was written.
    pub requirement: String,
    /// What was measured, in the metric's unit; `None` if it is not known.
    pub measured: Option<f64>,
    /// Whether it held. An unknown value never satisfies a requirement.
    pub held: bool,
    /// Why it is unknown whether it held, although something was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

impl FromStr for Objective {
    type Err = ObjectiveError;
    fn from_str(text: &str) -> Result<Self, ObjectiveError> {
        let error = |problem: &str| ObjectiveError { text: text.to_owned(), problem: problem.to_owned() };
        let (metric, rest) = text.split_at(text.find(OPERATOR_CHARS).unwrap_or(text.len()));
        let relation = RELATIONS.iter().find(|(sign, _)| rest.starts_with(sign));
        let (sign, relation) = relation.ok_or_else(|| error("there is no <=, >=, <, > or =="))?;
        let (metric, bound) = (metric.trim(), rest[sign.len()..].trim());
        if metric.is_empty() || bound.is_empty() {
            return Err(error("it needs a metric on the left and a bound on the right"));
        }
        // `a> =4` would be printed as `a>=4`, which means something else.
        if bound.starts_with(OPERATOR_CHARS) {
            let wrong = rest.trim_end_matches(|c| !matches!(c, '<' | '>' | '='));
            return Err(error(&format!("'{wrong}' is not an operator")));
        }
        Ok(Self { metric: metric.to_owned(), relation: *relation, bound: bound.to_owned() })
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = RELATIONS.iter().find(|(_, r)| *r == self.relation).map_or("", |(sign, _)| sign);
        write!(f, "{}{sign}{}", self.metric, self.bound)
    }
}

/// The unit suffix of a metric's name, and the reader of bounds in that unit.
fn suffix_of(name: &str) -> Option<(&'static str, ReadBound)> {
    SUFFIXES.iter().find(|(suffix, _)| name.ends_with(suffix)).copied()
}

/// A bound with the unit that a suffix stands for.
fn example_of(suffix: &str) -> &'static str {
    match suffix {
        "_bit_per_s" => "25Mbit/s",
        "_percent" => "80%",
        "_bytes" => "64MiB",
        "_ratio" => "1%",
        _ => "500ms",
    }
}

/// The name of a metric without its unit.
fn stem(name: &str) -> &str {
    suffix_of(name).map_or(name, |(suffix, _)| &name[..name.len() - suffix.len()])
}

impl Objective {
    /// The metric that is meant: by its whole name, its name without the unit, or the end of that (`p99` for
    /// `response_p99_ms`), provided that it is the only one.
    pub fn find<'a>(&self, names: impl Iterator<Item = &'a str> + Clone) -> Result<&'a str, ObjectiveError> {
        let by = |test: &dyn Fn(&str) -> bool| names.clone().filter(|name| test(name)).collect::<Vec<_>>();
        let tail = format!("_{}", self.metric);
        let rules: [&dyn Fn(&str) -> bool; 3] =
            [&|name| name == self.metric, &|name| stem(name) == self.metric, &|name| {
                stem(name).ends_with(&tail)
            }];
        for rule in rules {
            match by(rule)[..] {
                [] => {}
                [only] => return Ok(only),
                ref several => {
                    return Err(self.error(format!("'{}' could mean {}", self.metric, several.join(" or "))));
                }
            }
        }
        let all: Vec<_> = names.collect();
        Err(self.error(format!("there is no metric '{}', only {}", self.metric, all.join(", "))))
    }

    fn error(&self, problem: String) -> ObjectiveError {
        ObjectiveError { text: self.to_string(), problem }
    }

    /// The bound as a number in the unit of the metric `name`.
    fn bound_for(&self, name: &str) -> Result<f64, ObjectiveError> {
        let bare = || self.bound.parse::<f64>().ok();
        let number = match suffix_of(name) {
            // A bare number is in the metric's own unit, which the full name spells out.
            Some((_, read)) if self.metric == name => read(&self.bound).or_else(bare),
            Some((_, read)) => read(&self.bound),
            None => bare(),
        };
        let number = number.ok_or_else(|| {
            let hint = match (suffix_of(name), bare()) {
                (Some((suffix, _)), Some(_)) => {
                    format!(": its unit is missing, such as in {}", example_of(suffix))
                }
                _ => String::new(),
            };
            self.error(format!("'{}' is not a bound in the unit of {name}{hint}", self.bound))
        })?;
        // Comparisons with NaN never hold, and with infinity always or never: neither is a requirement.
        match number.is_finite() {
            true => Ok(number),
            false => Err(self.error(format!("'{}' is not a finite number", self.bound))),
        }
    }

    /// Make sure, before anything is measured, that the objective can be checked against metrics so named.
    ///
    /// # Errors
    /// The metric does not exist or is ambiguous, or the bound has the wrong unit.
    pub fn check_names<'a>(
        &self,
        names: impl Iterator<Item = &'a str> + Clone,
    ) -> Result<(), ObjectiveError> {
        self.bound_for(self.find(names)?).map(|_| ())
    }

    /// Hold it against measured numbers. Of the metric `open`, if any, what was measured is a lower bound: a
    /// requirement on it holds only if it holds for anything larger, too.
    pub fn check(&self, metrics: &Metrics, open: Option<&str>) -> Result<Requirement, ObjectiveError> {
        let name = self.find(metrics.keys().map(String::as_str))?;
        let bound = self.bound_for(name)?;
        let measured = metrics[name];
        let holds = |value| self.relation.holds(value, bound);
        let is_open = open == Some(name);
        // From what was measured upwards, what a relation says can change at its bound alone.
        let all = |value: f64| holds(value) && (!is_open || holds(f64::INFINITY));
        let some = |value: f64| holds(value) || holds(f64::INFINITY) || (value < bound && holds(bound));
        let held = measured.is_some_and(all);
        let unknown = measured
            .filter(|value| is_open && !held && some(*value))
            .map(|value| format!("{value} is a lower bound, and how much more there is was not measured"));
        Ok(Requirement { requirement: self.to_string(), measured, held, unknown })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics() -> Metrics {
        [
            ("stalls", Some(0.0)),
            ("slack_min_s", Some(0.75)),
            ("response_p99_ms", Some(480.0)),
            ("network_bit_per_s", Some(125e6)),
            ("server_cpu_percent", None),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    #[test]
    fn objectives_find_their_metric_and_convert_their_bound() {
        for (text, held) in [
            ("stalls==0", true),
            ("stalls<0", false),
            ("slack_min>=500ms", true),
            ("slack_min_s>=0.8", false),
            ("p99<=0.5s", true),
            ("p99<=100ms", false),
            ("network>=0.12Gbit/s", true),
            ("server_cpu<=80%", false),
        ] {
            let requirement = text.parse::<Objective>().unwrap().check(&metrics(), None).unwrap();
            assert_eq!(requirement.held, held, "{text}: {requirement:?}");
        }
    }

    #[test]
    fn lower_bound_meets_only_what_any_larger_value_meets() {
        let metrics = Metrics::from([("capacity".to_owned(), Some(2.0))]);
        for (text, held, is_unknown) in [
            ("capacity>=2", true, false),
            ("capacity>1", true, false),
            ("capacity==2", false, true),
            ("capacity<=2", false, true),
            ("capacity<3", false, true),
            ("capacity==3", false, true),
            ("capacity>=3", false, true),
            ("capacity>2", false, true),
            // What is known to be more is no less.
            ("capacity==1", false, false),
            ("capacity<=1", false, false),
            ("capacity<2", false, false),
        ] {
            let objective = text.parse::<Objective>().unwrap();
            let open = objective.check(&metrics, Some("capacity")).unwrap();
            assert_eq!((open.held, open.unknown.is_some()), (held, is_unknown), "{text}: {open:?}");
            let closed = objective.check(&metrics, None).unwrap();
            assert_eq!(
                (closed.held, closed.unknown),
                (objective.relation.holds(2.0, objective.bound.parse().unwrap()), None)
            );
        }
    }

    #[test]
    fn uncheckable_requirement_is_rejected_with_reason() {
        for (text, part) in [
            ("stalls", "there is no <="),
            ("<=4", "needs a metric on the left"),
            ("stalls> =4", "'> =' is not an operator"),
            ("capacity=>4", "'=>' is not an operator"),
            ("jitter<=1ms", "there is no metric 'jitter'"),
            ("p99<=500", "not a bound in the unit of response_p99_ms"),
            ("stalls<=2ms", "not a bound in the unit of stalls"),
            ("p99<=500", "its unit is missing, such as in 500ms"),
            ("network>=100", "its unit is missing, such as in 25Mbit/s"),
            ("stalls>=nan", "'nan' is not a finite number"),
            ("stalls<=inf", "'inf' is not a finite number"),
            ("server_cpu<=-infinity%", "not a finite number"),
            ("response_p99_ms<=NaN", "not a finite number"),
        ] {
            let refused = text.parse::<Objective>().and_then(|objective| objective.check(&metrics(), None));
            let message = refused.unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
