//! Policies of quality of service; the verdicts on an accepted one are finite, and every fix does fix.
#![no_main]

use libfuzzer_sys::fuzz_target;
use qos::policy::{Overlap, Policy};
use qos::verdict::Verdict;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let policy = match Policy::parse(&text) {
        Ok(policy) => policy,
        Err(error) => {
            assert!(!error.problem.is_empty());
            assert!(error.line.is_none_or(|line| (1..=text.lines().count() + 1).contains(&line)), "{error}");
            return;
        }
    };
    for (at, class) in policy.classes.iter().enumerate() {
        assert!(!class.matches.is_empty());
        for other in &policy.classes[..at] {
            assert_ne!(class.name, other.name);
            assert_ne!(class.matches.overlap(&other.matches), Overlap::Overlapping);
        }
    }
    // Each class with all its fixes takes hundreds of verdicts.
    if policy.classes.len() > 6 {
        return;
    }
    let assessment = policy.assess();
    for (at, judged) in assessment.classes.iter().enumerate() {
        assert!(judged.predicted_response_s.is_none_or(f64::is_finite), "{judged:?}");
        assert!(judged.allocated_bit_per_s.is_none_or(f64::is_finite), "{judged:?}");
        for fix in &assessment.fixes[at] {
            let after = fix.applied(&policy).judge();
            assert_eq!(after[at].verdict, Verdict::Guaranteed, "{fix}");
        }
    }
});
