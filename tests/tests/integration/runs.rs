//! What becomes of runs that were killed, that a stranger wrote, or that have nothing in common.

use std::fs;

use kagiri_tests::{World, workspace};
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
    let said = world.run(&["explain", file.to_str().expect("UTF-8")]).code(0).stdout;
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
