use base::units::Span;
use proptest::prelude::*;

use super::*;
use crate::policy::{Bottleneck, Match, Ports};

fn class(name: &str, priority: u8) -> Class {
    Class {
        name: name.to_owned(),
        matches: Match { port: Some(Ports { first: 1, last: 1 }), ..Match::default() },
        priority,
        target: None,
        size: None,
        interval: None,
        clients: 1,
        overhead: Span::default(),
        weight: 1.0,
        floor: BitRate::default(),
        ceiling: None,
        congestion_control: None,
        join: false,
    }
}

fn urgent(name: &str, priority: u8, target_ms: u64, bytes: u64) -> Class {
    Class {
        target: Some(Span::from_ms(target_ms)),
        size: Some(base::units::ByteSize::from_bytes(bytes)),
        ..class(name, priority)
    }
}

fn policy(mbit_per_s: u64, classes: Vec<Class>) -> Policy {
    let capacity = Capacity::Given(BitRate::from_bit_per_s(mbit_per_s * 1_000_000));
    Policy { bottleneck: Bottleneck { interface: "eth0".into(), capacity, coordinator: None }, classes }
}

fn mbit(mbit_per_s: u64) -> BitRate {
    BitRate::from_bit_per_s(mbit_per_s * 1_000_000)
}

/// The verdict on the first class, its predicted response in ms, and its smallest fix.
fn first(policy: &Policy) -> (Verdict, Option<f64>, String) {
    let assessment = policy.assess();
    let fix = assessment.fixes[0].first().map(ToString::to_string).unwrap_or_default();
    let predicted = assessment.classes[0].predicted_response_s.map(|s| (s * 1e4).round() / 10.0);
    (assessment.classes[0].verdict, predicted, fix)
}

#[test]
fn class_that_fits_at_once_is_guaranteed() {
    let alarm = urgent("alarm", 1, 500, 250_000);
    let bulk = class("bulk", 5);
    let judged = policy(50, vec![alarm.clone(), bulk]).judge();
    assert_eq!((judged[0].verdict, judged[1].verdict), (Verdict::Guaranteed, Verdict::BestEffort));
    let need = 2e6 / (0.85 * 0.5);
    assert!((judged[0].need_bit_per_s.unwrap() - need).abs() < 1.0);
    assert!((judged[1].allocated_bit_per_s.unwrap() - (48.5e6 - need)).abs() < 1.0);
    // 0.85 of the target.
    assert_eq!(first(&policy(50, vec![alarm])), (Verdict::Guaranteed, Some(425.0), String::new()));
}

#[test]
fn message_that_is_too_large_for_the_link_is_impossible() {
    // 250 kB take 412 ms at 4.85 Mbit/s; with the margin, 490 ms are needed.
    let alarm = urgent("alarm", 1, 300, 250_000);
    let (verdict, predicted, fix) = first(&policy(5, vec![alarm.clone()]));
    assert_eq!((verdict, fix.as_str()), (Verdict::Impossible, "target >= 490 ms"));
    assert!(predicted.is_some_and(|ms| (412.0..413.0).contains(&ms)), "{predicted:?}");
    let slow_server = Class { overhead: Span::from_ms(400), ..alarm };
    let (verdict, _, fix) = first(&policy(50, vec![slow_server]));
    assert_eq!((verdict, fix.as_str()), (Verdict::Impossible, "target >= 450 ms"));
}

#[test]
fn class_that_does_not_fit_is_degraded_and_each_kind_of_change_fixes_it() {
    // Needs 23 x 4.7 Mbit/s.
    let crowd = Class { clients: 23, ..urgent("crowd", 1, 500, 250_000) };
    let assessment = policy(50, vec![crowd.clone()]).assess();
    assert_eq!(assessment.classes[0].verdict, Verdict::Degraded);
    let shown: Vec<String> = assessment.fixes[0].iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        ["target >= 1.12 s", "size <= 110 kB", "clients <= 10", "capacity >= 112 Mbit/s"].map(str::to_owned)
    );
    let floored = vec![urgent("alarm", 1, 500, 250_000), Class { floor: mbit(46), ..class("bulk", 5) }];
    let (verdict, _, fix) = first(&policy(50, floored));
    assert_eq!((verdict, fix.as_str()), (Verdict::Degraded, "cap bulk at 43 Mbit/s"));
    let capped = Class { ceiling: Some(mbit(4)), ..urgent("alarm", 1, 500, 250_000) };
    let assessment = policy(50, vec![capped]).assess();
    let shown: Vec<String> = assessment.fixes[0].iter().map(ToString::to_string).collect();
    assert!(shown.is_empty(), "4 Mbit/s meets the target without its margin: {shown:?}");
    assert_eq!(assessment.classes[0].verdict, Verdict::Statistical);
    let capped = Class { ceiling: Some(mbit(3)), clients: 2, ..urgent("alarm", 1, 500, 250_000) };
    let assessment = policy(50, vec![capped]).assess();
    assert!(assessment.fixes[0].iter().any(|fix| fix.to_string() == "ceiling >= 9.5 Mbit/s"));
}

#[test]
fn usual_load_that_fits_is_statistical() {
    // All at once: 17 x 2 Mbit in 500 ms do not fit 48.5 Mbit/s. One of each every 1.5 s: 22.7 Mbit/s.
    let robots =
        Class { clients: 17, interval: Some(Span::from_ms(1500)), ..urgent("robots", 1, 500, 250_000) };
    let (verdict, predicted, _) = first(&policy(50, vec![robots.clone()]));
    let expected = 2e6 / 48.5e6 / (1.0 - 17.0 * 2e6 / 1.5 / 48.5e6) * 1e3;
    assert_eq!(verdict, Verdict::Statistical);
    assert!(predicted.is_some_and(|ms| (ms - expected).abs() < 0.1), "{predicted:?} {expected}");
    // More urgent messages at any time take too much of the link.
    let alarms = Class { clients: 6, ..urgent("alarms", 1, 500, 250_000) };
    let judged = policy(50, vec![Class { priority: 2, ..robots }, alarms]).judge();
    assert_eq!([judged[0].verdict, judged[1].verdict], [Verdict::Degraded, Verdict::Guaranteed]);
    assert!(judged[0].allocated_bit_per_s.is_some_and(|rate| rate >= 17.0 * 64e3), "no class starves");
}

#[test]
fn unknown_size_and_unknown_capacity_are_named() {
    let learned = Class { size: None, ..urgent("learned", 1, 500, 1) };
    let known = urgent("known", 1, 500, 250_000);
    let judged = policy(50, vec![learned.clone(), known.clone()]).judge();
    assert_eq!((judged[0].verdict, &judged[0].unknown[..]), (Verdict::Unknown, &["size"][..]));
    assert_eq!(judged[1].verdict, Verdict::Guaranteed);
    let mut estimated = policy(50, vec![learned, known, class("bulk", 3)]);
    estimated.bottleneck.capacity = Capacity::Estimate;
    let assessment = estimated.assess();
    assert_eq!(assessment.classes[0].unknown, ["capacity", "size"]);
    assert_eq!(assessment.classes[1].unknown, ["capacity"]);
    assert!(assessment.classes[1].need_bit_per_s.is_some());
    assert_eq!(assessment.classes[2].verdict, Verdict::BestEffort);
    // 4.71 Mbit/s, and 64 kbit/s for each of the others.
    assert_eq!(assessment.capacity_needed, Some(BitRate::from_bit_per_s(5_000_000)));
}

fn any_class() -> impl Strategy<Value = Class> {
    (
        (1u8..4, proptest::bool::weighted(0.7), 1u64..3_000, 100u64..2_000_000),
        (proptest::option::of(1u64..5_000), 1u32..20, 0u64..100),
        (0.1f64..10.0, 0u64..4_000_000, proptest::option::of(64_000u64..40_000_000)),
    )
        .prop_map(|((priority, has_target, target_ms, bytes), load, limits)| {
            let (interval, clients, overhead) = load;
            let (weight, floor, above) = limits;
            let limits = Class {
                weight,
                floor: BitRate::from_bit_per_s(floor),
                ceiling: above.map(|above| BitRate::from_bit_per_s(floor + above)),
                ..class("c", priority)
            };
            if !has_target {
                return limits;
            }
            Class {
                target: Some(Span::from_ms(target_ms)),
                size: Some(base::units::ByteSize::from_bytes(bytes)),
                interval: interval.map(Span::from_ms),
                clients,
                overhead: Span::from_ms(overhead),
                ..limits
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]
    #[test]
    fn every_fix_guarantees_its_class_and_makes_no_other_worse(
        capacity in 20u64..200,
        mut classes in proptest::collection::vec(any_class(), 1..5),
    ) {
        for (at, class) in classes.iter_mut().enumerate() {
            class.name = format!("c{at}");
        }
        let policy = policy(capacity, classes);
        let assessment = policy.assess();
        for (at, judged) in assessment.classes.iter().enumerate() {
            prop_assert!(judged.predicted_response_s.is_none_or(|s| s > 0.0 && s.is_finite()));
            prop_assert!(judged.verdict.is_missed() || assessment.fixes[at].is_empty());
            // Verdict and prediction agree.
            let target = policy.classes[at].target;
            if let (Some(predicted), Some(target)) = (judged.predicted_response_s, target) {
                prop_assert_eq!(judged.verdict.is_missed(), predicted > target.s(), "{:?}", judged);
            }
            for fix in &assessment.fixes[at] {
                let after = fix.applied(&policy).judge();
                prop_assert_eq!(after[at].verdict, Verdict::Guaranteed, "{}", fix);
                for (before, after) in assessment.classes.iter().zip(&after) {
                    prop_assert!(after.verdict <= before.verdict, "{}", fix);
                }
            }
        }
        if let Some(needed) = assessment.capacity_needed {
            let after = Fix::Capacity { at_least: needed }.applied(&policy).judge();
            let is_fine = |judged: &Judgement| {
                matches!(judged.verdict, Verdict::Guaranteed | Verdict::BestEffort)
            };
            prop_assert!(after.iter().all(is_fine));
        }
    }
}
