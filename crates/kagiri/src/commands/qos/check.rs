//! `kagiri qos check`: which targets of a policy can be met.

use std::path::PathBuf;

use base::format::quantity;
use base::units::BitRate;
use clap::Args;
use qos::allocate::USABLE;
use qos::policy::{Capacity, Policy};
use qos::verdict::{Assessment, Fix, Judgement, Verdict};
use report::terminal::{Style, words_table};
use report::text::{clipped, plain};
use serde::Serialize;

use super::{COLUMNS, fitted, read_policy};
use crate::exit::{Code, Outcome};
use crate::json_document::Document;
use crate::output;

const NAME_COLUMNS: usize = 18;
/// The answer has 15 lines: three of heads, one for what is left out, and these.
const CLASSES_SHOWN: usize = 6;
const FIXES_SHOWN: usize = 3;
const NOTES_SHOWN: usize = 2;

/// Judge a policy before anything is changed.
#[derive(Args)]
#[command(
    after_help = "GUARANTEED: met even if all clients send at once. STATISTICAL: met at the usual load \
    ('interval'). DEGRADED: missed; the response time is predicted. IMPOSSIBLE: one message alone is too \
    slow. Every fix was verified on the changed policy.\n\n\
    Needs no root and changes nothing. Exits with 2 for a policy that cannot be used, with 3 if a target is \
    missed.\n\n\
    Examples:\n  \
    kagiri qos check plans/qos/robots.toml\n  \
    kagiri qos check policy.toml --json"
)]
pub struct Check {
    /// Policy; an example is plans/qos/robots.toml of kagiri's sources
    #[arg(value_name = "POLICY.toml")]
    policy: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl Check {
    pub fn run(self) -> Outcome {
        let policy = read_policy(&self.policy)?;
        let assessment = policy.assess();
        if self.json {
            output::print(&Document::new(&document(&policy, &assessment)).text()?)?;
        } else {
            output::print(&answer(&policy, &assessment, output::style()))?;
        }
        let is_missed = assessment.classes.iter().any(|judged| judged.verdict.is_missed());
        Ok(if is_missed { Code::RequirementMissed } else { Code::Measured })
    }
}

#[derive(Serialize)]
struct CheckDocument<'a> {
    bottleneck: BottleneckEntry<'a>,
    classes: Vec<ClassEntry<'a>>,
}

#[derive(Serialize)]
struct BottleneckEntry<'a> {
    interface: &'a str,
    /// `null`: estimated while the policy runs.
    capacity_bit_per_s: Option<u64>,
    /// What is allocated of it.
    usable_bit_per_s: Option<f64>,
    /// Capacity that guarantees every target of known size; `null`: none does, or there is no target.
    capacity_needed_bit_per_s: Option<u64>,
}

#[derive(Serialize)]
struct ClassEntry<'a> {
    name: &'a str,
    priority: u8,
    verdict: &'static str,
    target_ms: Option<f64>,
    predicted_response_ms: Option<f64>,
    need_bit_per_s: Option<f64>,
    allocated_bit_per_s: Option<f64>,
    /// The smallest change that guarantees the target.
    fix: Option<String>,
    /// The same, and other changes of which each alone is enough.
    fixes: Vec<String>,
    /// Settings without which there is no verdict.
    unknown: &'a [&'static str],
}

fn document<'a>(policy: &'a Policy, assessment: &'a Assessment) -> CheckDocument<'a> {
    let capacity = given(policy);
    let judged = policy.classes.iter().zip(&assessment.classes).zip(&assessment.fixes);
    let classes = judged.map(|((class, judged), fixes)| ClassEntry {
        name: &class.name,
        priority: class.priority,
        verdict: judged.verdict.name(),
        target_ms: class.target.map(|target| target.s() * 1e3),
        predicted_response_ms: judged.predicted_response_s.map(|s| s * 1e3),
        need_bit_per_s: judged.need_bit_per_s.map(f64::round),
        allocated_bit_per_s: judged.allocated_bit_per_s.map(f64::round),
        fix: fixes.first().map(Fix::to_string),
        fixes: fixes.iter().map(Fix::to_string).collect(),
        unknown: &judged.unknown,
    });
    CheckDocument {
        bottleneck: BottleneckEntry {
            interface: &policy.bottleneck.interface,
            capacity_bit_per_s: capacity.map(BitRate::bit_per_s),
            usable_bit_per_s: capacity.map(|rate| usable(rate).round()),
            capacity_needed_bit_per_s: assessment.capacity_needed.map(BitRate::bit_per_s),
        },
        classes: classes.collect(),
    }
}

fn given(policy: &Policy) -> Option<BitRate> {
    match policy.bottleneck.capacity {
        Capacity::Given(rate) => Some(rate),
        Capacity::Estimate => None,
    }
}

fn usable(capacity: BitRate) -> f64 {
    USABLE * capacity.bit_per_s() as f64
}

fn rate(bit_per_s: Option<f64>) -> String {
    quantity(bit_per_s.filter(|rate| rate.is_finite()), "bit/s")
}

/// At most 15 lines of 80 columns.
fn answer(policy: &Policy, assessment: &Assessment, style: Style) -> String {
    let style = Style { width: COLUMNS, ..style };
    let mut lines = vec![headline(policy, assessment)];
    let shown = shown(assessment);
    let rows: Vec<Vec<String>> = shown.iter().map(|&at| row(policy, &assessment.classes[at], at)).collect();
    let table = words_table(&["class", "verdict", "target", "predicted", "needs", "gets"], &rows, &style);
    lines.extend(table.lines().map(str::to_owned));
    if let Some(left) = assessment.classes.len().checked_sub(shown.len()).filter(|left| *left > 0) {
        lines.push(format!("{left} more classes: --json lists all."));
    }
    lines.extend(fixes(policy, assessment));
    lines.extend(notes(policy, assessment));
    fitted(&lines)
}

fn headline(policy: &Policy, assessment: &Assessment) -> String {
    let interface = plain(&policy.bottleneck.interface);
    let needed = assessment.capacity_needed.map(|rate| rate.bit_per_s() as f64);
    match (given(policy), needed) {
        (Some(capacity), _) => format!(
            "{interface}: {} to allocate, 97 % of {}",
            rate(Some(usable(capacity))),
            rate(Some(capacity.bit_per_s() as f64))
        ),
        (None, Some(_)) => {
            format!("{interface}: capacity unknown until it runs; {} guarantee every target", rate(needed))
        }
        (None, None) => format!("{interface}: capacity unknown until it runs"),
    }
}

/// Classes that are shown: all, or the first with those first that miss their target.
fn shown(assessment: &Assessment) -> Vec<usize> {
    let mut order: Vec<usize> = (0..assessment.classes.len()).collect();
    if order.len() > CLASSES_SHOWN {
        order.sort_by_key(|&at| !assessment.classes[at].verdict.is_missed());
        order.truncate(CLASSES_SHOWN);
    }
    order
}

fn row(policy: &Policy, judged: &Judgement, at: usize) -> Vec<String> {
    let class = &policy.classes[at];
    let verdict = match judged.verdict {
        Verdict::BestEffort => "best effort",
        Verdict::Unknown => "unknown",
        verdict => verdict.name(),
    };
    let time = |s: Option<f64>| if class.is_urgent() { quantity(s, "s") } else { String::new() };
    vec![
        clipped(&plain(&class.name), NAME_COLUMNS),
        verdict.to_owned(),
        time(class.target.map(|target| target.s())),
        time(judged.predicted_response_s),
        if class.is_urgent() { rate(judged.need_bit_per_s) } else { String::new() },
        rate(judged.allocated_bit_per_s),
    ]
}

fn fixes(policy: &Policy, assessment: &Assessment) -> Vec<String> {
    let missed = assessment.classes.iter().enumerate().filter(|(_, judged)| judged.verdict.is_missed());
    let line = |at: usize| {
        let name = clipped(&plain(&policy.classes[at].name), NAME_COLUMNS);
        let fixes = &assessment.fixes[at];
        match fixes.first() {
            None => format!("Fix {name}: no change of one number is enough"),
            // As many as fit.
            Some(_) => (1..=fixes.len())
                .map(|count| {
                    let all: Vec<String> =
                        fixes.iter().take(count).map(|fix| plain(&fix.to_string())).collect();
                    format!("Fix {name}: {}", all.join(", or "))
                })
                .take_while(|line| line.chars().count() <= COLUMNS)
                .last()
                .unwrap_or_else(|| format!("Fix {name}: see --json")),
        }
    };
    missed.take(FIXES_SHOWN).map(|(at, _)| line(at)).collect()
}

fn notes(policy: &Policy, assessment: &Assessment) -> Vec<String> {
    let names = |before: &str, is_meant: &dyn Fn(usize) -> bool| {
        let names: Vec<String> = (0..policy.classes.len())
            .filter(|&at| is_meant(at))
            .map(|at| clipped(&plain(&policy.classes[at].name), NAME_COLUMNS))
            .collect();
        let line = |count: usize| format!("{before}: {}.", base::names::first_of(&names, count));
        let fits = |line: &String| line.chars().count() <= COLUMNS;
        (1..=names.len()).map(line).take_while(fits).last()
    };
    let is_plain = |at: usize| {
        let class = &policy.classes[at];
        class.size.is_some() && class.overhead.duration().is_zero()
    };
    let mut notes = Vec::new();
    notes.extend(names("Size unknown until it sends, taken as 0", &|at| {
        assessment.classes[at].unknown.contains(&"size")
    }));
    notes.extend(names("Round trip and server time ('overhead') taken as 0", &is_plain));
    notes.truncate(NOTES_SHOWN);
    notes
}

#[cfg(test)]
mod tests {
    use base::format::UNKNOWN;

    use super::*;

    const STYLE: Style = Style { colour: false, width: 200, unicode: true };
    const EXAMPLE: &str = include_str!("../../../../../plans/qos/robots.toml");

    fn shown_for(text: &str) -> String {
        let policy = Policy::parse(text).unwrap();
        answer(&policy, &policy.assess(), STYLE)
    }

    #[test]
    fn example_meets_its_targets() {
        let text = shown_for(EXAMPLE);
        for part in ["48.5 Mbit/s to allocate", "GUARANTEED", "STATISTICAL", "best effort"] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        assert!(!text.contains("Fix") && !text.contains(UNKNOWN), "{text}");
    }

    #[test]
    fn answer_fits_15_lines_of_80_columns() {
        let long = "c".repeat(60);
        let class = |at: u32| {
            format!(
                "[[class]]\nname = \"{long}{at}\"\nmatch = {{ process = \"p{at}\" }}\npriority = 1\n\
                 target = \"300ms\"\n{}",
                if at.is_multiple_of(2) { "size = \"40MB\"\n" } else { "" }
            )
        };
        let classes: String = (0..64).map(class).collect();
        for capacity in ["20Mbit/s", "estimate"] {
            let text = shown_for(&format!(
                "[bottleneck]\ninterface = \"eth0\"\ncapacity = \"{capacity}\"\n{classes}"
            ));
            assert!(text.lines().count() <= 15, "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            assert!(!text.lines().any(|line| line.starts_with("Fix") && line.ends_with('…')), "{text}");
            assert!(text.contains("58 more classes"), "{text}");
        }
    }

    #[test]
    fn missed_target_is_named_with_its_fixes() {
        let text = shown_for(&EXAMPLE.replace("clients = 3 ", "clients = 30 "));
        assert!(text.contains("DEGRADED"), "{text}");
        assert!(text.contains("Fix alarm: "), "{text}");
        assert!(text.contains("clients <= "), "{text}");
    }

    #[test]
    fn json_has_the_keys_of_the_contract() {
        let policy = Policy::parse(&EXAMPLE.replace("size = \"250kB\"\nclients = 3", "clients = 3")).unwrap();
        let assessment = policy.assess();
        let document = serde_json::to_value(document(&policy, &assessment)).unwrap();
        let class = &document["classes"][0];
        assert_eq!((class["name"].as_str(), class["verdict"].as_str()), (Some("alarm"), Some("UNKNOWN")));
        assert_eq!(class["unknown"][0], "size");
        for key in ["verdict", "predicted_response_ms", "fix"] {
            assert!(class.get(key).is_some(), "{key}");
        }
        assert!(document["classes"][1]["predicted_response_ms"].is_number());
    }
}
