//! A console whose disk is full: runs say so, nothing that was stored is lost, and nothing is half done.

use std::fs;
use std::time::Duration;

use kagiri_tests::{Console, Live, Namespaces, SmallDisk, World, beside_others, http_request, need_root};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::request::Inside;

const PATIENCE: Duration = Duration::from_secs(60);

const PLAN: &str = "name = 'full'\nrepeats = 60\nworkload = 'transfer'\n[transfer]\nrate = '20Mbit/s'\n\
    time = '1s'\n";

#[test]
fn full_disk_ends_a_run_with_its_reason_and_loses_no_finished_trial() {
    need_root!();
    let _beside = beside_others();
    let world = World::with_own_journal();
    let small = world.path("small");
    let disk = SmallDisk::mount(&small, 4 << 20);
    let mut command = world.command(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("KAGIRI_DATA", &small);
    let console = Console::of(Live::start(command));
    let job = console.run(PLAN);
    let bearer = format!("Bearer {}", console.token);
    let path = format!("/api/v1/jobs/{job}/events");
    let mut page = http_request(console.address, "GET", &path, &[("Authorization", bearer.as_str())], "");
    page.events(|name, _| name == "trial");
    let waiting = console.run(PLAN);
    let ballast = disk.fill();
    let failed = console.until(&job, &["failed"]);
    let message = failed["message"].as_str().unwrap_or_default();
    assert!(message.contains("disk is full") && message.contains("free some space"), "{failed:#}");
    // The page that watched is told, too.
    let rest = page.events(|name, _| name == "bye");
    assert!(rest.iter().any(|(name, _, data)| name == "job" && data["state"] == "failed"), "{rest:?}");
    // What was stored can be read, also while the disk is full.
    let run = format!("/runs/{}", failed["run"].as_str().expect("a run"));
    let stored = console.get(&run)["trials"].as_array().map(Vec::len);
    assert!(stored >= Some(1), "{failed:#}");
    let refused = console.answered("POST", "/jobs", &json!({ "toml": PLAN }), 507);
    let message = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("no space left") && message.contains("free some space"), "{message}");
    console.answered("PATCH", &run, &json!({ "tags": ["x"], "note": "" }), 507);
    let jobs = console.get("/jobs").as_array().map(Vec::len);
    assert_eq!(jobs, Some(2));
    // What begins while it is full stores no run, and its plan is kept.
    let waiting = console.until(&waiting, &["failed", "ended"]);
    assert_eq!((&waiting["state"], &waiting["run"]), (&json!("failed"), &Value::Null), "{waiting}");
    let message = waiting["message"].as_str().unwrap_or_default();
    assert!(message.contains("no space left") && message.contains("free some space"), "{message}");
    let plan = format!("/jobs/{}/plan", waiting["id"].as_str().expect("an id"));
    assert_eq!(console.get(&plan)["toml"], PLAN);

    fs::remove_file(ballast).expect("the ballast");
    assert_eq!(console.get(&run)["trials"].as_array().map(Vec::len), stored);
    let next = console.run(&PLAN.replace("60", "1"));
    assert_eq!(console.until(&next, &["ended", "failed"])["state"], "ended");
    console.end(Signal::SIGINT).code(0);
}

#[test]
fn waiting_job_is_stopped_only_if_that_can_be_stored() {
    need_root!();
    let _beside = beside_others();
    let world = World::with_own_journal();
    let small = world.path("small");
    let disk = SmallDisk::mount(&small, 4 << 20);
    let start = |words: &[&str]| {
        let mut command = world.command(words);
        command.env("KAGIRI_DATA", &small);
        Live::start(command)
    };
    let console = Console::of(start(&["serve", "--listen", "127.0.0.1:0"]));
    // A run of a terminal: the job waits for it, and it stores nothing meanwhile.
    let file = world.write("plan.toml", PLAN.replace("1s", "50s"));
    let mut other = start(&["run", file.to_str().expect("UTF-8")]);
    other.wait_for("measuring", PATIENCE);
    let job = console.run(PLAN);
    let stop = format!("/jobs/{job}/stop");
    let ballast = disk.fill();
    // After a restart of the server it would begin.
    console.answered("POST", &stop, &Value::Null, 507);
    assert_eq!(console.get(&format!("/jobs/{job}"))["state"], "queued");
    fs::remove_file(ballast).expect("the ballast");
    assert_eq!(console.answered("POST", &stop, &Value::Null, 202)["state"], "interrupted");
    other.signal(Signal::SIGINT);
    other.end(PATIENCE);
    console.end(Signal::SIGINT).code(0);
}

#[test]
fn full_disk_leaves_no_setting_and_no_policy_that_is_not_noted() {
    need_root!();
    let _beside = beside_others();
    let (world, net) = (World::with_own_journal(), Namespaces::new(&["a"]));
    let disk = SmallDisk::mount(&world.path("small"), 4 << 20);
    let console = Inside::start_with(&world, &net, disk.path());
    let ballast = disk.fill();
    let sack = || {
        let all = console.get("/settings");
        let found = all.as_array().and_then(|all| all.iter().find(|one| one["name"] == "net.ipv4.tcp_sack"));
        found.map_or(Value::Null, |found| found["value"].clone())
    };
    let set = json!({ "settings": { "tcp_sack": "0" }, "for_s": 600 });
    let refused = console.answered("POST", "/settings/set", &set, 507);
    let message = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("no space left") && message.contains("nothing stays set"), "{message}");
    assert_eq!((sack(), console.get("/settings/applied")), (json!("1"), json!([])));
    let policy = "[bottleneck]\ninterface = 'eth0'\ncapacity = '1Gbit/s'\n[[class]]\nname = 'bulk'\n\
                  match = { process = 'none' }\npriority = 5\n";
    console.answered("POST", "/qos/apply", &json!({ "toml": policy }), 507);
    assert_eq!(console.get("/qos")["policies"], json!([]));
    fs::remove_file(ballast).expect("the ballast");
    console.answered("POST", "/settings/set", &set, 201);
    let applied = console.get("/settings/applied");
    let of = |what: &str| format!("/settings/applied/{}/{what}", applied[0]["id"].as_str().expect("an id"));
    // What cannot be noted is not kept: it ends in time, as before.
    let ballast = disk.fill();
    console.answered("POST", &of("keep"), &Value::Null, 507);
    fs::remove_file(ballast).expect("the ballast");
    assert_eq!((sack(), console.get("/settings/applied")[0]["state"].take()), (json!("0"), json!("applied")));
    console.answered("POST", &of("undo"), &Value::Null, 200);
    assert_eq!(sack(), json!("1"));
    console.end(Signal::SIGINT).code(0);
}
