//! What scripts rely on: one JSON document, exit codes, and that stored runs survive a journey.

use std::fs;
use std::time::Duration;

use kagiri_tests::{World, beside_others, with_verdict, workspace};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(90);
const LIGHT: [&str; 7] = ["stream", "--duration", "20s", "--bitrate", "5Mbit/s", "--hold", "3s"];

/// The document follows the schema that the program itself prints.
fn assert_valid(world: &World, document: &Value) {
    let schema = world.run(&["runs", "schema"]).code(0).json();
    let validator = jsonschema::validator_for(&schema).expect("it is a JSON schema");
    let errors: Vec<String> =
        validator.iter_errors(document).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

#[test]
fn a_measurement_is_one_document_of_the_contract() {
    let _beside = beside_others();
    let world = World::new();
    let words = [&LIGHT[..], &["--streams", "2", "--json", "--require", "capacity>=2"]].concat();
    let (ended, document) = with_verdict("pass", || world.measure(&words, PATIENCE));
    ended.code(0);
    assert_valid(&world, &document);
    assert_eq!(document["schema"], 1);
    assert_eq!(document["workload"], "stream");
    for key in
        ["kagiri", "run", "environment", "plan", "trials", "capacity", "limit", "requirements", "doubts"]
    {
        assert!(!document[key].is_null(), "{key}");
    }
    let trial = &document["trials"][0];
    assert_eq!((trial["load"].as_f64(), trial["verdict"].as_str()), (Some(2.0), Some("pass")));
    for name in [
        "stalls",
        "frames_played",
        "frames_expected",
        "slack_min_s",
        "server_cpu_percent",
        "disk_bit_per_s",
        "network_bit_per_s",
    ] {
        assert!(trial["metrics"][name].is_number(), "{name}: {}", trial["metrics"][name]);
    }
    assert_eq!(trial["metrics"]["stalls"], 0.0);
    assert_eq!(trial["metrics"]["frames_played"], trial["metrics"]["frames_expected"]);
    assert_eq!(document["capacity"]["value"], 2.0);
    assert_eq!(document["capacity"]["unit"], "streams");
    assert!(document["capacity"]["interval"].as_array().is_some_and(|ends| ends.len() == 2));
    assert!(
        ["cpu", "disk", "network", "memory", "player", "none"]
            .contains(&document["limit"]["resource"].as_str().unwrap())
    );
    assert_eq!(document["requirements"][0]["held"], true);
    // Stored as it was printed.
    let stored = world.run(&["runs", "show", "--json"]).code(0).json();
    assert_eq!(stored, document);
}

#[test]
fn a_requirement_that_does_not_hold_is_exit_code_3() {
    let _beside = beside_others();
    let world = World::new();
    let out = world.path("out");
    let words = [
        &LIGHT[..],
        &["--streams", "1", "--json", "--require", "stalls==0", "--require", "slack_min_s>=1000000s"],
    ];
    let words = [&words.concat()[..], &["--out", out.to_str().unwrap(), "--quiet"]].concat();
    let (ended, document) = with_verdict("pass", || world.measure(&words, PATIENCE));
    assert_eq!(ended.code(3).stderr, "", "--quiet");
    let held: Vec<_> =
        document["requirements"].as_array().unwrap().iter().map(|one| one["held"].as_bool()).collect();
    assert_eq!(held, [Some(true), Some(false)]);
    assert!(document["requirements"][1]["measured"].is_number());
    let run = document["run"].as_str().unwrap();
    for end in [".html", ".json", "-trials.csv", "-series.csv"] {
        let file = out.join(format!("{run}{end}"));
        assert!(fs::metadata(&file).is_ok_and(|facts| facts.len() > 100), "{}", file.display());
    }
    let exported: Value =
        serde_json::from_slice(&fs::read(out.join(format!("{run}.json"))).unwrap()).unwrap();
    assert_eq!(exported, document);
}

#[test]
fn a_failure_is_a_document_too() {
    let _beside = beside_others();
    let world = World::new();
    let ended = world.measure(&["stream", "http://127.0.0.1:1/x.ts", "--streams", "1", "--json"], PATIENCE);
    let document = ended.fails(1, &["refused"]).json();
    assert_valid(&world, &document);
    assert_eq!(document["state"], "failed");
    assert!(document["failure"].as_str().unwrap().contains("refused"));
    assert!(document["capacity"]["value"].is_null(), "unknown is not zero");
}

#[test]
fn the_same_seed_asks_for_the_same() {
    let world = World::new();
    let plan = workspace().join("plans/cpu-limited.toml");
    let dry = |seed: &str| {
        world
            .run(&["run", plan.to_str().unwrap(), "--dry-run", "--seed", seed, "--repeat", "2"])
            .code(0)
            .json()
    };
    let (one, two) = (dry("1"), dry("2"));
    assert_eq!(one, dry("1"));
    assert_eq!(
        (one["seed"].as_u64(), two["seed"].as_u64(), one["repeats"].as_u64()),
        (Some(1), Some(2), Some(2))
    );
}

#[test]
fn transfers_and_events_are_documents_of_the_contract() {
    let _beside = beside_others();
    let world = World::new();
    for words in [
        &["transfer", "--direction", "both", "--mode", "discard"][..],
        &["transfer", "--protocol", "udp", "--rate", "50Mbit/s"],
        &["transfer", "--protocol", "quic"],
        &["transfer", "--rr", "64B"],
        &["transfer", "--under-load", "200ms", "--rate", "10Mbit/s"],
        &["daq", "--sources", "20", "--omit", "0s"],
    ] {
        let ended = world.measure(&[words, &["--time", "300ms", "--json"]].concat(), PATIENCE).code(0);
        let document = ended.json();
        assert_valid(&world, &document);
        assert_eq!((&document["schema"], &document["workload"]), (&Value::from(1), &words[0].into()));
        let metrics = &document["trials"][0]["metrics"];
        let moved = ["goodput_bit_per_s", "transactions_per_s", "events_per_s"];
        let moved = moved.iter().filter_map(|name| metrics[*name].as_f64()).fold(0.0, f64::max);
        assert!(moved > 0.0, "{words:?}: {metrics}");
    }
}

/// What a plan resolves to follows the schema of the settings, and what cannot be does not.
#[test]
fn the_schema_of_settings_validates_plans() {
    let world = World::new();
    for (name, wrong) in [
        ("stream", serde_json::json!({ "max": 0 })),
        ("transfer", serde_json::json!({ "protocol": "sctp" })),
        ("daq", serde_json::json!({ "window": 10_001 })),
    ] {
        let schema = world.run(&["plan", "schema", name]).code(0).json();
        let validator = jsonschema::validator_for(&schema).expect("it is a JSON schema");
        world.write("plan.toml", format!("workload = '{name}'\n"));
        let plan = world.run(&["run", "plan.toml", "--dry-run"]).code(0).json();
        let settings = &plan["variants"][0]["settings"];
        let errors: Vec<String> = validator.iter_errors(settings).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
        assert!(!validator.is_valid(&wrong), "{name}: {wrong}");
        assert!(!validator.is_valid(&serde_json::json!({ "colour": "red" })), "{name}");
        let page = world.run(&["plan", "schema", name, "--markdown"]).code(0).stdout;
        assert!(page.starts_with(&format!("# Settings of {name}\n")), "{page}");
    }
}

#[test]
fn every_ready_plan_is_a_plan() {
    let world = World::new();
    let mut seen = 0;
    for entry in fs::read_dir(workspace().join("plans")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let resolved =
                world.measure(&["run", path.to_str().unwrap(), "--dry-run"], PATIENCE).code(0).json();
            let variants = resolved["variants"].as_array().unwrap();
            assert!(!variants.is_empty() && variants.iter().all(|variant| variant["settings"].is_object()));
            seen += 1;
        }
    }
    assert!(seen >= 5, "{seen} plans");
    assert!(!world.data().exists(), "--dry-run touches nothing");
}

fn fixture() -> String {
    fs::read_to_string(workspace().join("tests/fixtures/run.json"))
        .unwrap_or_else(|error| panic!("fixture: {error}"))
}

#[test]
fn a_run_survives_a_journey() {
    let (here, there) = (World::new(), World::new());
    let whole: Value = serde_json::from_str(&fixture()).unwrap();
    let file = here.write("run.json", fixture());
    let id = whole["run"].as_str().unwrap();
    assert_eq!(here.run(&["runs", "import", file.to_str().unwrap()]).code(0).stdout, format!("{id}\n"));
    let again = here.run(&["runs", "import", file.to_str().unwrap()]).code(0).stdout;
    assert!(again.contains("stored already"), "{again}");
    assert_valid(&here, &here.run(&["runs", "show", "--json"]).code(0).json());
    here.run(&["runs", "export", id, "-o", "exported.json"]).code(0);
    let exported = here.path("exported.json");
    there.run(&["runs", "import", exported.to_str().unwrap()]).code(0);
    let (ours, theirs) = (here.run(&["runs", "export"]), there.run(&["runs", "export"]));
    assert_eq!(ours.stdout, theirs.stdout);
    assert_eq!(theirs.json(), whole, "nothing was added or lost");
    for words in
        [&["runs", "show"][..], &["runs", "list"], &["runs", "list", "--json"], &["report", "-o", "-"]]
    {
        assert_eq!(here.run(words).code(0).stdout, there.run(words).code(0).stdout, "{words:?}");
    }
    // The same id with other content is another run, and is refused.
    let other = fixture().replacen("CPU-limited server", "another name", 1);
    let file = here.write("other.json", other);
    here.run(&["runs", "import", file.to_str().unwrap()]).fails(1, &[id]);
    // An exported file can be shown without being imported.
    let shown = World::new().run(&["runs", "show", exported.to_str().unwrap(), "--json"]).code(0);
    assert_eq!(shown.json(), whole);
}

#[test]
fn the_plan_of_a_run_makes_it_again() {
    let world = World::new();
    let file = world.write("run.json", fixture());
    let text = world.run(&["runs", "show", file.to_str().unwrap(), "--plan"]).code(0).stdout;
    world.write("plan.toml", &text);
    let resolved = world.run(&["run", "plan.toml", "--dry-run"]).code(0).json();
    let whole: Value = serde_json::from_str(&fixture()).unwrap();
    assert_holds(&resolved, &whole["plan"], "plan");
}

/// `now` says all that `then` said; a later version may know more settings.
fn assert_holds(now: &Value, then: &Value, place: &str) {
    match (now, then) {
        (Value::Object(now), Value::Object(then)) => {
            for (key, value) in then {
                assert_holds(now.get(key).unwrap_or(&Value::Null), value, &format!("{place}.{key}"));
            }
        }
        (Value::Array(now), Value::Array(then)) => {
            assert_eq!(now.len(), then.len(), "{place}");
            now.iter().zip(then).for_each(|(now, then)| assert_holds(now, then, place));
        }
        _ => assert_eq!(now, then, "{place}"),
    }
}
