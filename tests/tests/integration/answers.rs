//! The answer of every measuring command at its defaults: at most 15 lines of 80 columns, without broken
//! words, and everything with `--full`. `kagiri survey` is in `tests/alone`.

use std::time::Duration;

use kagiri_tests::{Live, World, beside_others, is_root, workspace};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(90);

/// A short film of small rate.
fn film(world: &World) {
    let words = ["content", "make", "film.ts", "--duration", "15s", "--bitrate", "2Mbit/s", "--quiet"];
    world.run(&words).code(0);
}

/// A transfer with two variants.
const PLAN: &str = "workload = 'transfer'\nrepeats = 2\n[transfer]\ntime = '200ms'\nrate = '100Mbit/s'\n\
                    [[variant]]\nname = 'one flow'\n[[variant]]\nname = 'four'\ntransfer.flows = 4\n";

/// A small load of each command.
const COMMANDS: [&[&str]; 13] = [
    &["transfer", "--time", "0.3", "--rate", "100Mbit/s"],
    &["transfer", "--time", "0.3", "--direction", "both", "--flows", "3", "--rate", "10Mbit/s"],
    &["transfer", "--time", "0.3", "--protocol", "udp", "--rate", "50Mbit/s"],
    &["transfer", "--time", "0.3", "--rr"],
    &["transfer", "--time", "0.3", "--under-load", "0.2", "--direction", "both", "--rate", "10Mbit/s"],
    &["transfer", "--time", "0.5", "--rate", "10Mbit/s", "--calls"],
    &["stream", "--content", "film.ts", "--streams", "2", "--time", "2"],
    &["stream", "--content", "film.ts", "--max", "2", "--time", "1", "--confirmations", "1"],
    &["exchange", "--count", "20", "--target", "30s"],
    &["daq", "--sources", "4", "--events", "20"],
    &["files", ".", "--time", "0.5", "--set", "nfiles=50", "--require", "ops_per_s>=1"],
    &["run", "plan.toml", "--require", "goodput>=1kbit/s"],
    &["transfer", "--protocol", "udp", "--search", "20Mbit/s", "--time", "0.2"],
];

fn assert_short(words: &[&str], text: &str) {
    assert!(text.lines().count() <= 15 && !text.is_empty(), "{words:?}:\n{text}");
    // A path that is broken could not be copied.
    let fits = |line: &str| line.chars().count() <= 80 || line.starts_with("Report: ");
    assert!(text.lines().all(fits), "{words:?}:\n{text}");
    let is_zeros = |line: &str| {
        let cells: Vec<&str> = line.split_whitespace().skip(1).collect();
        cells.len() > 2 && cells.iter().all(|cell| cell.chars().all(|c| matches!(c, '0' | '.' | '–')))
    };
    assert!(!text.lines().any(is_zeros), "a row of zeros, {words:?}:\n{text}");
}

#[test]
fn every_measuring_command_answers_in_15_lines_of_80_columns() {
    let _beside = beside_others();
    let world = World::new();
    film(&world);
    world.write("plan.toml", PLAN);
    for words in COMMANDS {
        let ended = world.measure(words, PATIENCE);
        // Others may disturb a verdict, but not the form of an answer.
        assert!(matches!(ended.status.code(), Some(0 | 1 | 3)), "{ended:?}");
        assert_short(words, &ended.stdout);
        assert!(ended.stdout.contains("kagiri runs show "), "where the rest is: {}", ended.stdout);
    }
    // Tracing needs root.
    if is_root() {
        let words = ["timeline", "--quiet", "--", "sh", "-c", "cat /etc/passwd > /dev/null; sleep 0.1"];
        let ended = world.measure(&words, PATIENCE).code(0);
        let last = ended.stdout.lines().rev().take(15).collect::<Vec<_>>().join("\n");
        assert_short(&words, &last);
        assert!(last.contains("--full") && ended.stdout.lines().count() <= 15, "{}", ended.stdout);
    }
}

#[test]
fn explanation_answers_in_15_lines_of_80_columns_and_in_full() {
    let _beside = beside_others();
    let world = World::new();
    let reference = workspace().join("tests/fixtures/reference.csv");
    let reference = reference.to_str().expect("UTF-8");
    let wide: String = (1..=8)
        .map(|load| format!("{load},{},{load},{load},{load},{},{load},0\n", load * 12, load * load))
        .collect();
    let head = "users,cpu %,disk MB/s,network MB/s,memory MB,p99 ms,somebody's own column,errors\n";
    world.write("wide.csv", format!("{head}{wide}"));
    world.write("plan.toml", PLAN);
    world.measure(&["run", "plan.toml"], PATIENCE);
    for words in [
        &["explain", reference][..],
        &["explain", reference, "--ceiling", "disk=110Mbit/s"],
        &["explain", "wide.csv"],
        &["explain", "last"],
    ] {
        let brief = world.run(words).code(0).stdout;
        assert_short(words, &brief);
        assert!(brief.ends_with("Everything: --full\n"), "{brief}");
        let full = world.run(&[words, &["--full"]].concat()).code(0).stdout;
        assert!(full.lines().count() > brief.lines().count(), "{full}");
    }
    let said = world.run(&["explain", reference]).code(0).stdout;
    for part in ["Limited by cpu (predicted)", "exhausted at", "What would help: ", "oubt"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn list_of_ready_programs_has_15_lines_of_80_columns_and_in_full_what_each_does() {
    let world = World::new();
    let words = ["files", "--list"];
    let brief = world.run(&words).code(0).stdout;
    assert_short(&words, &brief);
    let full = world.run(&["files", "--list", "--full"]).code(0).stdout;
    let listed: Vec<&str> = full.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(listed.len(), 47, "{full}");
    for name in listed {
        assert!(brief.split_whitespace().any(|word| word == name), "{name} is not in\n{brief}");
    }
}

#[test]
fn list_and_comparison_of_runs_have_15_lines_of_80_columns() {
    let world = World::new();
    let run: Value = serde_json::from_str(include_str!("../../fixtures/run.json")).expect("a run");
    for number in 10..30 {
        let mut other = run.clone();
        other["run"] = format!("20261121-1200{number}-fixt").into();
        other["started_at"] = format!("2026-11-21T12:00:{number}Z").into();
        for trial in other["trials"].as_array_mut().expect("trials") {
            let cpu = trial["metrics"]["server_cpu_percent"].as_f64().expect("a number");
            trial["metrics"]["server_cpu_percent"] = (cpu * f64::from(number) / 10.0).into();
        }
        let file = world.write("other.json", other.to_string());
        world.run(&["runs", "import", file.to_str().expect("UTF-8")]).code(0);
    }
    let list = world.run(&["runs", "list"]).code(0).stdout;
    assert_short(&["runs", "list"], &list);
    assert!(list.contains("120029-fixt") && list.contains("(10 older runs: "), "{list}");
    assert!(world.run(&["runs", "list", "--all"]).code(0).stdout.lines().count() > 20);
    let words = ["runs", "compare", "20261121-120010-fixt", "last~3", "last~2", "last~1", "last"];
    let compared = world.run(&words).code(0).stdout;
    assert_short(&words, &compared);
    assert!(compared.ends_with("Everything: --full\n"), "{compared}");
    assert!(compared.contains("Capacity: ") && compared.contains(" more pair"), "{compared}");
    let full = world.run(&[&words[..], &["--full"]].concat()).code(0).stdout;
    assert!(full.lines().count() > 15 && !full.contains("--full"), "{full}");
}

#[test]
fn full_answer_has_the_tables_and_a_narrow_one_keeps_its_words() {
    let _beside = beside_others();
    let world = World::new();
    film(&world);
    let words = ["stream", "--content", "film.ts", "--max", "2", "--time", "1", "--confirmations", "1"];
    let full = world.measure(&[&words[..], &["--full"]].concat(), PATIENCE).code(0).stdout;
    assert!(full.lines().count() > 15 && full.contains("verdict"), "{full}");
    let mut command = world.command(&words);
    command.env("COLUMNS", "50");
    let narrow = Live::start(command).end(PATIENCE).code(0).stdout;
    let fits = |line: &str| line.chars().count() <= 50 || line.starts_with("Report: ");
    assert!(narrow.lines().all(fits) && narrow.lines().count() <= 15, "{narrow}");
    assert!(narrow.contains("streams of"), "{narrow}");
}

#[test]
fn json_lines_follow_a_search_and_are_all_of_standard_output() {
    let _beside = beside_others();
    let world = World::new();
    film(&world);
    let words = ["stream", "--content", "film.ts", "--max", "2", "--time", "2", "--confirmations", "1"];
    let mut live = world.start(&[&words[..], &["--json-lines"]].concat());
    live.wait_for("\"event\":\"trial\"", PATIENCE);
    assert!(live.is_running(), "a trial is written when it ends, not at the end of the run");
    let ended = live.end(PATIENCE).code(0);
    let read = |line: &str| -> Value { serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")) };
    let lines: Vec<Value> = ended.stdout.lines().map(read).collect();
    let events: Vec<&str> = lines.iter().filter_map(|line| line["event"].as_str()).collect();
    assert_eq!((events.first(), events.last()), (Some(&"run"), Some(&"end")), "{events:?}");
    assert!(events.contains(&"trial_began") && events.contains(&"progress"), "{events:?}");
    let id = lines[0]["run"].as_str().expect("an id");
    assert!(lines.iter().all(|line| line["run"] == id), "{}", ended.stdout);
    let stored = world.run(&["runs", "show", id, "--json"]).code(0).json();
    let trials: Vec<&Value> = lines.iter().filter(|line| line["event"] == "trial").collect();
    assert_eq!(trials.len(), stored["trials"].as_array().expect("trials").len());
    assert_eq!(trials[0]["trial"]["metrics"], stored["trials"][0]["metrics"]);
    let end = lines.last().expect("the end");
    assert_eq!((&end["state"], &end["variants"][0]["capacity"]), (&stored["state"], &stored["capacity"]));
    world.run(&[&words[..], &["--json", "--json-lines"]].concat()).fails(2, &["--json-lines=FILE"]);
}

#[test]
fn quick_search_answers_within_a_minute_and_says_that_it_is_less_sure() {
    let _beside = beside_others();
    let world = World::new();
    film(&world);
    let began = std::time::Instant::now();
    let ended = world.measure(&["stream", "--content", "film.ts", "--quick", "--max", "100"], PATIENCE);
    assert!(matches!(ended.status.code(), Some(0 | 1)), "{ended:?}");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}\n{}", began.elapsed(), ended.stderr);
    assert_short(&["stream", "--quick"], &ended.stdout);
    let said = ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("a quick search: ") && said.contains("without --quick"), "{said}");
    let run = world.run(&["runs", "show", "last", "--json"]).code(0).json();
    let phases = run["trials"].as_array().expect("trials").iter().map(|trial| trial["phase"].as_str());
    assert!(phases.into_iter().all(|phase| phase != Some("ramp-down")), "{run}");
}
