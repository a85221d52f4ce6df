//! Runs that are asked for over HTTP: watched, stopped, queued, and found again by a new server.

use std::time::Duration;

use kagiri_tests::{
    Console, LabHosts, Live, World, beside_others, http_request, need_root, unique_name, wait_until,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes over loopback for some time, slowly, so that other tests are not disturbed.
fn plan(name: &str, time: &str) -> String {
    format!("name = '{name}'\nworkload = 'transfer'\n[transfer]\nrate = '20Mbit/s'\ntime = '{time}'\n")
}

fn watched(console: &Console, job: &str, after: &str) -> kagiri_tests::HttpAnswer {
    let bearer = format!("Bearer {}", console.token);
    let headers = [("Authorization", bearer.as_str()), ("Last-Event-ID", after)];
    http_request(console.address, "GET", &format!("/api/v1/jobs/{job}/events"), &headers, "")
}

#[test]
fn run_is_watched_from_its_beginning_to_its_end_and_stored_with_its_tags() {
    let _beside = beside_others();
    let world = World::new();
    let console = Console::start(&world);
    let asked = json!({ "toml": plan("first", "2s"), "name": "renamed", "tags": ["night"] });
    let job = console.answered("POST", "/jobs", &asked, 201);
    assert_eq!((&job["name"], &job["workload"]), (&json!("renamed"), &json!("transfer")), "{job}");
    let id = job["id"].as_str().expect("an id");
    let events = watched(&console, id, "").events(|name, _| name == "bye");
    let names: Vec<&str> = events.iter().map(|(name, ..)| name.as_str()).collect();
    let at = |wanted: &str| {
        names.iter().position(|name| *name == wanted).unwrap_or_else(|| panic!("{wanted}: {names:?}"))
    };
    assert!(
        at("run") < at("trial_began") && at("trial_began") < at("progress") && at("progress") < at("trial")
    );
    assert!(at("trial") < at("end") && *names.last().expect("events") == "bye", "{names:?}");
    let progress: Vec<&Value> =
        events.iter().filter(|(name, ..)| name == "progress").map(|(_, _, data)| data).collect();
    // Ten a second.
    assert!(progress.len() >= 8, "{}", progress.len());
    let live = &progress[progress.len() / 2]["live"];
    for name in ["host_cpu_percent", "page_cache_bytes", "server_memory_bytes"] {
        assert!(live[name].is_number(), "{name}: {live}");
    }
    let ended = console.until(id, &["ended"]);
    assert_eq!((&ended["done"], &ended["message"]), (&json!(1.0), &Value::Null), "{ended}");
    let run = ended["run"].as_str().expect("a run").to_owned();
    let list = console.get("/runs?tag=night");
    assert_eq!((&list["runs"][0]["id"], &list["runs"][0]["name"]), (&json!(run), &json!("renamed")));
    // A later viewer sees the same; one that comes back only the rest.
    let replay = watched(&console, id, "").events(|name, _| name == "bye");
    assert_eq!(replay.iter().filter(|(name, ..)| name == "progress").count(), progress.len());
    // A disturbed trial is measured again.
    let trial =
        events.iter().rfind(|(name, ..)| name == "trial").map(|(_, id, _)| id.clone()).expect("a trial");
    let rest = watched(&console, id, &trial).events(|name, _| name == "bye");
    let rest: Vec<&str> = rest.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(rest, ["end", "job", "bye"]);
    console.answered("DELETE", &format!("/jobs/{id}"), &Value::Null, 204);
    assert_eq!(console.get(&format!("/runs/{run}"))["run"], run.as_str());
}

#[test]
fn viewers_of_a_job_that_is_removed_are_informed() {
    let _beside = beside_others();
    let world = World::new();
    let console = Console::start(&world);
    let long = console.run(&plan("long", "30s"));
    let waiting = console.run(&plan("waiting", "1s"));
    let of_job = watched(&console, &waiting, "");
    let bearer = format!("Bearer {}", console.token);
    let headers = [("Authorization", bearer.as_str())];
    let of_all = http_request(console.address, "GET", "/api/v1/events", &headers, "");
    let viewers = [(of_job, "bye"), (of_all, "removed")]
        .map(|(mut viewer, last)| std::thread::spawn(move || viewer.events(|name, _| name == last)));
    // Both are subscribed once they have an event.
    std::thread::sleep(Duration::from_millis(500));
    console.answered("DELETE", &format!("/jobs/{waiting}"), &Value::Null, 204);
    for viewer in viewers {
        let events = viewer.join().expect("a viewer");
        let removed = events.iter().find(|(name, ..)| name == "removed").map(|(_, _, data)| data.clone());
        assert_eq!(removed, Some(json!({ "id": waiting })), "{events:?}");
    }
    console.answered("POST", &format!("/jobs/{long}/stop"), &Value::Null, 202);
    console.until(&long, &["interrupted"]);
}

#[test]
fn invalid_plan_names_key_and_line() {
    let world = World::new();
    let console = Console::start(&world);
    let toml = "workload = 'transfer'\n[transfer]\ntime = 'long'\n";
    let checked = console.answered("POST", "/plans/check", &json!({ "toml": toml }), 200);
    let error = &checked["errors"][0];
    assert_eq!((&checked["valid"], &error["field"]), (&json!(false), &json!("transfer.time")), "{checked}");
    assert_eq!(error["line"], 3);
    let refused = console.answered("POST", "/jobs", &json!({ "toml": toml }), 422);
    assert_eq!(refused["errors"], checked["errors"]);
    // The form's keys become the file, and the file the form's keys.
    let plan = json!({ "workload": "transfer", "transfer": { "time": "1s", "host": null } });
    let there = console.answered("POST", "/plans/check", &json!({ "plan": plan }), 200);
    assert_eq!(
        (&there["valid"], &there["plan"]["transfer"]["time"]),
        (&json!(true), &json!("1s")),
        "{there}"
    );
    let back = console.answered("POST", "/plans/check", &json!({ "toml": there["toml"] }), 200);
    assert_eq!(back["plan"], there["plan"]);
    assert!(back["cost_s"].is_number() && back["cost_words"].is_string());
    for name in ["x".repeat(201), "two\\nlines".to_owned()] {
        let toml = format!("name = \"{name}\"\nworkload = 'transfer'\n");
        let refused = console.answered("POST", "/jobs", &json!({ "toml": toml }), 422);
        assert_eq!(refused["errors"][0]["field"], "name", "{refused}");
    }
    let elsewhere = "workload = 'transfer'\n[place]\nserver = 'nas'\n";
    let refused = console.answered("POST", "/jobs", &json!({ "toml": elsewhere }), 422);
    assert!(refused["error"]["message"].as_str().is_some_and(|text| text.contains("--fleet")), "{refused}");
}

#[test]
fn jobs_on_one_host_queue_and_a_stopped_one_keeps_what_it_measured() {
    let _beside = beside_others();
    let world = World::new();
    let console = Console::start(&world);
    let long = console.run(&(plan("long", "1s") + "\n").replace("workload", "repeats = 100\nworkload"));
    let second = console.run(&plan("second", "1s"));
    let third = console.run(&plan("third", "1s"));
    // One trial is measured.
    watched(&console, &long, "").events(|name, _| name == "trial");
    let waiting = console.get(&format!("/jobs/{second}"));
    assert_eq!((&waiting["state"], &waiting["position"]), (&json!("queued"), &json!(1)), "{waiting}");
    wait_until("the reason to wait", PATIENCE, || {
        console.get(&format!("/jobs/{third}"))["message"].as_str().is_some_and(|text| text.contains("'long'"))
    });
    console.answered("DELETE", &format!("/jobs/{long}"), &Value::Null, 409);
    // A change of this machine would falsify what is measured.
    let set = json!({ "settings": { "tcp_sack": "1" }, "for_s": 60 });
    let policy = json!({ "toml": "" });
    for (path, asked) in [("/settings/set", set), ("/qos/apply", policy)] {
        let refused = console.answered("POST", path, &asked, 409);
        assert_eq!(refused["error"]["field"], "while_measuring", "{refused}");
    }
    let measured = console.get(&format!("/jobs/{long}"))["run"].as_str().expect("a run").to_owned();
    let kept = console.answered("DELETE", &format!("/runs/{measured}"), &Value::Null, 409);
    assert!(kept["error"]["message"].as_str().is_some_and(|text| text.contains(&measured)), "{kept}");
    let mut viewer = watched(&console, &third, "");
    let viewing = std::thread::spawn(move || viewer.events(|name, _| name == "bye"));
    console.answered("POST", &format!("/jobs/{third}/stop"), &Value::Null, 202);
    assert_eq!(console.get(&format!("/jobs/{third}"))["state"], "interrupted");
    // Its viewers hear that nothing follows, too.
    let heard = viewing.join().expect("a viewer");
    assert!(heard.last().is_some_and(|(name, ..)| name == "bye"), "{heard:?}");
    let stop = format!("/jobs/{long}/stop");
    let first = console.answered("POST", &stop, &Value::Null, 202);
    assert_eq!(first["state"], "stopping");
    // Another person stops it, too: it ends as after one stop. It may have ended by then.
    std::thread::sleep(Duration::from_millis(150));
    assert!([202, 409].contains(&console.ask("POST", &stop, &json!({})).status));
    let events = watched(&console, &long, "").events(|name, _| name == "bye");
    assert!(events.iter().any(|(name, _, data)| name == "end" && data["state"] == "interrupted"));
    let stopped = console.until(&long, &["interrupted"]);
    let run = console.get(&format!("/runs/{}", stopped["run"].as_str().expect("a run")));
    assert_eq!(run["state"], "interrupted");
    assert!(run["trials"].as_array().is_some_and(|trials| !trials.is_empty()), "{stopped}");
    console.answered("POST", &format!("/jobs/{long}/stop"), &Value::Null, 409);
    let second = console.until(&second, &["ended"]);
    assert!(second["began"].as_str() >= stopped["ended"].as_str(), "{second} {stopped}");
}

#[test]
fn run_of_a_terminal_is_waited_for() {
    let _beside = beside_others();
    let world = World::new();
    let console = Console::start(&world);
    let file = world.write("plan.toml", plan("terminal", "1s").replace("workload", "repeats = 50\nworkload"));
    let mut other = world.start(&["run", file.to_str().expect("UTF-8")]);
    other.wait_for("measuring", PATIENCE);
    let job = console.run(&plan("mine", "1s"));
    wait_until("the reason to wait", PATIENCE, || {
        let job = console.get(&format!("/jobs/{job}"));
        job["message"].as_str().is_some_and(|text| text.contains(&other.pid().to_string()))
    });
    other.signal(Signal::SIGINT);
    other.end(PATIENCE);
    console.until(&job, &["ended"]);
}

#[test]
fn jobs_are_for_the_host_of_their_console_whatever_the_variable_says() {
    let _beside = beside_others();
    let world = World::new();
    let mut command = world.command(&["--console", "", "serve", "--listen", "127.0.0.1:0"]);
    // Nothing listens there.
    command.env("KAGIRI_CONSOLE", "http://127.0.0.1:1").env("KAGIRI_TOKEN", "a".repeat(64));
    let console = Console::of(Live::start(command));
    assert!(console.get("/settings").as_array().is_some_and(|all| !all.is_empty()));
    let job = console.run(&plan("here", "1s"));
    let ended = console.until(&job, &["ended", "failed"]);
    assert_eq!(ended["state"], "ended", "{ended}");
}

#[test]
fn killed_server_ends_no_run_and_the_next_one_follows_it() {
    let _beside = beside_others();
    let world = World::new();
    let first = Console::start(&world);
    let job = first.run(&plan("survives", "8s"));
    watched(&first, &job, "").events(|name, _| name == "progress");
    first.end(Signal::SIGKILL);
    let second = Console::start(&world);
    let found = second.get(&format!("/jobs/{job}"));
    assert_eq!(found["state"], "running", "{found}");
    let events = watched(&second, &job, "").events(|name, _| name == "bye");
    assert!(events.iter().any(|(name, ..)| name == "run") && events.iter().any(|(name, ..)| name == "end"));
    let ended = second.until(&job, &["ended"]);
    let list = second.get("/runs");
    assert_eq!((&list["runs"][0]["id"], &list["runs"][0]["state"]), (&ended["run"], &json!("complete")));
    second.end(Signal::SIGKILL);
    // A run that ends while there is no server.
    let third = Console::start(&world);
    let job = third.run(&plan("alone", "1s"));
    watched(&third, &job, "").events(|name, _| name == "progress");
    third.end(Signal::SIGKILL);
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(Console::start(&world).until(&job, &["ended", "failed"])["state"], "ended");
}

#[test]
fn job_that_fails_before_its_run_is_stored_keeps_its_plan_and_names_no_run() {
    let _beside = beside_others();
    let world = World::new();
    let console = Console::start(&world);
    let long = console.run(&(plan("long", "1s") + "\n").replace("workload", "repeats = 100\nworkload"));
    watched(&console, &long, "").events(|name, _| name == "trial");
    let lab = world.write("lab.toml", "name = 'gone'\n[host.a]\n[host.b]\n[[link]]\nbetween = ['a', 'b']\n");
    let toml = format!(
        "# in a lab\nlab = '{}'\n{}[place]\nserver = 'a'\nclients = 'b'\n",
        lab.display(),
        plan("placed", "1s")
    );
    let job = console.run(&toml);
    // Its plan is there from the beginning.
    assert_eq!(console.get(&format!("/jobs/{job}/plan")), json!({ "toml": toml, "tune": null }));
    std::fs::remove_file(&lab).expect("the lab's file");
    console.answered("POST", &format!("/jobs/{long}/stop"), &Value::Null, 202);
    let failed = console.until(&job, &["failed", "ended"]);
    assert_eq!((&failed["state"], &failed["run"]), (&json!("failed"), &Value::Null), "{failed}");
    assert!(failed["message"].as_str().is_some_and(|text| text.contains("lab")), "{failed}");
    assert_eq!(console.get(&format!("/jobs/{job}/plan"))["toml"], toml.as_str());
    console.answered("GET", "/jobs/none/plan", &Value::Null, 404);
    // The plan of a job that continues a run is that of the run.
    let long = console.until(&long, &["interrupted"]);
    let run = long["run"].as_str().expect("a run");
    let resumed = console.answered("POST", "/jobs", &json!({ "resume": run }), 201);
    let id = resumed["id"].as_str().expect("an id");
    let toml = console.get(&format!("/runs/{run}/plan"))["toml"].clone();
    assert_eq!(console.get(&format!("/jobs/{id}/plan"))["toml"], toml);
    console.answered("POST", &format!("/jobs/{id}/stop"), &Value::Null, 202);
    console.until(id, &["interrupted"]);
}

#[test]
fn ready_plans_say_how_long_they_take_as_their_check_does() {
    let world = World::new();
    let console = Console::start(&world);
    let plans = console.get("/plans");
    let plans = plans.as_array().expect("plans");
    assert!(plans.len() > 10, "{}", plans.len());
    for plan in plans {
        let checked = console.answered("POST", "/plans/check", &json!({ "toml": plan["toml"] }), 200);
        // Where a program that the plan needs is missing, there is no check to compare with.
        if checked["valid"] == true {
            assert_eq!(plan["cost_s"], checked["cost_s"], "{}", plan["name"]);
            assert_eq!(plan["cost_words"], checked["cost_words"], "{}", plan["name"]);
        }
        assert!(plan["cost_words"].as_str().is_some_and(|words| words.contains("trial")), "{plan}");
        assert_eq!(plan["cost_s"].is_null(), plan["cost_short"].is_null(), "{plan}");
    }
    let known = plans.iter().filter(|plan| plan["cost_s"].is_number()).count();
    assert!(2 * known > plans.len(), "{known} of {}", plans.len());
}

#[test]
fn run_that_is_stopped_while_it_starts_leaves_no_lab() {
    need_root!();
    let _beside = beside_others();
    let world = World::new();
    let console = Console::start(&world);
    let name = unique_name("it");
    let text = format!("name = '{name}'\n[host.a]\n[host.b]\n[[link]]\nbetween = ['a', 'b']\n");
    let file = world.write("lab.toml", text);
    let plan = format!(
        "lab = '{}'\n{}[place]\nserver = 'a'\nclients = 'b'\n",
        file.display(),
        plan("started", "30s")
    );
    // Before its signal handler is there, while the lab is made, and while the first trial begins.
    for delay_ms in [0, 10, 50, 200, 800] {
        let job = console.run(&plan);
        console.until(&job, &["running"]);
        std::thread::sleep(Duration::from_millis(delay_ms));
        console.answered("POST", &format!("/jobs/{job}/stop"), &Value::Null, 202);
        let stopped = console.until(&job, &["interrupted", "failed", "ended"]);
        assert_eq!(stopped["state"], "interrupted", "after {delay_ms} ms: {stopped}");
        wait_until("the lab's end", PATIENCE, || LabHosts::of(&name).namespaces().is_empty());
    }
    console.end(Signal::SIGINT).code(0);
}
