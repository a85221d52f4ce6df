//! Requests on the idle path, and then beside bulk flows: three sessions with one server, one after the other
//! ready, that begin at moments of their own.

use std::sync::Arc;

use base::units::Span;

use super::{ClientError, Ready, Task, hold_s};
use crate::control::StopHandle;
use crate::flow::{Direction, EndReason};
use crate::report::{EndReport, TransferReport};
use crate::settings::TransferSettings;

/// Prepares all sessions, so that nothing but requests moves before the load begins.
pub(super) fn prepare(task: Task, idle: Span, stop_handle: Arc<StopHandle>) -> Result<Ready, ClientError> {
    let ready = |settings: TransferSettings| {
        Ready::prepare(Task { settings, server: task.server, key: task.key.clone() }, stop_handle.clone())
    };
    let requests = requests_alone(&task.settings);
    let idle_requests = ready(TransferSettings { time: idle, omit: Span::from_ms(0), ..requests.clone() })?;
    let loaded_requests = ready(requests)?;
    let bulk = ready(bulk_alone(&task.settings))?;
    let (peer, passed) = (bulk.peer, bulk.passed.clone());
    let run = move |at_ns: u64| {
        let load_ns = at_ns.saturating_add(idle.ns());
        // The requests on the idle path end a second after their last response at the latest: in a thread of
        // their own, so that the load begins in time.
        let (before, beside, mut report) = std::thread::scope(|scope| {
            let before = scope.spawn(|| idle_requests.run(at_ns));
            let beside = scope.spawn(|| loaded_requests.run(load_ns));
            let report = bulk.run(load_ns);
            let join = |thread: std::thread::ScopedJoinHandle<'_, TransferReport>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            (join(before), join(beside), report)
        });
        report.stopped |= before.stopped || beside.stopped;
        // Of sessions that are stopped, one sees how the other ends.
        if !report.stopped {
            report.broken = report.broken.or(broken(&before, "idle")).or(broken(&beside, "loaded"));
        }
        (report.idle_responses, report.responses) = (before.responses, beside.responses);
        let idle_s = idle.s();
        let ends = report.directions.iter_mut().flat_map(|way| [&mut way.sender, &mut way.receiver]);
        ends.flatten().for_each(|end| begin_later(end, idle_s));
        let (from_s, to_s) = hold_s(&task.settings, load_ns);
        report.hold_s = (from_s + idle_s, to_s + idle_s);
        report
    };
    Ok(Ready { peer, passed, run: Box::new(run) })
}

/// The requests beside the load.
fn requests_alone(settings: &TransferSettings) -> TransferSettings {
    TransferSettings {
        under_load: None,
        requests: Some(settings.requests_under_load()),
        flows: 1,
        threads: 1,
        direction: Direction::Up,
        rate: None,
        mode: Default::default(),
        engine: None,
        size: None,
        calls: false,
        ..settings.clone()
    }
}

/// The load beside the requests.
fn bulk_alone(settings: &TransferSettings) -> TransferSettings {
    TransferSettings { under_load: None, requests: None, ..settings.clone() }
}

/// Why requests broke off, if they did.
fn broken(report: &TransferReport, path: &str) -> Option<String> {
    let mut flows = report.directions.iter().flat_map(|way| way.ends()).flat_map(|end| &end.flows);
    let failed = || {
        flows.find_map(|flow| match &flow.ended {
            EndReason::Failed(why) => Some(why.clone()),
            _ => None,
        })
    };
    let why = report.broken.clone().or_else(failed)?;
    Some(format!("the requests on the {path} path broke off: {why}"))
}

/// Moves the intervals of flows to where they were in the trial.
fn begin_later(end: &mut EndReport, later_s: f64) {
    for (from_s, to_s, _) in &mut end.intervals {
        (*from_s, *to_s) = (*from_s + later_s, *to_s + later_s);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_of_the_load_are_not_those_of_the_requests() {
        let settings = TransferSettings::read(json!({
            "under_load": "1s", "direction": "both", "flows": 4, "mode": "discard", "no_delay": true,
        }));
        let settings = settings.unwrap();
        let requests = requests_alone(&settings);
        assert_eq!((requests.flows, requests.direction, requests.no_delay), (1, Direction::Up, true));
        assert_eq!(requests.requests.clone().unwrap().rate_per_s, Some(200.0));
        let bulk = bulk_alone(&settings);
        assert_eq!((bulk.flows, bulk.direction, &bulk.requests), (4, Direction::Both, &None));
        // Both are settings that could have been given.
        for alone in [requests, bulk] {
            TransferSettings::read(serde_json::to_value(alone).unwrap()).unwrap();
        }
    }
}
