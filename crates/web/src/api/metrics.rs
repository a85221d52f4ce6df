//! Numbers for Prometheus (text format 0.0.4).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::response::IntoResponse;
use http::header;
use serde_json::Value;

use crate::app::Shared;
use crate::jobs::{Job, State as JobState};
use crate::program::words;
use std::time::Duration;

const QOS_WITHIN: Duration = Duration::from_secs(10);
const STATES: [JobState; 6] = [
    JobState::Queued,
    JobState::Running,
    JobState::Stopping,
    JobState::Ended,
    JobState::Failed,
    JobState::Interrupted,
];

pub async fn show(State(app): State<Shared>) -> impl IntoResponse {
    let mut page = String::new();
    let number = |value: usize| value as f64;
    let jobs = app.jobs.snapshot();
    family(&mut page, "jobs", "gauge", "Jobs of the console by state.", |add| {
        for state in STATES {
            let count = jobs.iter().filter(|job| job.state == state).count();
            add(&[("state", state.name())], number(count));
        }
    });
    if let Ok(counts) = run_counts(&app).await {
        family(&mut page, "runs", "gauge", "Stored runs by state.", |add| {
            counts.iter().for_each(|(state, count)| add(&[("state", state)], number(*count)));
        });
    }
    live_numbers(&mut page, &jobs);
    family(&mut page, "agents", "gauge", "Agents in the last list, if it is at most 10 s old.", |add| {
        app.agents.count().into_iter().for_each(|count| add(&[], number(count)));
    });
    family(&mut page, "viewers", "gauge", "Open streams of events.", |add| add(&[], number(app.viewers())));
    family(&mut page, "http_requests_total", "counter", "Requests to the console.", |add| {
        add(&[], app.requests.load(Ordering::Relaxed) as f64);
    });
    if sys::environment::is_root()
        && let Ok(status) = app.program.json(&words!["qos", "status", "--json"], QOS_WITHIN).await
    {
        classes(&mut page, &status);
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page)
}

async fn run_counts(app: &Shared) -> crate::error::ApiResult<BTreeMap<String, usize>> {
    app.with_store(|store| {
        let mut counts = BTreeMap::new();
        for run in store.list(&store::Filter::default())? {
            let state = serde_json::to_value(run.state).unwrap_or_default();
            *counts.entry(state.as_str().unwrap_or("unknown").to_owned()).or_default() += 1;
        }
        Ok(counts)
    })
    .await
}

/// What the trials under way show.
fn live_numbers(page: &mut String, jobs: &[Job]) {
    let active = || jobs.iter().filter(|job| job.state.is_active());
    let labels = |job: &Job| [("job", job.id.clone()), ("workload", job.workload.clone())];
    family(page, "job_load", "gauge", "Load of the trial under way, in the workload's unit.", |add| {
        for job in active() {
            let [id, workload] = labels(job);
            job.live.load.into_iter().for_each(|load| add(&[(id.0, &id.1), (workload.0, &workload.1)], load));
        }
    });
    let help = "Numbers of the trial under way; the unit is the end of the name.";
    family(page, "job_live", "gauge", help, |add| {
        for job in active() {
            let [id, workload] = labels(job);
            for (name, value) in
                job.live.numbers.iter().filter_map(|(name, value)| Some((name, value.as_f64()?)))
            {
                add(&[(id.0, &id.1), (workload.0, &workload.1), ("name", name)], value);
            }
        }
    });
}

/// Classes of the policies in force.
fn classes(page: &mut String, status: &Value) {
    let all: Vec<(&str, &Value)> = status["policies"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|policy| {
            let interface = policy["status"]["interface"].as_str().unwrap_or_default();
            policy["status"]["classes"].as_array().into_iter().flatten().map(move |class| (interface, class))
        })
        .collect();
    for (name, kind, key, scale, help) in [
        ("qos_class_target_seconds", "gauge", "target_ms", 1e-3, "Longest response time of a message."),
        ("qos_class_messages_total", "counter", "messages", 1.0, "Messages of the class."),
        ("qos_class_messages_in_time_total", "counter", "in_time", 1.0, "Messages within the target."),
        ("qos_class_sent_bytes_total", "counter", "acked_bytes", 1.0, "Payload that was acknowledged."),
    ] {
        family(page, name, kind, help, |add| {
            for (interface, class) in &all {
                let labels =
                    [("interface", *interface), ("class", class["name"].as_str().unwrap_or_default())];
                class[key].as_f64().into_iter().for_each(|value| add(&labels, value * scale));
            }
        });
    }
}

/// Adds a sample with its labels.
type Add<'a> = dyn FnMut(&[(&str, &str)], f64) + 'a;

fn family(page: &mut String, name: &str, kind: &str, help: &str, fill: impl FnOnce(&mut Add<'_>)) {
    // Writing into a string cannot fail.
    let _ = writeln!(page, "# HELP kagiri_{name} {help}\n# TYPE kagiri_{name} {kind}");
    fill(&mut |labels, value| {
        let labels: Vec<String> =
            labels.iter().map(|(key, text)| format!("{key}=\"{}\"", escaped(text))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(page, "kagiri_{name}{labels} {value}");
    });
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut page = String::new();
        family(&mut page, "x", "gauge", "Help.", |add| add(&[("class", "a\"b\\c\nd")], 1.5));
        assert_eq!(
            page,
            "# HELP kagiri_x Help.\n# TYPE kagiri_x gauge\nkagiri_x{class=\"a\\\"b\\\\c\\nd\"} 1.5\n"
        );
    }
}
