//! Wrong words from the user: each one clear message that names the place, and the right exit code.

use std::time::Duration;

use kagiri_tests::{World, workspace};

const PATIENCE: Duration = Duration::from_secs(30);
const HEAD: &str = "schema = 1\nname = 'x'\nworkload = 'stream'\n";

#[test]
fn a_plan_that_cannot_be_is_refused_with_its_line() {
    let world = World::new();
    for (text, line, parts) in [
        (
            "[stream]\nbitrate = '25Mbit/s'\nholdd = '3s'\n",
            6,
            &["stream.holdd: unknown key; did you mean 'hold'?"][..],
        ),
        (
            "[stream.server]\nkind = 'embedded'\ncost = 3\n",
            6,
            &["stream.server.cost: unknown key", "cost_ns_per_byte"],
        ),
        ("[stream]\nbitrate = '25'\n", 5, &["bitrate", "unit is missing", "25Mbit/s"]),
        ("[stream]\nmax = 3\nhold = '10MB'\n", 6, &["hold", "10MB", "not a time"]),
        ("[stream]\nbitrate = '-25Mbit/s'\n", 5, &["bitrate", "must not be negative"]),
        ("[stream]\nhold = '0s'\n", 5, &["hold", "not within 1s"]),
        ("[stream]\nmax = 0\n", 5, &["max", "not within 1"]),
        ("[stream]\nmax = 'many'\n", 5, &["max", "many", "invalid type"]),
        ("[stream.server]\nthreads = 5000\n", 5, &["threads", "5000", "not within"]),
        ("[stream.ceiling]\ndisk = '1bit/s'\n", 5, &["ceiling.disk", "not within"]),
        ("repeats = 0\n", 4, &["repeats", "not within"]),
        ("speed = 3\n", 4, &["unknown key", "speed"]),
        ("[[variant]]\nname = 'a'\nbitrate = '3Mbit/s'\n", 6, &["unknown key", "bitrate", "variant 'a'"]),
        ("require = ['capacity>']\n", 4, &["require", "capacity>"]),
        ("[stream\n", 4, &[]),
        ("repeats = \n", 4, &[]),
    ] {
        let text = format!("{HEAD}{text}");
        world.write("plan.toml", &text);
        for words in [&["run", "plan.toml"][..], &["run", "plan.toml", "--dry-run"]] {
            let ended = world.measure(words, PATIENCE);
            let place = format!("plan.toml:{line}: ");
            ended.fails(2, &[&[place.as_str()][..], parts].concat());
        }
    }
    assert!(!world.data().exists(), "a refused plan touches nothing");
}

#[test]
fn a_plan_of_another_kind_is_refused() {
    let world = World::new();
    for (text, parts) in [
        ("schema = 99\nworkload = 'stream'\n", &["plan.toml:1:", "schema 99", "update kagiri"][..]),
        ("workload = 'strem'\n", &["plan.toml:1:", "no workload 'strem'", "stream"]),
        (
            "workload = 'dqa'\n[daq]\nsources = 5\n",
            &["plan.toml:1:", "no workload 'dqa'", "stream, transfer, exchange, daq"],
        ),
        ("name = 'x'\n", &["plan.toml", "workload"]),
        ("\u{0}\u{1}\n", &["plan.toml:1:"]),
        ("", &["plan.toml", "workload"]),
    ] {
        world.write("plan.toml", text);
        world.measure(&["run", "plan.toml"], PATIENCE).fails(2, parts);
    }
    std::fs::write(world.path("plan.toml"), [0xff, 0xfe, 0x00]).unwrap();
    world.measure(&["run", "plan.toml"], PATIENCE).fails(2, &["plan.toml", "UTF-8"]);
    world.measure(&["run", "missing.toml"], PATIENCE).fails(2, &["missing.toml", "No such file"]);
    world.measure(&["run", "."], PATIENCE).fails(2, &["cannot read the plan"]);
}

#[test]
fn a_requirement_that_cannot_be_checked_is_refused_before_anything_is_measured() {
    let world = World::new();
    for (requirement, parts) in [
        ("speed>=3", &["speed>=3", "no metric 'speed'", "slack_min_s"][..]),
        ("capacity", &["capacity", "'capacity>=4' or 'slack_min>=500ms'"]),
        ("capacity>=", &["capacity>="]),
        ("slack_min_s>=many", &["many"]),
        ("", &["requirement"]),
    ] {
        let words = ["stream", "--streams", "1", "--hold", "2s", "--require", requirement];
        let ended = world.measure(&words, PATIENCE).fails(2, parts);
        assert!(!ended.stderr.contains("making") && !ended.stderr.contains("pass"), "{}", ended.stderr);
    }
    assert!(!world.path("data/content").exists(), "no content was made");
    assert!(world.run(&["runs", "list"]).code(0).stdout.contains("no runs"), "and no run begun");
}

#[test]
fn a_command_line_that_cannot_be_is_refused() {
    let world = World::new();
    for (words, parts) in [
        (&["stream", "--bitrat", "1"][..], &["--bitrat", "--bitrate"][..]),
        (&["stream", "--search-hol", "2s"], &["a similar argument exists: '--search-time'"]),
        (&["strem"], &["strem", "stream"]),
        (&["stream", "--hold", "3x"], &["'3x'", "the unit 'x'", "10s"]),
        (&["stream", "--hold", "0s"], &["--time: 0s is not within 1s to 24h"]),
        (&["stream", "--time", "0s"], &["--time: 0s is not within 1s to 24h"]),
        (&["plan", "schema", "strem"], &["strem", "stream", "transfer", "daq"]),
        (&["stream", "--bitrate", "fast"], &["fast"]),
        (&["stream", "--depth", "deep"], &["deep", "discard", "parse"]),
        (&["stream", "--max", "-1"], &["-1"]),
        (&["stream", "--streams", "1", "--max", "2"], &["--streams", "--max"]),
        (&["stream", "http://127.0.0.1/x.ts", "--content", "x.ts"], &["--content"]),
        (&["stream", "http://127.0.0.1/x.ts", "--codec", "h264"], &["--codec", "cannot be used with", "URL"]),
        (&["stream", "http://127.0.0.1/x.ts", "--duration", "60s"], &["--duration", "cannot be used with"]),
        (&["stream", "http://127.0.0.1/x.ts", "--cbr"], &["--cbr", "cannot be used with"]),
        (&["stream", "http://127.0.0.1/x.ts", "--server", "nginx"], &["--server", "cannot be used with"]),
        (
            &["stream", "--content", "x.ts", "--codec", "h264"],
            &["--codec", "cannot be used with", "--content"],
        ),
        (&["stream", "--content", "x.ts", "--duration", "60s"], &["--duration", "cannot be used with"]),
        (&["stream", "--content", "x.ts", "--cbr"], &["--cbr", "cannot be used with"]),
        (&["stream", "--repeat", "0"], &["0"]),
        (&["stream", "--ceiling", "disc=3"], &["disc=3", "not a resource", "disk"]),
        (&["stream", "--ceiling", "disk=3"], &["disk=3", "unit is missing"]),
        (&["content", "make", "a.ts", "--bitrate", "25"], &["'25'", "unit is missing"]),
        (&["content", "make", "a.ts", "--duration", "0s"], &["0 s", "out of range"]),
        (&["content", "make", "a.ts", "--bitrate", "100kbit/s"], &["too little", "at least"]),
        (&["content", "make", "a.ts", "--codec", "av1"], &["av1", "mpeg2"]),
        (&["content", "serve", "--listen", "127.0.0.1:99999"], &["127.0.0.1:99999"]),
        (&["content", "serve", "--threads", "0"], &["0"]),
        (&["content", "serve", "--listen", "0.0.0.0:0"], &["0.0.0.0:0", "--open"]),
        (&["content", "serve", "--listen", "[::]:0"], &["[::]:0", "--open"]),
        (&["explain"], &["TABLE.csv"]),
        (&["runs", "compare"], &["RUNS"]),
    ] {
        world.measure(words, PATIENCE).fails(2, parts);
    }
    assert!(!world.path("a.ts").exists() && !world.path("a.ts.kgi").exists());
    let nothing = world.run(&[]).code(2);
    assert!(nothing.stderr.contains("Usage: kagiri"), "{}", nothing.stderr);
}

#[test]
fn an_address_that_cannot_be_is_refused_before_anything_is_begun() {
    let world = World::new();
    for (url, part) in [
        ("nas/film.ts", "http:// is missing"),
        ("https://nas/film.ts", "https is not supported"),
        ("http://nas:99999/film.ts", "nas:99999"),
    ] {
        let ended = world.measure(&["stream", url], PATIENCE).fails(2, &[url, part]);
        let others = ["trial", "preparing", "server", " on here"];
        assert!(others.iter().all(|words| !ended.stderr.contains(words)), "{}", ended.stderr);
    }
    assert!(!world.data().exists(), "nothing is stored of it");
}

/// What failed before anything was measured is kept, but is not what `last` means.
#[test]
fn a_run_without_a_trial_is_kept_and_is_not_the_last() {
    let world = World::new();
    let ended = world.measure(&["stream", "http://127.0.0.1:1/x.ts", "--streams", "1"], PATIENCE);
    assert!(!ended.fails(1, &["refused"]).stderr.contains("on here"));
    let listed = world.run(&["runs", "list"]).code(0).stdout;
    assert!(listed.contains("1 run that failed before a trial was made"), "{listed}");
    let listed = world.run(&["runs", "list", "--all"]).code(0).stdout;
    assert!(listed.contains(" failed "), "{listed}");
    for words in [&["runs", "show"][..], &["report"]] {
        world.measure(words, PATIENCE).fails(2, &["no run 'last'", "at least one trial"]);
    }
    world.import_fixture();
    world.run(&["runs", "show", "last"]).code(0);
}

/// The contract lets scripts give --bitrate with a URL; it must not be ignored without a word.
#[test]
fn a_rate_for_content_that_is_given_is_answered() {
    let world = World::new();
    let url = "http://127.0.0.1:1/x.ts";
    let words = ["stream", url, "--bitrate", "5Mbit/s", "--streams", "1", "--hold", "2s"];
    let note = "--bitrate 5Mbit/s makes no content here";
    world.measure(&words, PATIENCE).fails(1, &[note, url, "refused"]);
    let without = world.measure(&["stream", url, "--streams", "1", "--hold", "2s"], PATIENCE);
    assert!(!without.stderr.contains("--bitrate"), "{}", without.stderr);
}

#[test]
fn a_table_with_a_bad_row_is_refused_with_line_and_column() {
    let world = World::new();
    for (text, parts) in [
        ("streams,cpu %\n1,13\n2,abc\n", &["line 3", "column 'cpu %'", "'abc'", "27.2"][..]),
        ("streams,cpu %\n1,13\n\n# so far\n2,-4\n", &["line 5", "cpu %", "-4"]),
        ("streams,cpu %,disk\n1,13,2\n", &["line 2", "column 'disk'", "unit is missing"]),
        ("streams,disk Mb/s\n1,13\n", &["Mb/s"]),
        ("streams,cpu %\n1,13,14\n", &["line 2"]),
        ("streams,cpu %\nmany,13\n", &["line 2", "streams", "many"]),
        ("streams,cpu %,cpu usage %\n1,2,3\n", &["cpu"]),
        ("a,b\n1,2\n", &["line 1", "no load column"]),
        ("streams,colour\n1,red\n", &["line 1", "no resource column"]),
        ("", &["table.csv"]),
    ] {
        world.write("table.csv", text);
        let ended = world.measure(&["explain", "table.csv"], PATIENCE).fails(2, parts);
        assert!(ended.stderr.contains("table.csv") && ended.stdout.is_empty(), "{ended:?}");
    }
    world.write("table.csv", [0xff, 0xfe, 0x80, b'\n']);
    world.measure(&["explain", "table.csv"], PATIENCE).fails(2, &["table.csv"]);
    world.measure(&["explain", "missing.csv"], PATIENCE).fails(2, &["missing.csv", "No such file"]);
    let table = workspace().join("tests/fixtures/reference.csv");
    let words = ["explain", table.to_str().unwrap(), "--ceiling", "disk=110"];
    world.measure(&words, PATIENCE).fails(2, &["disk=110", "unit is missing", "110Mbit/s"]);
}

#[test]
fn runs_that_are_not_there_are_named() {
    let world = World::new();
    for (words, part) in [
        (&["runs", "show", "20200101"][..], "20200101"),
        (&["runs", "show"], "no run"),
        (&["runs", "compare", "last", "last~1"], "no run"),
        (&["report", "nothing"], "nothing"),
        (&["runs", "export", "nothing"], "nothing"),
    ] {
        world.measure(words, PATIENCE).fails(2, &[part]);
    }
}

#[test]
fn an_import_that_is_no_run_is_refused_with_its_place() {
    let world = World::new();
    let fixture = std::fs::read_to_string(workspace().join("tests/fixtures/run.json")).unwrap();
    let newer = fixture.replacen("\"schema\":1", "\"schema\":99", 1);
    let negative = fixture.replacen("\"number\":1,", "\"number\":-1,", 1);
    assert!(newer != fixture && negative != fixture, "the fixture has these words");
    for (name, text, parts) in [
        ("cut.json", &fixture[..fixture.len() / 2], &["cut off", "line 1"][..]),
        ("cut-end.json", &fixture.trim_end()[..fixture.trim_end().len() - 1], &["cut off"]),
        ("empty.json", "", &["not an exported run"]),
        ("garbage.json", "\u{1}\u{2}garbage", &["not an exported run", "line 1"]),
        ("other.json", "{\"schema\":1,\"colour\":\"red\"}", &["not an exported run"]),
        ("newer.json", &newer, &["schema 99"]),
        ("negative.json", &negative, &["not an exported run", "`-1`", "line 1"]),
    ] {
        world.write(name, text);
        world.measure(&["runs", "import", name], PATIENCE).fails(2, &[&[name][..], parts].concat());
    }
    world.measure(&["runs", "import", "missing.json"], PATIENCE).fails(2, &["missing.json", "No such file"]);
    assert!(world.run(&["runs", "list"]).code(0).stdout.contains("no runs"));
}
