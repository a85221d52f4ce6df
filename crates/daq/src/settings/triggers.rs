//! When events happen.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use base::pace::OpenLoop;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::size::as_text;

/// The most triggers a second, on average: with more, the thread that gives them would do nothing else.
pub(super) const RATE_MAX_PER_S: u32 = 1_000_000;

/// The times of triggers, written as one text.
#[derive(Debug, Clone, PartialEq)]
pub enum Triggers {
    /// As soon as the window allows: `max`.
    Max,
    /// Evenly: `60/s`.
    Fixed(f64),
    /// At exponentially distributed intervals: `poisson 60/s`.
    Poisson(f64),
    /// A number of triggers at once, and bursts per second: `bursts 10 6/s`.
    Bursts(u32, f64),
    /// One time in seconds after the start per line, ascending; repeated after the last: `file PATH`.
    File(String),
}

const EXAMPLES: &str =
    "write for example \"max\", \"60/s\", \"poisson 60/s\", \"bursts 10 6/s\" or \"file times.txt\"";

fn rate(text: &str) -> Option<f64> {
    text.trim().strip_suffix("/s")?.trim().parse().ok()
}

impl FromStr for Triggers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let read = || {
            if text == "max" {
                return Some(Self::Max);
            }
            let Some((kind, rest)) = text.split_once(' ') else { return rate(text).map(Self::Fixed) };
            match kind {
                "poisson" => rate(rest).map(Self::Poisson),
                "bursts" => {
                    let (count, bursts) = rest.trim().split_once(' ')?;
                    Some(Self::Bursts(count.parse().ok()?, rate(bursts)?))
                }
                "file" => Some(Self::File(rest.trim().to_owned())),
                _ => rate(text).map(Self::Fixed),
            }
        };
        read().ok_or_else(|| format!("'{text}' is not a trigger schedule; {EXAMPLES}"))
    }
}

impl fmt::Display for Triggers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Max => f.write_str("max"),
            Self::Fixed(rate) => write!(f, "{rate}/s"),
            Self::Poisson(rate) => write!(f, "poisson {rate}/s"),
            Self::Bursts(count, rate) => write!(f, "bursts {count} {rate}/s"),
            Self::File(path) => write!(f, "file {path}"),
        }
    }
}

as_text!(Triggers, "Triggers", "When events happen: max, 60/s, poisson 60/s, bursts 10 6/s or file PATH");

impl Triggers {
    /// Triggers a second on average; `None` where the window or a file decides.
    pub fn rate_per_s(&self) -> Option<f64> {
        match *self {
            Self::Max | Self::File(_) => None,
            Self::Fixed(rate) | Self::Poisson(rate) => Some(rate),
            Self::Bursts(count, rate) => Some(f64::from(count) * rate),
        }
    }

    /// The same kind of triggers at another rate.
    #[must_use]
    pub fn at_rate(&self, rate_per_s: f64) -> Self {
        match *self {
            Self::Poisson(_) => Self::Poisson(rate_per_s),
            Self::Bursts(count, _) => Self::Bursts(count, rate_per_s / f64::from(count.max(1))),
            Self::Max | Self::Fixed(_) | Self::File(_) => Self::Fixed(rate_per_s),
        }
    }

    /// The times that `Self::File` names, read from its text, ns after the start.
    ///
    /// # Errors
    /// The line that is at fault, and why; or that there are too many within too short a time.
    pub fn times_ns(text: &str) -> Result<Vec<u64>, String> {
        let mut times: Vec<u64> = Vec::new();
        let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
        for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let s = line.parse::<f64>().ok().filter(|s| (0.0..1e6).contains(s));
            let s = s.ok_or_else(|| format!("line {number}: '{line}' is not a time in seconds"))?;
            let ns = (s * 1e9) as u64;
            if times.last().is_some_and(|&before| ns < before) {
                return Err(format!("line {number}: {line} s is earlier than the line before it"));
            }
            times.push(ns);
        }
        let Some(&last_ns) = times.last() else { return Err("it contains no time".to_owned()) };
        if last_ns == 0 {
            let problem =
                "all times are 0, but the schedule repeats after its last time: add a later last time";
            return Err(problem.to_owned());
        }
        let per_s = times.len() as f64 / last_ns as f64 * 1e9;
        if per_s > RATE_MAX_PER_S.into() {
            return Err(format!(
                "{} triggers within {} s, repeated, are more than {RATE_MAX_PER_S} per second: write fewer \
                 triggers, or a later last time",
                times.len(),
                last_ns as f64 / 1e9
            ));
        }
        Ok(times)
    }

    /// The times one after another, from a seed; of `Self::File`, `times_ns` are those that it names. `None`
    /// of `Self::Max`: the window decides.
    pub fn due(&self, seed: u64, times_ns: Vec<u64>) -> Option<Due> {
        (*self != Self::Max).then(|| Due {
            triggers: self.clone(),
            random: fastrand::Rng::with_seed(seed),
            times_ns,
            next: 0,
            at_s: 0.0,
        })
    }
}

/// The times at which triggers are due, ascending.
#[derive(Debug, Clone)]
pub struct Due {
    triggers: Triggers,
    random: fastrand::Rng,
    times_ns: Vec<u64>,
    next: u64,
    at_s: f64,
}

impl Iterator for Due {
    /// ns after the start.
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let k = self.next;
        self.next += 1;
        let even = |k: u64, rate: f64| OpenLoop::new(rate, 0, 0, 1).moment_ns(k);
        Some(match self.triggers {
            Triggers::Max => return None,
            Triggers::Fixed(rate) => even(k, rate),
            Triggers::Bursts(count, rate) => even(k / u64::from(count.max(1)), rate),
            Triggers::Poisson(rate) => {
                // Inverse of the exponential distribution; 1 - f64() is never 0.
                self.at_s -= (1.0 - self.random.f64()).ln() / rate;
                (self.at_s * 1e9) as u64
            }
            Triggers::File(_) => {
                let lap = self.times_ns.len() as u64;
                let last_ns = *self.times_ns.last()?;
                (k / lap) * last_ns.max(1) + self.times_ns[(k % lap) as usize]
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(text: &str, n: usize) -> Vec<u64> {
        text.parse::<Triggers>().unwrap().due(1, vec![5, 10]).unwrap().take(n).collect()
    }

    #[test]
    fn due_times_match_the_schedule() {
        assert_eq!(first("4/s", 3), [0, 250_000_000, 500_000_000]);
        assert_eq!(first("bursts 2 1/s", 5), [0, 0, 1_000_000_000, 1_000_000_000, 2_000_000_000]);
        assert_eq!(first("file x", 4), [5, 10, 15, 20]);
        assert!("max".parse::<Triggers>().unwrap().due(1, Vec::new()).is_none());
        let poisson = first("poisson 1000/s", 10_000);
        assert!(poisson.is_sorted() && (9.5e9..10.5e9).contains(&(poisson[9_999] as f64)));
    }

    #[test]
    fn triggers_round_trip_as_text_and_reject_invalid() {
        for text in ["max", "60/s", "0.5/s", "poisson 60/s", "bursts 10 6/s", "file of times.txt"] {
            assert_eq!(text.parse::<Triggers>().map(|triggers| triggers.to_string()), Ok(text.to_owned()));
        }
        for wrong in ["60", "60Hz", "poisson", "bursts 6/s", "now and then"] {
            assert!(wrong.parse::<Triggers>().is_err(), "{wrong}");
        }
        assert!(Triggers::times_ns("0.1\n\n# a word\n0.3\n").is_ok_and(|times| times.len() == 2));
        assert!(Triggers::times_ns("0.3\n0.1").is_err_and(|error| error.starts_with("line 2")));
        // Begun anew at their end, they would be more than any thread can give.
        for too_many in ["0", "0\n0", "0\n0.000001\n0.000001", "0.0000000001"] {
            assert!(Triggers::times_ns(too_many).is_err(), "{too_many}");
        }
        assert_eq!(Triggers::times_ns("0\n0.000002"), Ok(vec![0, 2_000]));
    }
}
