//! Runs made of imagined trials: what is concluded from them.

use base::outcome::Evidence;
use serde_json::{Value, json};
use stream::Stream;
use transfer::Transfer;
use workload::AnyWorkload;

use super::*;
use crate::engine::configure;

mod cpu;

/// One repetition of a search: loads with the phase and the verdict of their trials.
type Tried = (f64, Phase, Verdict);

fn trial(repetition: u32, (load, phase, verdict): Tried) -> Trial {
    Trial {
        number: 1,
        variant: "default".into(),
        repetition,
        phase,
        load,
        verdict,
        reasons: Vec::new(),
        metrics: Metrics::from([("server_cpu_percent".to_owned(), Some(10.0 * load))]),
        doubts: Vec::new(),
        started_at: jiff::Timestamp::UNIX_EPOCH,
        hold_from_s: 4.0,
        hold_to_s: 14.0,
        series: Vec::new(),
        account: Default::default(),
    }
}

fn plan(repeats: u32, settings: Value, require: &[&str]) -> Plan {
    let plan = Plan::of_one("stream", "test", "default", Stream.resolve(&settings).unwrap());
    Plan { repeats, require: require.iter().map(ToString::to_string).collect(), ..plan }
}

fn concluded(plan: &Plan, trials: Vec<Trial>, ceilings: Value) -> Run {
    ended(State::Complete, plan, trials, ceilings)
}

/// The same of a run that ended in another way.
fn ended(state: State, plan: &Plan, trials: Vec<Trial>, ceilings: Value) -> Run {
    concluded_of(&Stream, state, plan, trials, ceilings)
}

fn concluded_of(
    workload: &dyn AnyWorkload,
    state: State,
    plan: &Plan,
    trials: Vec<Trial>,
    ceilings: Value,
) -> Run {
    let mut run = Run {
        schema: base::outcome::SCHEMA,
        kagiri: "0".into(),
        run: "test".into(),
        name: "test".into(),
        workload: "stream".into(),
        state,
        failure: None,
        started_at: jiff::Timestamp::UNIX_EPOCH,
        ended_at: None,
        environment: BTreeMap::from([("ceilings".to_owned(), json!({ "default": ceilings }))]),
        plan: Value::Null,
        trials,
        capacity: unknown_capacity("streams"),
        limit: unknown_limit(),
        saturation: BTreeMap::new(),
        variants: Vec::new(),
        requirements: Vec::new(),
        doubts: Vec::new(),
    };
    conclude(&mut run, plan, &configure(plan, workload).unwrap()).unwrap();
    run
}

fn searched(tried: &[Tried]) -> Vec<Trial> {
    tried.iter().map(|tried| trial(1, *tried)).collect()
}

use Phase::{Confirm, Search};
use Verdict::{Fail, Pass};

#[test]
fn one_report_holds_one_capacity() {
    // 4 passed more often than it failed, but its confirmation failed in the end: the search says 3.
    let tried = [(1.0, Search, Pass), (2.0, Search, Pass), (3.0, Search, Pass), (4.0, Search, Pass)];
    let then = [(5.0, Search, Fail), (4.0, Confirm, Pass), (4.0, Confirm, Fail), (3.0, Confirm, Pass)];
    let trials = searched(&[&tried[..], &then].concat());
    let run = concluded(&plan(1, json!({ "max": 10 }), &[]), trials, json!({}));
    let variant = &run.variants[0];
    assert_eq!((variant.capacity.value, variant.capacity.passes), (Some(3.0), 2));
    assert_eq!(variant.capacity.failures_above, 1);
    let text = variant.considerations.join("\n");
    assert!(text.contains("3 streams passed (2 trials), "), "{text}");
    assert!(text.contains("4 streams failed (1 trial); 8 trials at 5 loads in all."), "{text}");
    assert!(text.contains("measured: 3 streams"), "{text}");
}

#[test]
fn median_capacity_counts_passes_at_its_own_load() {
    let of = |repetition, capacity: f64| {
        [(capacity, Search, Pass), (capacity + 1.0, Search, Fail), (capacity, Confirm, Pass)]
            .map(|tried| trial(repetition, tried))
    };
    let trials = [of(1, 3.0), of(2, 5.0), of(3, 5.0)].concat();
    let run = concluded(&plan(3, json!({ "max": 10 }), &[]), trials, json!({}));
    let capacity = &run.variants[0].capacity;
    assert_eq!((capacity.value, capacity.passes, capacity.failures_above), (Some(5.0), 4, 2));
}

#[test]
fn exceeded_ceiling_is_reported_and_left_out() {
    let tried = [(1.0, Search, Pass), (2.0, Search, Pass), (3.0, Search, Pass), (4.0, Search, Fail)];
    let mut trials = searched(&tried);
    for trial in &mut trials {
        trial.metrics.insert("disk_bit_per_s".into(), Some(25e6 * trial.load));
    }
    let ceilings = json!({
        "disk": { "value": 60e6, "source": "calibrated" },
        "cpu": { "value": 29.0, "source": "given" },
    });
    let run = concluded(&plan(1, json!({ "max": 10 }), &[]), trials, ceilings);
    let doubts = &run.variants[0].doubts;
    let about_ceilings: Vec<&str> = doubts
        .iter()
        .map(|note| note.message.as_str())
        .filter(|message| message.contains("ceiling"))
        .collect();
    let expected = "disk: 75 Mbit/s were used at a load that passed, more than its ceiling of 60 Mbit/s \
                    (calibrated); the ceiling was left out";
    assert_eq!(about_ceilings, [expected]);
    assert_eq!(run.variants[0].saturation[&Resource::Disk].ceiling, None);
    assert!(run.variants[0].saturation[&Resource::Cpu].ceiling.is_some(), "3 % more is the sampling's");
}

#[test]
fn only_own_trials_confirm_a_repetition() {
    // The first repetition finds 3 and confirms it three times, the second finds 3 and is interrupted.
    let first = [(3.0, Search, Pass), (4.0, Search, Fail)];
    let sure = [(3.0, Confirm, Pass); 3];
    let mut trials = searched(&[&first[..], &sure].concat());
    trials.extend(first.map(|tried| trial(2, tried)));
    let run = concluded(&plan(2, json!({ "max": 10, "confirmations": 3 }), &[]), trials.clone(), json!({}));
    let unconfirmed = Doubt::CapacityUnconfirmed { passed: 0, wanted: 3 };
    let is_said = |run: &Run| run.variants[0].doubts.iter().any(|note| note.doubt == unconfirmed);
    assert!(is_said(&run), "{:?}", run.variants[0].doubts);
    trials.extend(sure.map(|tried| trial(2, tried)));
    let run = concluded(&plan(2, json!({ "max": 10, "confirmations": 3 }), &[]), trials, json!({}));
    assert!(!is_said(&run), "{:?}", run.variants[0].doubts);
}

#[test]
fn requirement_is_checked_against_the_worst_trial() {
    let tried = [(3.0, Search, Pass), (4.0, Search, Fail), (3.0, Confirm, Pass), (3.0, Confirm, Pass)];
    let mut trials = searched(&[&tried[..], &[(3.0, Confirm, Pass)]].concat());
    let values = [9.0, 9.0, 0.1, 0.2, 0.9];
    for (trial, value) in trials.iter_mut().zip(values) {
        for name in ["startup_max_s", "slack_min_s", "throughput_ratio_min"] {
            trial.metrics.insert(name.into(), Some(value));
        }
        // Sampled, and no metric of the workload's own: it must not make `memory` ambiguous.
        trial.metrics.insert("socket_memory_bytes".into(), Some(1e6));
        trial.metrics.insert("server_memory_bytes".into(), Some(2e6));
    }
    let require =
        ["startup_max<=500ms", "slack_min>=150ms", "throughput_ratio_min<=0.2", "memory<=2MB", "capacity>=3"];
    let run = concluded(&plan(1, json!({ "max": 10 }), &require), trials, json!({}));
    let found: Vec<_> = run.requirements.iter().map(|one| (one.measured, one.held)).collect();
    let expected = [(0.9, false), (0.1, false), (0.2, true), (2e6, true), (3.0, true)];
    assert_eq!(found, expected.map(|(measured, held)| (Some(measured), held)));
}

#[test]
fn lower_bound_meets_no_requirement_on_an_upper_bound() {
    let tried = [(1.0, Search, Pass), (2.0, Search, Pass), (2.0, Confirm, Pass)];
    let require = ["capacity==2", "capacity<=2", "capacity>=2"];
    let held = |tried: &[Tried], max: u32| {
        let plan = plan(1, json!({ "max": max, "confirmations": 1 }), &require);
        let run = concluded(&plan, searched(tried), json!({}));
        run.requirements.iter().map(|one| (one.held, one.unknown.is_some())).collect::<Vec<_>>()
    };
    assert_eq!(held(&tried, 2), [(false, true), (false, true), (true, false)], "no larger load was offered");
    let failed = [&tried[..], &[(3.0, Search, Fail)]].concat();
    assert_eq!(held(&failed, 8), [(true, false); 3]);
    let spoiled = [&tried[..], &[(3.0, Search, Verdict::Invalid); 2]].concat();
    assert_eq!(held(&spoiled, 8), [(false, true), (false, true), (true, false)], "3 could not be judged");
}

#[test]
fn trial_that_lost_a_host_gives_no_limit() {
    let mut trials =
        searched(&[(1.0, Search, Pass), (2.0, Search, Verdict::Invalid), (2.0, Search, Verdict::Invalid)]);
    for trial in &mut trials[1..] {
        trial.metrics.values_mut().for_each(|value| *value = None);
        trial.reasons = vec!["host pc-1 was lost".into()];
    }
    assert!(nothing_measured(&trials).is_none(), "one was whole");
    let error = nothing_measured(&trials[1..]).unwrap().to_string();
    assert!(error.contains(": host pc-1 was lost; fix this"), "said once: {error}");
    for (made, value) in [(&trials[..], Some(1.0)), (&trials[1..], None)] {
        let run = concluded(&plan(1, json!({ "max": 10 }), &[]), made.to_vec(), json!({}));
        let variant = &run.variants[0];
        assert_eq!((variant.limit.resource, variant.capacity.value), (Resource::None, value));
    }
}

fn kinds(run: &Run) -> Vec<String> {
    let kind = |note: &DoubtNote| serde_json::to_value(note).unwrap()["kind"].as_str().unwrap().to_owned();
    run.variants[0].doubts.iter().map(kind).collect()
}

#[test]
fn exhausted_players_leave_capacity_open_and_unconfirmed() {
    use Verdict::Invalid;
    let tried =
        [(50.0, Search, Pass), (100.0, Search, Pass), (200.0, Search, Invalid), (200.0, Search, Fail)];
    let then = [
        (150.0, Search, Invalid),
        (150.0, Search, Invalid),
        (100.0, Confirm, Invalid),
        (100.0, Confirm, Invalid),
    ];
    let mut trials = searched(&[&tried[..], &then].concat());
    for trial in &mut trials {
        let used = if trial.verdict == Invalid { 95.0 } else { 0.4 * trial.load };
        trial.metrics.insert("player_cpu_percent".into(), Some(used));
        trial.metrics.insert("server_cpu_percent".into(), Some(0.1 * trial.load));
    }
    let plan =
        plan(1, json!({ "max": 1000, "first": 50, "resolution_percent": 50, "confirmations": 1 }), &[]);
    let run = concluded(&plan, trials, json!({}));
    let variant = &run.variants[0];
    assert_eq!((variant.capacity.value, variant.capacity.interval), (Some(100.0), [Some(100.0), None]));
    assert_eq!((variant.limit.resource, variant.limit.certainty), (Resource::Player, Certainty::Confirmed));
    assert_eq!(kinds(&run)[0], "capacity_unconfirmed", "the gravest doubt comes first");
}

#[test]
fn advice_fits_the_kind_of_run() {
    let tried = [(1.0, Search, Pass), (2.0, Search, Pass)];
    let searching = plan(1, json!({ "max": 10 }), &[]);
    let interrupted = kinds(&ended(State::Interrupted, &searching, searched(&tried), json!({})));
    assert!(!interrupted.contains(&"capacity_is_lower_bound".to_owned()), "{interrupted:?}");
    assert_eq!(interrupted[0], "capacity_unconfirmed");
    let single = plan(1, json!({ "streams": 20 }), &[]);
    let single = kinds(&concluded(&single, searched(&[(20.0, Phase::Single, Pass)]), json!({})));
    assert_eq!(single, ["single_repetition"]);
    let through = kinds(&concluded(&searching, searched(&tried), json!({})));
    assert!(through.contains(&"capacity_is_lower_bound".to_owned()), "{through:?}");
}

#[test]
fn run_is_measured_once_if_one_repetition_was_judged() {
    let single = |verdicts: &[Verdict]| {
        let made = (1..)
            .zip(verdicts)
            .map(|(repetition, verdict)| trial(repetition, (20.0, Phase::Single, *verdict)));
        let plan = plan(verdicts.len() as u32, json!({ "streams": 20 }), &[]);
        kinds(&concluded(&plan, made.collect(), json!({}))).contains(&"single_repetition".to_owned())
    };
    assert!(single(&[Pass]) && single(&[Pass, Verdict::Invalid]));
    assert!(!single(&[Pass, Pass]));
    assert!(!single(&[Fail, Fail, Pass]), "a failed repetition was measured, too");
}

#[test]
fn own_counters_of_a_workload_limit_a_single_load() {
    let mut only = trial(1, (5.0, Phase::Single, Pass));
    let own = Limit {
        resource: Resource::Workload(&transfer::presentation::WINDOW),
        certainty: Certainty::Confirmed,
        evidence: Vec::new(),
    };
    only.account.limit = Some(own.clone());
    let run = concluded(&plan(1, json!({ "streams": 5 }), &[]), vec![only], json!({}));
    assert_eq!(run.limit, own);
    // Nothing is drawn through one load, nor is it asked why no load failed.
    let text = run.variants[0].considerations.join("\n");
    assert!(text.starts_with("What would help: a larger receive buffer"), "{text}");
}

#[test]
fn lost_cpu_time_weighs_against_own_counters_too() {
    let limited = |spoilt: &[(&str, f64)], limit: Limit| {
        let mut only = trial(1, (5.0, Phase::Single, Pass));
        only.account.limit = Some(limit);
        only.metrics.extend(spoilt.iter().map(|(name, value)| ((*name).to_owned(), Some(*value))));
        concluded(&plan(1, json!({ "streams": 5 }), &[]), vec![only], json!({})).limit
    };
    let window = || Limit { resource: Resource::Workload(&transfer::presentation::WINDOW), ..path_is_full() };
    for (spoilt, expected) in [
        (&[("steal_percent", 30.0)][..], Certainty::Predicted),
        (&[("steal_percent", 3.0)], Certainty::Confirmed),
        // Others' load that made no thread of the target wait took nothing from it.
        (&[("other_cpu_percent", 90.0)], Certainty::Confirmed),
        (&[("other_cpu_percent", 90.0), ("cpu_wait_percent", 40.0)], Certainty::Predicted),
    ] {
        let limit = limited(spoilt, window());
        assert_eq!(limit.certainty, expected, "{spoilt:?}");
        assert_eq!(limit.contested().is_some(), expected == Certainty::Predicted, "{limit:?}");
    }
    let stolen = limited(&[("steal_percent", 30.0)], window());
    let said = "at 5 streams the hypervisor took 30 % of a core, which may be the cause instead";
    assert_eq!(stolen.evidence[0].statement, said);
    // Whoever took the CPU, a full link is full.
    let evidence = vec![Evidence::counted(Resource::Network, "the link is full").with("link_percent", 98.0)];
    let full = limited(&[("steal_percent", 30.0)], Limit { evidence, ..path_is_full() });
    assert_eq!(full.certainty, Certainty::Confirmed);
    // The same of the load that failed above a capacity.
    let mut trials = searched(&[(98.0, Search, Pass), (99.0, Search, Fail), (98.0, Confirm, Pass)]);
    trials[1].account.limit = Some(path_is_full());
    trials[1].metrics.insert("steal_percent".into(), Some(30.0));
    let run = transferred(json!({ "protocol": "udp", "search": { "max": "1Gbit/s" } }), trials);
    assert_eq!((run.limit.resource, run.limit.certainty), (Resource::Network, Certainty::Predicted));
}

fn transferred(settings: Value, trials: Vec<Trial>) -> Run {
    let plan = Plan::of_one("transfer", "test", "default", Transfer.resolve(&settings).unwrap());
    concluded_of(&Transfer, State::Complete, &Plan { repeats: 3, ..plan }, trials, json!({}))
}

fn path_is_full() -> Limit {
    Limit { resource: Resource::Network, certainty: Certainty::Confirmed, evidence: Vec::new() }
}

#[test]
fn single_load_has_findings() {
    let moved = |repetition: u32, verdict, bit_per_s: f64| {
        let mut trial = trial(repetition, (1.0, Phase::Single, verdict));
        trial.metrics.insert("goodput_bit_per_s".into(), Some(bit_per_s));
        trial
    };
    let trials = vec![moved(1, Pass, 3e9), moved(2, Pass, 1e9), moved(3, Verdict::Invalid, 9e9)];
    let variant = transferred(json!({}), trials).variants.remove(0);
    let [goodput] = &variant.findings[..] else { panic!("{:?}", variant.findings) };
    assert_eq!((goodput.metric.as_str(), &goodput.values[..]), ("goodput_bit_per_s", &[3e9, 1e9][..]));
    assert_eq!((goodput.median(), goodput.spread()), (Some(2e9), Some([1e9, 3e9])));
    // That one flow passes does not say that nothing limited it.
    assert_eq!((variant.limit.resource, variant.limit.certainty), (Resource::None, Certainty::Unknown));
    let unknown = transferred(json!({}), vec![trial(1, (1.0, Phase::Single, Pass))]);
    assert!(unknown.variants[0].findings.is_empty(), "its goodput is not known");
}

#[test]
fn limit_of_a_search_is_that_of_the_failed_load() {
    let mut trials = searched(&[(98.0, Search, Pass), (99.0, Search, Fail), (98.0, Confirm, Pass)]);
    trials[1].account.limit = Some(path_is_full());
    let run = transferred(json!({ "protocol": "udp", "search": { "max": "1Gbit/s" } }), trials);
    assert_eq!(run.limit, path_is_full());
    assert!(run.variants[0].findings.is_empty(), "a search has a capacity");
    let is_ceiling = |note: &DoubtNote| matches!(note.doubt, Doubt::CeilingUnknown { .. });
    assert!(!run.variants[0].doubts.iter().any(is_ceiling), "a transfer has none to be given");
}

#[test]
fn higher_load_confirms_the_limit_of_the_lowest_failed_load() {
    let of = |resource, certainty| Some(Limit { resource, certainty, evidence: Vec::new() });
    let (network, player) = (Resource::Network, Resource::Player);
    for (at_99, at_120, found) in [
        (of(network, Certainty::Predicted), of(network, Certainty::Confirmed), Certainty::Confirmed),
        (of(network, Certainty::Predicted), of(player, Certainty::Confirmed), Certainty::Predicted),
        (of(network, Certainty::Predicted), None, Certainty::Predicted),
        (of(network, Certainty::Unknown), None, Certainty::Unknown),
    ] {
        let trials =
            [(98.0, Search, Pass), (120.0, Search, Fail), (99.0, Search, Fail), (98.0, Confirm, Pass)];
        let mut trials = searched(&trials);
        (trials[1].account.limit, trials[2].account.limit) = (at_120, at_99);
        let run = transferred(json!({ "protocol": "udp", "search": { "max": "1Gbit/s" } }), trials);
        let resource = if found == Certainty::Unknown { Resource::None } else { network };
        assert_eq!((run.limit.resource, run.limit.certainty), (resource, found));
    }
}

#[test]
fn run_fails_if_all_trials_broke_off() {
    let mut trials = searched(&[(1.0, Phase::Single, Fail), (1.0, Phase::Single, Fail)]);
    trials[0].account.broke_off = Some("the server gave up".into());
    assert!(nothing_measured(&trials).is_none(), "one came to its end");
    trials[1].account.broke_off = Some("the server gave up".into());
    let error = nothing_measured(&trials).unwrap();
    assert_eq!(error.message, "no trial could be finished: the server gave up; fix this and measure again");
}
