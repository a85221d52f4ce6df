//! Places that do not let kagiri work: full disks, missing rights, files of other programs. Nothing that was
//! stored is lost, nothing is left behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use kagiri_tests::{
    Live, SmallDisk, World, beside_others, names, need_programs, need_root, valid, workspace,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// Make a short film of low rate for a world.
fn film(world: &World) {
    let words = ["content", "make", "film.ts", "--duration", "15s", "--bitrate", "5Mbit/s", "--quiet"];
    world.run(&words).code(0);
}

#[test]
fn a_full_disk_while_making_content() {
    need_root!();
    let world = World::new();
    let _small = SmallDisk::mount(&world.path("small"), 8 << 20);
    let words = ["content", "make", "small/film.ts", "--duration", "60s"];
    // The space is checked first: a full disk would fail the writers of other files meanwhile.
    let no_space = ["small/film.ts", "no space left", "after 0 of ", "free some space"];
    world.measure(&words, PATIENCE).fails(1, &no_space);
    assert_eq!(names(&world.path("small")), [""; 0], "nothing was left");
    // What was there stays when it cannot be replaced, and when nobody asked to replace it.
    let short = ["content", "make", "small/film.ts", "--duration", "5s", "--bitrate", "2Mbit/s"];
    world.run(&short).code(0);
    let before = fs::read(world.path("small/film.ts")).unwrap();
    world.measure(&[&words[..], &["--replace"]].concat(), PATIENCE).fails(1, &["no space left"]);
    let other = [&short[..], &["--seed", "2"]].concat();
    world.run(&other).fails(2, &["small/film.ts exists", "--replace"]);
    assert!(fs::read(world.path("small/film.ts")).unwrap() == before, "the old film is whole");
    world.run(&[&other[..], &["--replace"]].concat()).code(0);
    assert!(fs::read(world.path("small/film.ts")).unwrap() != before, "the film is another one");
    world.run(&["content", "make", "/dev/null", "--replace"]).fails(2, &["/dev/null is no regular file"]);
}

#[test]
fn a_full_disk_while_a_plan_makes_its_content() {
    need_root!();
    let _beside = beside_others();
    let world = World::new();
    let small = world.path("small");
    let _small = SmallDisk::mount(&small, 8 << 20);
    let mut command = world.command(&["stream", "--streams", "1", "--hold", "2s"]);
    command.env("KAGIRI_DATA", &small);
    let ended = Live::start(command).end(PATIENCE);
    world.assert_nothing_left(ended.pid);
    ended.fails(1, &["no space left"]);
    assert!(names(&small.join("content")).is_empty(), "{:?}", names(&small.join("content")));
}

#[test]
fn a_full_disk_while_storing_results_loses_no_finished_trial() {
    need_root!();
    let _beside = beside_others();
    let world = World::new();
    film(&world);
    let small = world.path("small");
    let disk = SmallDisk::mount(&small, 4 << 20);
    let command = |words: &[&str]| {
        let mut command = world.command(words);
        command.env("KAGIRI_DATA", &small);
        command
    };
    let words = ["stream", "--content", "film.ts", "--max", "16", "--hold", "2s"];
    let mut live = Live::start(command(&words));
    // The first trial is stored when its line is written; then the disk fills up.
    live.wait_for("1 stream   ", PATIENCE);
    let ballast = disk.fill();
    let ended = live.end(PATIENCE);
    world.assert_nothing_left(ended.pid);
    let announced = ended.trials_shown();
    ended.fails(1, &["disk is full", "KAGIRI_DATA"]);
    fs::remove_file(ballast).unwrap();
    let shown = Live::start(command(&["runs", "show", "--json"])).end(PATIENCE).code(0).json();
    let stored = shown["trials"].as_array().unwrap().len();
    assert!(stored >= 1 && stored >= announced, "{announced} trials were shown, {stored} are stored");
    assert!(["failed", "interrupted"].contains(&shown["state"].as_str().unwrap()), "{}", shown["state"]);
}

#[test]
fn a_report_that_cannot_be_written_loses_nothing() {
    need_root!();
    let world = World::new();
    world.import_fixture();
    let disk = SmallDisk::mount(&world.path("small"), 64 << 10);
    disk.fill();
    for words in [&["report", "-o", "small/report.html"][..], &["runs", "export", "-o", "small/run.json"]] {
        world.measure(words, PATIENCE).fails(1, &["small/", "No space left"]);
        assert_eq!(names(&world.path("small")), ["ballast"], "no half file");
    }
}

/// A survey measures for minutes: what would make its result useless is said before.
#[test]
fn a_survey_that_cannot_keep_its_results_measures_nothing() {
    let world = World::new();
    let file = world.write("file", "no folder");
    let started = |words: &[&str], data: &std::path::Path| {
        let mut command = world.command(&[&["survey"], words].concat());
        command.env("KAGIRI_DATA", data);
        let ended = Live::start(command).end(PATIENCE);
        world.assert_nothing_left(ended.pid);
        assert!(!ended.stderr.contains("1 of 6"), "nothing was measured: {}", ended.stderr);
        ended
    };
    started(&[], &file.join("data")).fails(1, &[file.to_str().unwrap(), "KAGIRI_DATA"]);
    let below = file.join("out");
    started(&["--out", below.to_str().unwrap()], &world.data()).fails(2, &["--out", file.to_str().unwrap()]);
    started(&["--require", "speed>=3"], &world.data()).fails(2, &["no metric 'speed'"]);
    need_root!();
    let small = world.path("small");
    let disk = SmallDisk::mount(&small, 4 << 20);
    // Once there are results, a full disk is not seen by opening them.
    let mut command = world.command(&["runs", "list"]);
    command.env("KAGIRI_DATA", &small);
    Live::start(command).end(PATIENCE).code(0);
    let ballast = disk.fill();
    started(&[], &small).fails(1, &["disk is full", "KAGIRI_DATA"]);
    fs::remove_file(ballast).unwrap();
    assert!(names(&small).iter().all(|name| name.starts_with("runs.sqlite")), "{:?}", names(&small));
}

#[test]
fn a_place_for_results_that_cannot_be_written() {
    let world = World::new();
    let file = world.write("file", "no folder");
    for place in [file.join("data"), "/proc/kagiri".into()] {
        // What reads finds no runs where there is no folder.
        let reads = place.starts_with(&file).then_some(&["runs", "list"][..]);
        for words in reads.into_iter().chain([&["stream", "--streams", "1", "--hold", "2s"][..]]) {
            let mut command = world.command(words);
            command.env("KAGIRI_DATA", &place);
            Live::start(command).end(PATIENCE).fails(1, &[place.to_str().unwrap(), "KAGIRI_DATA"]);
        }
    }
    need_root!();
    need_programs!("setpriv");
    let world = World::of_nobody();
    fs::remove_dir(world.data()).unwrap();
    fs::create_dir(world.data()).unwrap();
    world
        .measure(&["transfer", "--time", "1s"], PATIENCE)
        .fails(1, &["data", "Permission denied", "writable"]);
    world
        .run(&["content", "make", "data/film.ts", "--duration", "5s"])
        .fails(1, &["data/film.ts", "Permission denied"]);
}

#[test]
fn without_root_a_plan_that_needs_it_says_so() {
    need_root!();
    need_programs!("setpriv");
    let _beside = beside_others();
    let world = World::of_nobody();
    world.write("lab.toml", "name = 'mine'\n[host.server]\n");
    let plan = "workload = 'stream'\nlab = 'lab.toml'\n[place]\nserver = 'server'\nviewers = 'server'\n\
                [stream]\nstreams = 1\nhold = '2s'\n";
    world.write("plan.toml", plan);
    world.measure(&["run", "plan.toml"], PATIENCE).fails(1, &["lab", "root"]);
}

#[test]
fn without_root_everything_else_works() {
    need_root!();
    need_programs!("setpriv");
    let _beside = beside_others();
    let world = World::of_nobody();
    film(&world);
    let words = ["stream", "--content", "film.ts", "--cold", "--streams", "1", "--hold", "2s", "--json"];
    let (ended, document) = valid(|| world.measure(&words, PATIENCE));
    ended.code(0);
    assert_eq!(document["environment"]["root"], false);
    assert!(
        document["trials"][0]["metrics"]["server_cpu_percent"].is_number(),
        "its own child can be watched"
    );
    world.measure(&["undo"], PATIENCE).code(0);
}

#[test]
fn results_of_a_newer_kagiri_are_left_alone() {
    let world = World::new();
    world.import_fixture();
    let file = world.path("data/runs.sqlite");
    let database = rusqlite::Connection::open(&file).unwrap();
    database.pragma_update(None, "user_version", 99).unwrap();
    drop(database);
    let before = fs::read(&file).unwrap();
    let fixture = workspace().join("tests/fixtures/run.json");
    for words in [
        &["runs", "list"][..],
        &["runs", "import", fixture.to_str().unwrap()],
        &["stream", "--streams", "1", "--hold", "2s"],
    ] {
        world
            .measure(words, PATIENCE)
            .fails(1, &["runs.sqlite", "layout 99", "newer kagiri", "left as it is"]);
        assert!(fs::read(&file).unwrap() == before, "{words:?} touched it");
    }
}

#[test]
fn results_that_are_damaged_are_left_alone() {
    let whole = {
        let world = World::new();
        world.import_fixture();
        fs::read(world.path("data/runs.sqlite")).unwrap()
    };
    assert!(whole.len() > 8192, "{}", whole.len());
    for (what, bytes) in [
        ("truncated", whole[..whole.len() / 2].to_vec()),
        ("garbage", vec![0x5a; 20_000]),
        ("a stub", whole[..50].to_vec()),
    ] {
        let world = World::new();
        fs::create_dir(world.data()).unwrap();
        let file = world.write("data/runs.sqlite", &bytes);
        fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        for words in [&["runs", "show"][..], &["stream", "--streams", "1", "--hold", "2s"]] {
            let ended = world.measure(words, PATIENCE).fails(1, &["runs.sqlite"]);
            assert!(!ended.stderr.contains("making"), "{what}: {}", ended.stderr);
        }
        assert!(fs::read(&file).unwrap() == bytes, "{what}: touched");
    }
}

#[test]
fn a_port_that_is_in_use() {
    let world = World::new();
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = world.measure(&["content", "serve", ".", "--listen", &address], PATIENCE);
    ended.fails(1, &[&address, "in use"]);
    world.measure(&["content", "serve", "missing"], PATIENCE).fails(2, &["missing", "No such file"]);
    let file = world.write("file", "no folder");
    world
        .measure(&["content", "serve", file.to_str().unwrap()], PATIENCE)
        .fails(2, &["file", "not a directory"]);
}
