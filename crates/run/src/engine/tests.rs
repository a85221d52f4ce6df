//! Whole runs of a workload that needs nothing: what the samplers cannot see must not cost what was measured.

use std::path::PathBuf;

use base::metric::MetricSpec;
use base::outcome::Account;
use base::part::{HERE, HostContext, Part, PartKind, Progress};
use base::placement::Role;
use base::units::Span;
use base::verdict::Verdict;
use base::workload::Judgement;
use fleet::local::LocalBus;
use serde_json::json;

use super::*;

/// A server that carries one, whose disk is one that no machine has.
struct Single;

/// A server or a load: it is there, and has nothing to do.
struct Idle;

impl Part for Idle {
    fn prepare(&mut self, _: &Endpoints, _: &HostContext) -> Result<Value, PartError> {
        Ok(json!({ "watch": Watch { block_device: Some("4095:1048575".into()), ..Watch::default() } }))
    }
    fn start(&mut self, _: u64) -> Result<(), PartError> {
        Ok(())
    }
    fn progress(&mut self) -> Progress {
        Progress::Finished
    }
    fn stop(&mut self) -> Result<Value, PartError> {
        Ok(Value::Null)
    }
}

/// A sampler that has no report to give.
struct Dead;

impl Part for Dead {
    fn prepare(&mut self, _: &Endpoints, _: &HostContext) -> Result<Value, PartError> {
        Ok(Value::Null)
    }
    fn start(&mut self, _: u64) -> Result<(), PartError> {
        Ok(())
    }
    fn progress(&mut self) -> Progress {
        Progress::Failed(PartError::new("it has died"))
    }
    fn stop(&mut self) -> Result<Value, PartError> {
        Err(PartError::new("it has died"))
    }
}

const IDLE: PartKind = PartKind { name: "test.idle", build: |_| Ok(Box::new(Idle)) };
const DEAD: PartKind = PartKind { name: "observe.sampler", build: |_| Ok(Box::new(Dead)) };

fn idle(name: &str) -> Vec<PartSpec> {
    vec![PartSpec { kind: IDLE.name.into(), name: name.into(), host: HERE.into(), settings: Value::Null }]
}

impl Workload for Single {
    fn name(&self) -> &'static str {
        "single"
    }
    fn load_unit(&self, _: &Value) -> &'static str {
        "loads"
    }
    fn metrics(&self) -> &'static [MetricSpec] {
        &[]
    }
    fn roles(&self) -> &'static [Role] {
        &[]
    }
    fn parts(&self) -> &'static [PartKind] {
        &[IDLE]
    }
    fn resolve(&self, settings: Value) -> Result<Value, base::plan::PlanError> {
        Ok(settings)
    }
    fn load_plan(&self, _: &Value) -> LoadPlan {
        LoadPlan {
            load_first: 1,
            load_max: 3,
            fixed: None,
            hold: Span::from_s(1),
            search_hold: Span::from_s(1),
            confirmations: 1,
            ramp_down: false,
            resolution: 0.02,
        }
    }
    fn standing(&self, _: &Value, _: &Placement) -> Result<Vec<PartSpec>, PartError> {
        Ok(idle("server"))
    }
    fn offering(
        &self,
        _: &Value,
        _: &TrialContext,
        _: &Endpoints,
        _: &Placement,
    ) -> Result<Vec<PartSpec>, PartError> {
        Ok(idle("load"))
    }
    fn judge(
        &self,
        _: &Value,
        trial: &TrialContext,
        _: &BTreeMap<String, Value>,
    ) -> Result<Judgement, PartError> {
        Ok(Judgement {
            verdict: if trial.load == 1 { Verdict::Pass } else { Verdict::Fail },
            reasons: Vec::new(),
            is_definite: true,
            metrics: BTreeMap::new(),
            series: Vec::new(),
            doubts: Vec::new(),
            hold_s: (0.0, 1.0),
            account: Account::default(),
        })
    }
}

struct Patient;

impl Observer for Patient {
    fn event(&mut self, _: Event<'_>) {}
    fn stop_requested(&self) -> bool {
        false
    }
}

/// A run with this kind of sampler.
fn run_with(sampler: PartKind) -> Run {
    let plan = Plan::of_one("single", "test", "default", json!({}));
    let dir = tempfile::tempdir().unwrap();
    let host = HostContext::here(dir.path().to_owned(), dir.path().to_owned(), PathBuf::new());
    let mut bus = LocalBus::new(vec![IDLE, sampler], host);
    let mut store = Store::open(dir.path()).unwrap();
    let id = store::new_run_id(Timestamp::now(), 1);
    let setting = Setting { version: "0", id, environment: BTreeMap::new() };
    let (run, failure) = make_of(&Single, &plan, &mut bus, &mut store, &mut Patient, setting).unwrap();
    assert!(failure.is_none(), "{failure:?}");
    assert_eq!((run.state, run.capacity.value), (State::Complete, Some(1.0)));
    assert_eq!(run.trials.len(), 4, "1 and 2 searched, 1 and 2 confirmed");
    run
}

fn not_sampled(notes: &[base::doubt::DoubtNote]) -> Vec<&str> {
    let about = notes.iter().filter(|note| matches!(note.doubt, Doubt::NotSampled { .. }));
    about.map(|note| note.message.as_str()).collect()
}

#[test]
fn what_cannot_be_watched_is_said_once_for_the_run() {
    let run = run_with(observe::PARTS[0]);
    let [message] = not_sampled(&run.doubts)[..] else { panic!("{:?}", run.doubts) };
    let disk = "the block device 4095:1048575 cannot be watched: the kernel has no device with these numbers";
    assert_eq!(message.matches(disk).count(), 1, "{message}");
    assert!(run.trials.iter().all(|trial| not_sampled(&trial.doubts).is_empty()));
}

#[test]
fn a_server_that_cannot_be_seen_is_said_once_and_the_host_is_sampled_all_the_same() {
    let run = run_with(observe::PARTS[0]);
    let notes = run.doubts.iter().chain(&run.variants[0].doubts);
    let unseen = notes.filter(|note| matches!(note.doubt, Doubt::ServerNotVisible { .. }));
    assert_eq!(unseen.count(), 1);
    assert!(run.trials[0].series.iter().any(|series| series.name == "host_cpu_percent"));
}

#[test]
fn a_dead_sampler_costs_no_trial() {
    let run = run_with(DEAD);
    let verdicts: Vec<_> = run.trials.iter().map(|trial| trial.verdict).collect();
    use Verdict::{Fail, Pass};
    assert_eq!(verdicts, [Pass, Fail, Pass, Fail]);
    for trial in &run.trials {
        assert_eq!(not_sampled(&trial.doubts), ["not sampled: sampler: it has died"]);
    }
    let [message] = not_sampled(&run.variants[0].doubts)[..] else { panic!("{:?}", run.variants) };
    assert!(message.ends_with("it has died (at worst; 4 of 4 trials)"), "{message}");
}
