//! A trial of the workload without the engine: its parts in this process, one phase after the other.

use std::collections::BTreeMap;
use std::time::Duration;

use base::outcome::Phase;
use base::part::{AnyPart, Endpoints, HostContext, PartError, PartSpec, Progress};
use base::placement::Placement;
use base::workload::{Judgement, TrialContext};
use exchange::Exchange;
use exchange::settings::ExchangeSettings;
use serde_json::Value;
use sys::clock::{Deadline, monotonic_ns};
use workload::Workload;
use workload::part::{Peers, Reports};

fn build(spec: &PartSpec) -> Box<dyn AnyPart> {
    let kinds = Exchange.part_kinds();
    let kind = kinds.iter().find(|kind| kind.name == spec.kind).expect("a registered kind");
    (kind.build)(spec).expect("a part")
}

/// Makes one trial at the load of the settings, and judges it.
pub fn measure(settings: Value) -> Judgement {
    trial(settings).expect("clients")
}

/// Why the clients cannot begin.
pub fn refusal(settings: Value) -> String {
    trial(settings).expect_err("clients that cannot begin").message
}

fn trial(settings: Value) -> Result<Judgement, PartError> {
    let settings = ExchangeSettings::read(settings).expect("settings");
    let placement = Placement::default();
    let host = HostContext::here("/tmp".into(), "/tmp".into(), "unused".into());
    let mut endpoints = Endpoints::new();
    let mut standing = Vec::new();
    for spec in Exchange.standing(&settings, &placement).expect("standing parts") {
        let mut part = build(&spec);
        endpoints.insert(spec.name, part.prepare(&Endpoints::new(), &host).expect("a server"));
        standing.push(part);
    }
    let load = settings.load_plan().load_max;
    let context = TrialContext { load, phase: Phase::Single, hold: settings.time, seed: 1 };
    let specs = Exchange.offering(&settings, &context, &Peers::new(&endpoints), &placement).expect("parts");
    let mut parts: Vec<(String, Box<dyn AnyPart>)> =
        specs.iter().map(|spec| (spec.name.clone(), build(spec))).collect();
    for (_, part) in &mut parts {
        part.prepare(&endpoints, &host)?;
    }
    let start_ns = monotonic_ns() + 50_000_000;
    parts.iter_mut().for_each(|(_, part)| part.start(start_ns).expect("a start"));
    let deadline = Deadline::after(Duration::from_secs(120));
    // Every part is asked each time, as the engine does.
    while parts
        .iter_mut()
        .filter_map(|(_, part)| (part.progress() != Progress::Finished).then_some(()))
        .count()
        > 0
    {
        assert!(deadline.pause(Duration::from_millis(2)), "the trial does not end");
    }
    let reports: BTreeMap<String, Value> =
        parts.iter_mut().map(|(name, part)| (name.clone(), part.stop().expect("a report"))).collect();
    standing.iter_mut().for_each(|part| drop(part.stop().expect("a report")));
    Ok(Exchange.judge(&settings, &context, &Reports::new(reports)).expect("a judgement"))
}

/// A metric that must be known.
pub fn metric(judgement: &Judgement, name: &str) -> f64 {
    judgement.metrics.get(name).copied().flatten().unwrap_or_else(|| panic!("{name}: {judgement:?}"))
}

/// The name of the resource that limited the response time.
pub fn limit(judgement: &Judgement) -> &'static str {
    judgement.account.limit.as_ref().expect("a limit").resource.word()
}
