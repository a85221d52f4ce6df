//! The example policy with random changes: accepted or refused with a reason, and judged either way without
//! contradictions.

use proptest::prelude::*;
use qos::policy::{Overlap, Policy};
use qos::verdict::Verdict;

const EXAMPLE: &str = include_str!("../../../plans/qos/robots.toml");
const VALUES: [&str; 16] = [
    "\"0s\"",
    "\"1ns\"",
    "\"24h\"",
    "\"64kbit/s\"",
    "\"10Tbit/s\"",
    "\"0bit/s\"",
    "\"1B\"",
    "\"1TB\"",
    "\"estimate\"",
    "0",
    "1",
    "100",
    "1000000",
    "-1",
    "1e-6",
    "{ port = \"1-65535\" }",
];

#[derive(Debug, Clone)]
enum Change {
    Delete(usize),
    Repeat(usize),
    Value(usize, usize),
    Cut(usize, usize),
}

fn change() -> impl Strategy<Value = Change> {
    let line = 0..EXAMPLE.lines().count();
    prop_oneof![
        line.clone().prop_map(Change::Delete),
        line.clone().prop_map(Change::Repeat),
        (line.clone(), 0..VALUES.len()).prop_map(|(line, value)| Change::Value(line, value)),
        (line, 0usize..40).prop_map(|(line, at)| Change::Cut(line, at)),
    ]
}

fn changed(changes: &[Change]) -> String {
    let mut lines: Vec<String> = EXAMPLE.lines().map(str::to_owned).collect();
    for change in changes {
        match *change {
            Change::Delete(line) => lines[line].clear(),
            Change::Repeat(line) => lines[line] = format!("{0}\n{0}", lines[line]),
            Change::Value(line, value) => {
                if let Some((key, _)) = lines[line].split_once('=') {
                    lines[line] = format!("{key}= {}", VALUES[value]);
                }
            }
            Change::Cut(line, at) => lines[line] = lines[line].chars().take(at).collect(),
        }
    }
    lines.join("\n")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn changed_example_is_judged_or_refused(changes in proptest::collection::vec(change(), 0..5)) {
        let text = changed(&changes);
        let policy = match Policy::parse(&text) {
            Ok(policy) => policy,
            Err(error) => {
                prop_assert!(!error.problem.is_empty() && !error.problem.contains('\n'), "{}", error);
                let lines = 1..=text.lines().count() + 1;
                prop_assert!(error.line.is_none_or(|line| lines.contains(&line)), "{}", error);
                return Ok(());
            }
        };
        for (at, class) in policy.classes.iter().enumerate() {
            for other in &policy.classes[..at] {
                prop_assert_ne!(&class.name, &other.name);
                prop_assert_ne!(class.matches.overlap(&other.matches), Overlap::Overlapping);
            }
        }
        let assessment = policy.assess();
        for (at, judged) in assessment.classes.iter().enumerate() {
            prop_assert!(judged.predicted_response_s.is_none_or(|s| s.is_finite() && s >= 0.0));
            prop_assert!(judged.allocated_bit_per_s.is_none_or(|rate| rate.is_finite() && rate > 0.0));
            for fix in &assessment.fixes[at] {
                prop_assert_eq!(fix.applied(&policy).judge()[at].verdict, Verdict::Guaranteed, "{}", fix);
            }
        }
    }
}
