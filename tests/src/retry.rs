//! Measurements that other programs disturbed: found by what kagiri itself says of them, and made again.

use serde_json::Value;

use crate::Ended;

/// How often a measurement is made, at most, until it is undisturbed.
pub const ATTEMPTS: u32 = 3;
/// So few players never reach their own limit: when they are late, others held them up.
const FEW_STREAMS: f64 = 16.0;
/// kagiri's doubts about other load on the machine.
const OTHERS: [&str; 4] = ["noisy_neighbour", "cpu_stolen", "generator_late", "generator_near_saturation"];

/// Whether kagiri says that others used the machine, whatever that did to its trials, or that trials are
/// invalid though the load was small.
fn is_disturbed(document: &Value) -> bool {
    // A witness of the limit, from 10 % of a core on.
    let is_stolen = document["limit"].to_string().contains("the hypervisor took");
    is_stolen
        || trials(document).iter().any(|trial| {
            let few = trial["load"].as_f64().is_some_and(|load| load <= FEW_STREAMS);
            let doubts = trial["doubts"].to_string();
            let is_spoilt = few || trial["reasons"].to_string().contains("other programs");
            OTHERS.iter().any(|kind| doubts.contains(kind)) || trial["verdict"] == "invalid" && is_spoilt
        })
}

fn trials(document: &Value) -> &[Value] {
    document["trials"].as_array().expect("trials")
}

/// Measure, with `--json`, until the result is as wanted, or was undisturbed, or until the last attempt; the
/// test judges the result.
pub fn undisturbed(wanted: impl Fn(&Value) -> bool, mut measure: impl FnMut() -> Ended) -> (Ended, Value) {
    let mut attempt = 1;
    loop {
        let ended = measure();
        let document = ended.json();
        if wanted(&document) || attempt == ATTEMPTS || !is_disturbed(&document) {
            return (ended, document);
        }
        eprintln!("attempt {attempt} was disturbed by other programs:\n{}", ended.stderr);
        attempt += 1;
    }
}

/// Measure as [`undisturbed`] until every trial has this verdict.
pub fn with_verdict(verdict: &str, measure: impl FnMut() -> Ended) -> (Ended, Value) {
    undisturbed(|document| every_verdict(document, |found| found == verdict), measure)
}

/// Measure as [`undisturbed`] until every trial is valid, whatever its verdict: where it matters only that
/// something was measured.
pub fn valid(measure: impl FnMut() -> Ended) -> (Ended, Value) {
    undisturbed(|document| every_verdict(document, |found| found != "invalid"), measure)
}

fn every_verdict(document: &Value, is_wanted: impl Fn(&Value) -> bool) -> bool {
    let trials = trials(document);
    !trials.is_empty() && trials.iter().all(|trial| is_wanted(&trial["verdict"]))
}

/// Try something that kagiri's progress lines may show to have been disturbed: `attempt` returns its result,
/// or `Err(lines)` if it did not get that far. It is tried again only if these lines show an invalid or
/// failed trial.
///
/// # Panics
/// It did not come so far though no trial was disturbed, or not in any attempt.
pub fn until_undisturbed<T>(mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let mut said = String::new();
    for n in 1..=ATTEMPTS {
        match attempt() {
            Ok(result) => return result,
            Err(lines) => said = lines,
        }
        let spoilt = said.lines().any(|line| line.contains("  invalid  ") || line.contains("  FAIL  "));
        assert!(spoilt, "it did not come so far, and no trial was disturbed:\n{said}");
        eprintln!("attempt {n} was disturbed by other programs:\n{said}");
    }
    panic!("disturbed {ATTEMPTS} times:\n{said}");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document(load: f64, verdict: &str, doubt: &str, reason: &str) -> Value {
        let trial =
            json!({"load": load, "verdict": verdict, "doubts": [{"kind": doubt}], "reasons": [reason]});
        json!({"trials": [{"load": 1.0, "verdict": "pass", "doubts": [], "reasons": []}, trial]})
    }

    #[test]
    fn a_disturbance_is_what_kagiri_says_it_is() {
        for (load, verdict, doubt, reason, disturbed) in [
            (2.0, "pass", "noisy_neighbour", "", true),
            (2.0, "pass", "single_repetition", "", false),
            (2.0, "fail", "noisy_neighbour", "the picture stopped", true),
            (2.0, "fail", "single_repetition", "the picture stopped", false),
            (2.0, "invalid", "single_repetition", "a player was late", true),
            (500.0, "invalid", "generator_near_saturation", "a player thread used 94 %", true),
            (500.0, "invalid", "single_repetition", "a player thread used 94 %", false),
            (500.0, "invalid", "noisy_neighbour", "the host was full, 50 % of it other programs", true),
            (500.0, "fail", "noisy_neighbour", "the picture stopped", true),
        ] {
            let document = document(load, verdict, doubt, reason);
            assert_eq!(is_disturbed(&document), disturbed, "{document}");
        }
    }

    #[test]
    fn only_what_was_disturbed_is_tried_again() {
        let mut tries = 0;
        let mut third = || {
            tries += 1;
            if tries == 3 { Ok(tries) } else { Err("  1 stream   invalid  search".to_owned()) }
        };
        assert_eq!(until_undisturbed(&mut third), 3);
        let sound = || until_undisturbed(|| Err::<(), _>("  1 stream   pass     search".to_owned()));
        assert!(std::panic::catch_unwind(sound).is_err());
        let for_ever = || until_undisturbed(|| Err::<(), _>("  1 stream   FAIL     search".to_owned()));
        assert!(std::panic::catch_unwind(for_ever).is_err());
    }
}
