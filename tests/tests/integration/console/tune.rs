//! Trials of settings that are asked for in the console.

use std::time::Duration;

use kagiri_tests::{Live, Namespaces, World, beside_others, need_root, wait_until};
use serde_json::{Value, json};

use super::request::Inside;

const PATIENCE: Duration = Duration::from_secs(120);
const PLAN: &str = "workload = 'exchange'\n[exchange]\nclients = 2\nsize = '1kB'\ntime = '500ms'\n";
const SETTING: &str = "net.ipv4.tcp_no_metrics_save";

fn value(net: &Namespaces, world: &World) -> Value {
    let list = world.command(&["tune", "list", SETTING, "--json"]);
    let list = Live::start(net.on_with_mounts("a", &list)).end(PATIENCE).code(0).json();
    list["settings"][0]["value"].clone()
}

fn asked(change: impl FnOnce(&mut Value)) -> Value {
    let mut tune = json!({
        "toml": PLAN,
        "settings": ["tcp_no_metrics_save=1"],
        "metric": "response_p50_ms",
        "blocks": 2
    });
    change(&mut tune);
    json!({ "name": "metrics", "tune": tune })
}

/// The job, once `is_reached` holds for it.
fn until(console: &Inside<'_>, id: &str, what: &str, is_reached: impl Fn(&Value) -> bool) -> Value {
    let mut job = Value::Null;
    wait_until(what, PATIENCE, || {
        job = console.get(&format!("/jobs/{id}"));
        is_reached(&job)
    });
    job
}

#[test]
fn trials_of_a_setting_are_a_job_with_an_answer_and_a_stopped_one_restores_it() {
    need_root!();
    let _beside = beside_others();
    let (world, net) = (World::with_own_journal(), Namespaces::new(&["a"]));
    let console = Inside::start(&world, &net);
    // What cannot be tried is refused before it waits.
    type Wrong = (&'static str, fn(&mut Value), &'static str);
    let wrong: [Wrong; 5] = [
        ("tune.settings", |tune| tune["settings"] = json!(["tcp_sakc=0"]), "did you mean"),
        ("tune.settings", |tune| tune["settings"] = json!(["tcp_sack=9"]), "0 (off) or 1 (on)"),
        ("tune.metric", |tune| tune["metric"] = json!("speed"), "response_p99_ms"),
        ("tune.blocks", |tune| tune["blocks"] = json!(1), "2 to 100"),
        (
            "tune.toml",
            |tune| {
                let variants = "[[variant]]\nname = 'x'\n[[variant]]\nname = 'y'\n";
                tune["toml"] = json!(format!("{PLAN}{variants}"));
            },
            "2 variants (x, y)",
        ),
    ];
    for (field, change, word) in wrong {
        let refused = console.answered("POST", "/jobs", &asked(change), 422);
        assert_eq!(refused["error"]["field"], field, "{refused:#}");
        let message = refused["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(word) && !message.contains("--"), "{message}");
    }
    assert_eq!(console.get("/jobs"), json!([]));

    let job = console.answered("POST", "/jobs", &asked(|_| ()), 201);
    let id = job["id"].as_str().expect("an id").to_owned();
    let ended = until(&console, &id, "the trials", |job| job["ended"].is_string());
    assert_eq!((&ended["state"], &ended["kind"]), (&json!("ended"), &json!("tune")), "{ended:#}");
    let answer = &ended["answer"];
    assert_eq!(answer["goal"], "response_p50_ms", "{answer:#}");
    assert_eq!(answer["candidates"][0]["candidate"], "tcp_no_metrics_save=1", "{answer:#}");
    assert!(answer["conclusion"].is_string() && answer["runs"][0].is_string(), "{answer:#}");
    assert_eq!(value(&net, &world), "0");

    let long = console.answered("POST", "/jobs", &asked(|tune| tune["blocks"] = json!(50)), 201);
    let id = long["id"].as_str().expect("an id").to_owned();
    until(&console, &id, "a trial of the candidate", |job| {
        job["variant"] == "tcp_no_metrics_save=1" && value(&net, &world) == "1"
    });
    console.answered("POST", &format!("/jobs/{id}/stop"), &Value::Null, 202);
    let stopped = until(&console, &id, "the end", |job| job["ended"].is_string());
    assert_eq!(stopped["state"], "interrupted", "{stopped:#}");
    assert_eq!(value(&net, &world), "0");
    let run = stopped["run"].as_str().expect("a run");
    let trials = console.get(&format!("/runs/{run}"))["trials"].as_array().map(Vec::len);
    assert!(trials > Some(0), "{stopped:#}");
}
