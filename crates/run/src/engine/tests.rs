//! Whole runs of a workload that needs nothing: what the samplers cannot see must not cost what was measured.

use std::collections::BTreeMap;
use std::path::PathBuf;

use base::metric::MetricSpec;
use base::part::{AnyPart, Endpoints, HERE, HostContext, PartError, PartKind, Progress, Watch};
use base::placement::Role;
use base::units::Span;
use base::verdict::Verdict;
use base::workload::Judgement;
use fleet::local::LocalBus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use workload::Workload;
use workload::part::{self, Part, Peers, Reports};
use workload::settings::Settings;

use super::*;

/// A server that carries one, whose disk is one that no machine has.
struct Single;

/// A server or a load: it is there, and has nothing to do.
struct Idle;

#[derive(Serialize, Deserialize)]
struct IdleEndpoint {
    watch: Watch,
}

impl Part for Idle {
    const KIND: &'static str = "test.idle";
    type Task = ();
    type Endpoint = IdleEndpoint;
    type Report = ();

    fn new((): ()) -> Result<Self, PartError> {
        Ok(Self)
    }
    fn prepare(&mut self, _: &Peers<'_>, _: &HostContext) -> Result<IdleEndpoint, PartError> {
        Ok(IdleEndpoint { watch: Watch { block_device: Some("4095:1048575".into()), ..Watch::default() } })
    }
    fn progress(&mut self) -> Progress {
        Progress::Finished
    }
    fn stop(&mut self) -> Result<(), PartError> {
        Ok(())
    }
}

struct Dead;

impl AnyPart for Dead {
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

const IDLE: PartKind = part::kind::<Idle>();
const DEAD: PartKind = PartKind { name: "observe.sampler", build: |_| Ok(Box::new(Dead)) };

fn idle(name: &str) -> Result<Vec<PartSpec>, PartError> {
    Ok(vec![part::spec::<Idle>(name.to_owned(), HERE, &())?])
}

#[derive(Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoSettings {}

impl Settings for NoSettings {}

impl Workload for Single {
    const NAME: &'static str = "single";
    type Settings = NoSettings;

    fn load_unit(&self, _: &NoSettings) -> &'static str {
        "loads"
    }
    fn metrics(&self) -> &'static [MetricSpec] {
        &[]
    }
    fn roles(&self) -> &'static [Role] {
        &[]
    }
    fn part_kinds(&self) -> &'static [PartKind] {
        &[IDLE]
    }
    fn load_plan(&self, _: &NoSettings) -> LoadPlan {
        LoadPlan { confirmations: 1, ..LoadPlan::search(3, Span::from_s(1)) }
    }
    fn standing(&self, _: &NoSettings, _: &Placement) -> Result<Vec<PartSpec>, PartError> {
        idle("server")
    }
    fn offering(
        &self,
        _: &NoSettings,
        _: &TrialContext,
        _: &Peers<'_>,
        _: &Placement,
    ) -> Result<Vec<PartSpec>, PartError> {
        idle("load")
    }
    fn judge(&self, _: &NoSettings, trial: &TrialContext, _: &Reports) -> Result<Judgement, PartError> {
        let verdict = if trial.load == 1 { Verdict::Pass } else { Verdict::Fail };
        Ok(Judgement { is_definite: true, ..Judgement::new(verdict, (0.0, 1.0)) })
    }
}

struct Patient;

impl Observer for Patient {
    fn event(&mut self, _: Event<'_>) {}
    fn stop_requested(&self) -> bool {
        false
    }
}

fn run_with(sampler: PartKind) -> Run {
    let plan = Plan::of_one("single", "test", "default", json!({}));
    let dir = tempfile::tempdir().unwrap();
    let host = HostContext::here(dir.path().to_owned(), dir.path().to_owned(), PathBuf::new());
    let mut bus = LocalBus::new(vec![IDLE, sampler], host);
    let mut store = Store::open(dir.path()).unwrap();
    let id = store::new_run_id(Timestamp::now(), 1);
    let setting =
        Setting { version: "0", id, environment: BTreeMap::new(), beside: Beside::default(), stored: None };
    let (run, failure) = make(&Single, &plan, &mut bus, &mut store, &mut Patient, setting).unwrap();
    assert!(failure.is_none(), "{failure:?}");
    assert_eq!((run.state, run.capacity.value), (State::Complete, Some(1.0)));
    assert_eq!(run.trials.len(), 4, "1 and 2 searched, 1 and 2 confirmed");
    run
}

#[test]
fn unreadable_settings_are_an_error_of_the_plan() {
    let plan = Plan::of_one("single", "test", "default", json!({ "unknown": 1 }));
    let error = configure(&plan, &Single).err().unwrap();
    assert!(error.usage && error.message.contains("unknown"), "{}", error.message);
}

#[test]
fn unreadable_watch_names_its_part() {
    let error = watch("server", &json!({ "watch": { "pids": "four" } })).unwrap_err();
    assert!(error.message.starts_with("the watch of server cannot be read"), "{error}");
    assert_eq!(watch("server", &json!({ "pid": 4 })).unwrap(), None);
    assert_eq!(watch("server", &json!(null)).unwrap(), None);
}

fn not_sampled(notes: &[base::doubt::DoubtNote]) -> Vec<&str> {
    let about = notes.iter().filter(|note| matches!(note.doubt, Doubt::NotSampled { .. }));
    about.map(|note| note.message.as_str()).collect()
}

#[test]
fn unavailable_samples_are_reported_once_per_run() {
    let run = run_with(observe::PARTS[0]);
    let [message] = not_sampled(&run.doubts)[..] else { panic!("{:?}", run.doubts) };
    let disk = "the block device 4095:1048575 cannot be watched: the kernel has no device with these numbers";
    assert_eq!(message.matches(disk).count(), 1, "{message}");
    assert!(run.trials.iter().all(|trial| not_sampled(&trial.doubts).is_empty()));
}

#[test]
fn invisible_server_is_reported_once_and_its_host_is_sampled() {
    let run = run_with(observe::PARTS[0]);
    let notes = run.doubts.iter().chain(&run.variants[0].doubts);
    let unseen = notes.filter(|note| matches!(note.doubt, Doubt::ServerNotVisible { .. }));
    assert_eq!(unseen.count(), 1);
    assert!(run.trials[0].series.iter().any(|series| series.name == "host_cpu_percent"));
}

#[test]
fn failed_sampler_does_not_invalidate_trials() {
    let run = run_with(DEAD);
    let verdicts: Vec<_> = run.trials.iter().map(|trial| trial.verdict).collect();
    use Verdict::{Fail, Pass};
    assert_eq!(verdicts, [Pass, Fail, Pass, Fail]);
    for trial in &run.trials {
        assert_eq!(not_sampled(&trial.doubts), ["not sampled: sampler: it has died"]);
    }
    let [message] = not_sampled(&run.variants[0].doubts)[..] else { panic!("{:?}", run.variants) };
    assert!(message.ends_with("it has died (in 4 of 4 trials)"), "{message}");
}
