//! A workload that this crate brings along is planned, searched, explained and reported like kagiri's own.

use std::collections::BTreeMap;

use base::metric::MetricSpec;
use base::outcome::{Resource, State};
use base::part::HostContext;
use echo::{Echo, REGISTRY};
use fleet::local::LocalBus;
use jiff::Timestamp;
use run::companions::Beside;
use run::engine::{self, Event, Observer, Setting};
use store::Store;
use workload::{AnyWorkload, Workload};

/// The server takes 40 ms for each of the clients that ask at once: two are answered within 100 ms, three are
/// not.
const PLAN: &str = r#"
schema = 1
name = "two clients"
workload = "echo"
require = ["capacity==2", "response_max_ms<=100"]

[echo]
max = 8
deadline = "100ms"
service = "40ms"
hold = "600ms"
"#;

struct Quiet;

impl Observer for Quiet {
    fn event(&mut self, _: Event<'_>) {}
    fn stop_requested(&self) -> bool {
        false
    }
}

#[test]
fn search_finds_the_two_clients_that_the_server_answers_in_time() {
    let plan = REGISTRY.read_plan(PLAN).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let host = HostContext::here(folder.path().into(), folder.path().into(), "unused".into());
    let mut bus = LocalBus::new(REGISTRY.part_kinds(), host);
    let mut store = Store::open(folder.path()).unwrap();
    let id = store::new_run_id(Timestamp::now(), 1);
    let setting = Setting {
        version: "0",
        id: id.clone(),
        environment: BTreeMap::new(),
        beside: Beside::default(),
        stored: None,
    };
    let echo = REGISTRY.workload("echo").unwrap();
    let (run, failure) = engine::make(echo, &plan, &mut bus, &mut store, &mut Quiet, setting).unwrap();
    assert!(failure.is_none(), "{failure:?}");
    assert_eq!(
        (run.state, run.capacity.value, run.capacity.unit.as_str()),
        (State::Complete, Some(2.0), "clients")
    );
    assert!(run.requirements.iter().all(|requirement| requirement.held), "{:?}", run.requirements);
    assert_ne!(run.limit.resource, Resource::Cpu, "the server sleeps");
    assert!(
        run.trials
            .iter()
            .any(|trial| trial.reasons.iter().any(|reason| reason.contains("longer than 100ms")))
    );
    assert!(run.trials[0].metrics.contains_key("server_cpu_percent"), "the server is sampled");
    let specs: &[MetricSpec] = echo.metrics();
    let page = report::html::page(&run, &report::html::Extras { specs, ..Default::default() });
    assert!(page.contains("two clients") && page.contains(specs[0].meaning));
}

#[test]
fn settings_give_plan_keys_and_schema() {
    let error = REGISTRY.read_plan(&PLAN.replace("service", "servise")).unwrap_err();
    assert!(error.to_string().contains("servise"), "{error}");
    let properties = &AnyWorkload::schema(&Echo)["properties"];
    assert_eq!(properties["deadline"]["description"], "A client needs its answer within this time");
    assert_eq!(Echo::NAME, REGISTRY.workloads()[0].name());
}
