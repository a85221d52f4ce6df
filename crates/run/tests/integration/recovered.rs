//! A run whose process was killed has its trials, and by them an outcome.

use std::collections::BTreeMap;

use base::outcome::{Capacity, Phase, Run, SCHEMA, State, Trial};
use base::verdict::Verdict;
use run::recover::evaluate;
use run::registry::BUILT_IN;

fn trial(number: u32, load: f64, phase: Phase) -> Trial {
    Trial {
        number,
        variant: "default".into(),
        repetition: 1,
        phase,
        load,
        verdict: if load > 2.0 { Verdict::Fail } else { Verdict::Pass },
        reasons: if load > 2.0 { vec!["playback stalled".into()] } else { Vec::new() },
        metrics: BTreeMap::from([("server_cpu_percent".into(), Some(14.0 * load))]),
        doubts: Vec::new(),
        started_at: jiff::Timestamp::UNIX_EPOCH,
        hold_from_s: 1.0,
        hold_to_s: 5.0,
        series: Vec::new(),
        account: Default::default(),
    }
}

fn killed(trials: Vec<Trial>) -> Run {
    let text = "schema = 1\nworkload = \"stream\"\nrequire = [\"capacity>=2\"]\n[stream]\nmax = 4\n";
    let plan = BUILT_IN.read_plan(text).unwrap();
    let unknown = Capacity {
        value: None,
        unit: "streams".into(),
        interval: [None, None],
        passes: 0,
        failures_above: 0,
    };
    let limit = serde_json::json!({"resource": "none", "certainty": "unknown", "evidence": []});
    Run {
        schema: SCHEMA,
        kagiri: "test".into(),
        run: "killed".into(),
        name: "killed".into(),
        workload: "stream".into(),
        state: State::Interrupted,
        failure: Some("its process (7) ended before the run did".into()),
        started_at: jiff::Timestamp::UNIX_EPOCH,
        ended_at: None,
        environment: BTreeMap::new(),
        plan: serde_json::to_value(&plan).unwrap(),
        trials,
        capacity: unknown,
        limit: serde_json::from_value(limit).unwrap(),
        saturation: BTreeMap::new(),
        variants: Vec::new(),
        requirements: Vec::new(),
        doubts: Vec::new(),
    }
}

#[test]
fn stored_trials_of_a_killed_run_are_evaluated() {
    let trials = vec![
        trial(1, 1.0, Phase::Search),
        trial(2, 2.0, Phase::Search),
        trial(3, 3.0, Phase::Search),
        trial(4, 2.0, Phase::Confirm),
    ];
    let mut run = killed(trials);
    assert!(evaluate(&mut run, &BUILT_IN));
    assert_eq!((run.variants.len(), run.capacity.value), (1, Some(2.0)));
    assert_eq!(run.variants[0].capacity, run.capacity);
    assert_eq!(run.state, State::Interrupted, "it is still a run that was killed");
    assert_eq!(run.requirements.len(), 1);
    // A run of an unknown workload, and one without trials, stay as they are.
    let mut foreign = Run { workload: "nfs".into(), ..killed(vec![trial(1, 1.0, Phase::Search)]) };
    let mut empty = killed(Vec::new());
    for run in [&mut foreign, &mut empty] {
        let before = run.clone();
        assert!(!evaluate(run, &BUILT_IN));
        assert_eq!(*run, before);
    }
}
