//! What becomes of runs that were killed, removed, that a stranger wrote, or that have nothing in common.

use std::fs;
use std::time::Duration;

use kagiri_tests::{World, beside_others, wait_until, workspace};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

fn fixture() -> Value {
    let text = fs::read_to_string(workspace().join("tests/fixtures/run.json")).expect("the fixture");
    serde_json::from_str(&text).expect("JSON")
}

fn import(world: &World, name: &str, run: &Value) {
    let file = world.write(name, run.to_string());
    world.run(&["runs", "import", file.to_str().expect("UTF-8")]).code(0);
}

#[test]
fn load_test_with_errors_and_a_latency_bend_is_explained() {
    let world = World::new();
    let rows = "20,21,3,0\n40,41,3,0\n60,60,3,0\n70,71,4,0\n80,81,80,12\n";
    let file = world.write("users.csv", format!("users,cpu_pct,p99_ms,errors\n{rows}"));
    let said = world.run(&["explain", file.to_str().expect("UTF-8")]).code(0).stdout;
    assert!(said.starts_with("Carries 70 users"), "{said}");
    assert!(!said.contains("Carries 98") && !said.contains("Carries 99"), "{said}");
    let blind: String = rows.lines().map(|row| row.rsplit_once(',').unwrap().0.to_owned() + "\n").collect();
    let file = world.write("blind.csv", format!("users,cpu_pct,p99_ms\n{blind}"));
    let said = world.run(&["explain", "--full", file.to_str().expect("UTF-8")]).code(0).stdout;
    assert!(said.starts_with("Predicted capacity: from 70 users to less than 80 users"), "{said}");
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("p99_ms was 80 ms, 3 ms at lower loads"), "{said}");
}

#[test]
fn killed_run_shows_what_is_stored() {
    let world = World::new();
    let mut killed = fixture();
    for (key, value) in [
        ("state", json!("running")),
        ("ended_at", Value::Null),
        ("variants", json!([])),
        ("saturation", json!({})),
        ("limit", json!({"resource": "none", "certainty": "unknown", "evidence": []})),
    ] {
        killed[key] = value;
    }
    killed["capacity"]["value"] = Value::Null;
    import(&world, "killed.json", &killed);
    for words in [["runs", "show"], ["explain", "last"]] {
        let said = world.run(&words).code(0).stdout;
        assert!(said.starts_with("Interrupted; 12 trials finished."), "{said}");
        assert!(said.contains("arries 5 streams") && !said.contains("no trial was judged"), "{said}");
    }
    // The list has the result that `show` has.
    let list = world.run(&["runs", "list"]).code(0).stdout;
    assert!(list.contains("interrupted, 5 streams") && list.contains(" cpu"), "{list}");
    let listed = world.run(&["runs", "list", "--json"]).code(0).json();
    let summary = json!([listed[0]["state"], listed[0]["capacity"], listed[0]["interval"]]);
    assert_eq!(summary, json!(["interrupted", 5.0, [5.0, 5.0]]), "{listed}");
}

/// The ids of the stored runs.
fn ids(world: &World) -> Vec<String> {
    let listed = world.run(&["runs", "list", "--json"]).code(0).json();
    let ids = listed.as_array().expect("a list").iter();
    ids.map(|summary| summary["run"].as_str().expect("an id").to_owned()).collect()
}

#[test]
fn runs_are_removed_by_name_and_by_age() {
    let world = World::new();
    for day in 20..=24 {
        let mut run = fixture();
        run["run"] = json!(format!("202011{day}-120000-fixt"));
        run["started_at"] = json!(format!("2020-11-{day}T12:00:00Z"));
        import(&world, "run.json", &run);
    }
    let id = |day: u32| format!("202011{day}-120000-fixt");
    world.run(&["runs", "rm"]).fails(2, &["RUN"]);
    world.run(&["runs", "rm", "2020112"]).fails(2, &["could mean"]);
    world.run(&["runs", "rm", &id(20), "nothing"]).fails(2, &["there is no run 'nothing'"]);
    world.run(&["runs", "rm", "--older-than=-1d"]).fails(2, &["30d"]);
    assert_eq!(ids(&world).len(), 5, "if one cannot be removed, none is");

    let report = world.data().join("reports").join(format!("{}.html", id(24)));
    fs::create_dir_all(report.parent().unwrap()).unwrap();
    fs::write(&report, "a page").unwrap();
    // The last and the one before it, the second time by its name, and one by a prefix.
    let said = world.run(&["runs", "rm", "last", "last~1", &id(23), "20201120"]).code(0).stdout;
    assert!(said.contains(&format!("removed {} and its report (", id(24))), "{said}");
    assert!(said.contains(&format!("removed {} (", id(23))) && said.contains("12 trials"), "{said}");
    assert_eq!((said.lines().count(), ids(&world)), (3, vec![id(22), id(21)]));
    assert!(!report.exists());

    let mut new = fixture();
    new["started_at"] = json!("2099-11-21T12:00:00Z");
    import(&world, "new.json", &new);
    let said = world.run(&["runs", "rm", "--older-than", "1h"]).code(0).stdout;
    assert_eq!(said.lines().count(), 2, "{said}");
    assert_eq!(ids(&world), ["20261121-120000-fixt"], "the new one stays");
    let said = world.run(&["runs", "rm", "--older-than", "1h"]).code(0).stdout;
    assert_eq!(said, "There are no runs that old.\n");
}

#[test]
fn run_that_a_living_process_measures_is_not_removed() {
    let _beside = beside_others();
    let world = World::new();
    let mut live = world.start(&["transfer", "--rate", "1Mbit/s", "--time", "60s"]);
    live.wait_for("measuring", Duration::from_secs(30));
    let id = ids(&world).remove(0);
    world.run(&["runs", "rm", &id]).fails(1, &[&live.pid().to_string(), "still measures"]);
    let said = world.run(&["runs", "rm", "--older-than", "0s"]).code(0).stdout;
    assert_eq!(said, "There are no runs that old.\n", "it is left out");
    live.signal(Signal::SIGKILL);
    wait_until("it has ended", Duration::from_secs(10), || !live.is_running());
    world.run(&["runs", "rm", &id]).code(0);
    assert_eq!(ids(&world), [""; 0]);
    let pid = live.end(Duration::from_secs(10)).pid;
    world.run(&["undo"]).code(0);
    world.assert_nothing_left(pid);
}

#[test]
fn runs_of_different_workloads_are_not_compared() {
    let world = World::new();
    world.import_fixture();
    let mut other = fixture();
    (other["run"], other["workload"]) = ("20261121-130000-othr".into(), "transfer".into());
    import(&world, "other.json", &other);
    let words = ["runs", "compare", "20261121-120000-fixt", "20261121-130000-othr"];
    world.run(&words).fails(2, &["different workloads", "(stream)", "(transfer)"]);
}

#[test]
fn reading_runs_makes_no_folder() {
    let world = World::new();
    let data = world.path("nowhere");
    let run = |words: &[&str]| world.command(words).env("KAGIRI_DATA", &data).output().unwrap();
    assert!(run(&["runs", "list"]).status.success());
    assert_eq!(run(&["runs", "list", "--json"]).stdout, b"[]\n");
    assert_eq!(run(&["runs", "show"]).status.code(), Some(2));
    assert!(!data.exists());
}

/// An import may take some times its size of memory, and not hundreds of bytes for each byte.
#[test]
fn import_of_hostile_json_is_refused_in_bounded_memory() {
    let world = World::new();
    let mut run = fixture();
    for (item, key) in [("[]", "environment"), ("{}", "environment"), ("1", "plan"), ("\"\"", "plan")] {
        run[key] = json!({"x": 0});
        let list = format!("[{item}{}]", format!(",{item}").repeat((40 << 20) / (item.len() + 1)));
        let text = run.to_string().replace("{\"x\":0}", &format!("{{\"x\":{list}}}"));
        let file = world.write("big.json", text);
        let command = world.command(&["runs", "import", file.to_str().expect("UTF-8")]);
        // Address space: the document of 40 MB is read as a whole; the runtime and its threads take the rest.
        let mut limited = std::process::Command::new("prlimit");
        limited.arg(format!("--as={}", 512u64 << 20)).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => limited.env(name, value),
                None => limited.env_remove(name),
            };
        }
        let ended = limited.output().unwrap();
        let error = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{item}: {error}");
        assert!(error.contains("far more memory than its size"), "{item}: {error}");
    }
}
