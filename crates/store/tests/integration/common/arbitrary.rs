//! Any run that can be: every number finite, as the store requires.

use base::doubt::{Doubt, DoubtNote};
use base::metric::Metrics;
use base::objective::Requirement;
use base::outcome::{
    Capacity, Ceiling, Certainty, Evidence, Limit, Phase, Resource, Run, SCHEMA, Saturation, State, Trial,
    VariantOutcome,
};
use base::series::Series;
use base::verdict::Verdict;
use jiff::Timestamp;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};

fn number() -> impl Strategy<Value = f64> {
    use prop::num::f64::{NEGATIVE, NORMAL, POSITIVE, SUBNORMAL, ZERO};
    prop_oneof![NORMAL | SUBNORMAL | ZERO | POSITIVE | NEGATIVE, (-1000i32..1000).prop_map(f64::from)]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z_]{0,12}", "\\PC{0,12}", Just("\0\"\\\n'".to_owned())]
}

fn time() -> impl Strategy<Value = Timestamp> {
    (-60_000_000_000i64..250_000_000_000, 0i32..1_000_000_000)
        .prop_map(|(second, nanosecond)| Timestamp::new(second, nanosecond).unwrap_or_default())
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        number().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(text(), inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

fn resource() -> impl Strategy<Value = Resource> {
    use Resource::{Cpu, Disk, Memory, Network, None, Player};
    prop::sample::select(vec![Cpu, Disk, Network, Memory, Player, None])
}

fn doubt() -> impl Strategy<Value = DoubtNote> {
    let doubt = prop_oneof![
        Just(Doubt::Interrupted),
        number().prop_map(|steal_percent| Doubt::CpuStolen { steal_percent }),
        (any::<u64>(), number()).prop_map(|(streams, content_s)| {
            // A workload's doubt.
            let doubt = json!({"kind": "regions_overlap", "streams": streams, "content_s": content_s});
            serde_json::from_value(doubt).expect("a doubt")
        }),
        (any::<u32>(), any::<u32>())
            .prop_map(|(passed, wanted)| Doubt::CapacityUnconfirmed { passed, wanted }),
        text().prop_map(|one| Doubt::NotSampled { what: vec![one] }),
    ];
    (doubt, text(), text()).prop_map(|(doubt, message, advice)| DoubtNote { doubt, message, advice })
}

fn series() -> impl Strategy<Value = Series> {
    (text(), text(), vec(number(), 0..20), vec(option::of(number()), 0..20))
        .prop_map(|(name, unit, at_s, values)| Series { name, unit, at_s, values })
}

fn metrics() -> impl Strategy<Value = Metrics> {
    btree_map(text(), option::of(number()), 0..5)
}

prop_compose! {
    fn capacity()(
        value in option::of(number()), unit in text(), low in option::of(number()),
            high in option::of(number()),
        passes: u32, failures_above: u32,
    ) -> Capacity {
        Capacity { value, unit, interval: [low, high], passes, failures_above }
    }
}

prop_compose! {
    fn limit()(
        resource in resource(),
        certainty in prop::sample::select(vec![Certainty::Confirmed, Certainty::Predicted,
            Certainty::Unknown]),
        evidence in vec((resource(), text(), any::<bool>()), 0..3),
    ) -> Limit {
        let evidence = evidence.into_iter()
            .map(|(resource, statement, inferred)| Evidence { inferred,
                ..Evidence::counted(resource, statement).with("used_percent", 0.5) }).collect();
        Limit { resource, certainty, evidence }
    }
}

prop_compose! {
    fn saturation()(
        unit in text(), cost_per_load in number(), cost_interval in option::of([number(), number()]),
        usage_at_zero in number(), ceiling in option::of((number(), text())),
            saturates_at in option::of(number()),
        saturates_interval in option::of([number(), number()]), n: u32,
    ) -> Saturation {
        let ceiling = ceiling.map(|(value, source)| Ceiling { value, source });
        Saturation {
            unit, cost_per_load, cost_interval, usage_at_zero, ceiling, saturates_at, saturates_interval, n,
        }
    }
}

prop_compose! {
    fn trial(names: Vec<String>)(
        variant in prop::sample::select(names), repetition in 1u32..4,
        phase in prop::sample::select(vec![Phase::Search, Phase::Confirm, Phase::RampDown, Phase::Single]),
        load in prop_oneof![number(), (1u8..4).prop_map(f64::from)],
        verdict in prop::sample::select(vec![Verdict::Pass, Verdict::Fail, Verdict::Invalid]),
        reasons in vec(text(), 0..2), metrics in metrics(), doubts in vec(doubt(), 0..2),
            started_at in time(),
        hold_from_s in number(), hold_to_s in number(), series in vec(series(), 0..3),
    ) -> Trial {
        Trial {
            number: 0, variant, repetition, phase, load, verdict, reasons, metrics, doubts, started_at,
                hold_from_s,
            hold_to_s, series, account: Default::default(),
        }
    }
}

prop_compose! {
    fn variant(name: String)(
        capacity in capacity(), repetitions in vec(capacity(), 0..4), limit in limit(),
        saturation in btree_map(resource(), saturation(), 0..3), predicted in option::of(number()),
        considerations in vec(text(), 0..2), doubts in vec(doubt(), 0..2),
    ) -> VariantOutcome {
        let name = name.clone();
        VariantOutcome {
            name, capacity, repetitions, limit, saturation, predicted, considerations, doubts,
            findings: Vec::new(), account: Default::default(), figures: Vec::new(),
        }
    }
}

fn requirement() -> impl Strategy<Value = Requirement> {
    (text(), option::of(number()), any::<bool>(), option::of(text())).prop_map(
        |(requirement, measured, held, unknown)| Requirement { requirement, measured, held, unknown },
    )
}

prop_compose! {
    pub fn run(id: &'static str)(
        texts in [text(), text(), text()],
            state in prop::sample::select(vec![State::Complete, State::Failed]),
        failure in option::of(text()), started_at in time(), ended_at in option::of(time()),
        environment in btree_map(text(), value(), 0..4), plan in value(),
        // Numbers need not follow each other without gaps.
        trials in vec((trial(vec!["a".into(), "b".into()]), 1u32..3), 0..6), capacity in capacity(),
        limit in limit(), saturation in btree_map(resource(), saturation(), 0..3),
        variants in (variant("a".into()), variant("b".into())), requirements in vec(requirement(), 0..2),
        doubts in vec(doubt(), 0..3),
    ) -> Run {
        let [kagiri, name, workload] = texts;
        let mut number = 0;
        let trials = trials.into_iter().map(|(trial, step)| { number +=
            step; Trial { number, ..trial } }).collect();
        Run {
            schema: SCHEMA, kagiri, run: id.into(), name, workload, state, failure, started_at, ended_at,
                environment,
            plan, trials, capacity, limit, saturation, variants: vec![variants.0, variants.1], requirements,
                doubts,
        }
    }
}
