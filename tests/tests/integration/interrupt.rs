//! Ctrl-C and `kill -9` in every phase: what was measured stays, nothing else does. Crashes that leave
//! journals behind are in `tests/alone/crash.rs`.

use std::time::Duration;

use kagiri_tests::{
    ATTEMPTS, Ended, Live, RunInLab, World, beside_others, need_root, until_undisturbed, wait_until,
};
use nix::sys::signal::Signal;

const PATIENCE: Duration = Duration::from_secs(60);

/// A search from `first` to `max` in short trials of light content, so that each phase comes soon.
fn search(world: &World, first: u32, max: u32, extra: &[&str]) -> Live {
    let film = world.path("film.ts");
    let text = format!(
        "workload = 'stream'\n[stream]\nfirst = {first}\nmax = {max}\nhold = '2s'\nsearch_hold = '1s'\n\
         ramp_down = true\nplayer.warm_up = '1s'\ncontent.path = '{}'\n",
        film.display()
    );
    world.write("search.toml", text);
    world.start(&[&["run", "search.toml"][..], extra].concat())
}

fn film(world: &World) {
    let words = ["content", "make", "film.ts", "--duration", "15s", "--bitrate", "2Mbit/s", "--quiet"];
    world.run(&words).code(0);
}

/// Interrupt it, and see that it ends as the contract says.
fn interrupt(world: &World, live: Live) -> Ended {
    live.signal(Signal::SIGINT);
    let ended = live.end(PATIENCE);
    world.assert_nothing_left(ended.pid);
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    ended.code(130)
}

/// Interrupt a search from `first` to `max` once its lines say `part`; made again when it ended before, for
/// others held it up.
fn interrupted_at(world: &World, first: u32, max: u32, part: &str, extra: &[&str]) -> Ended {
    until_undisturbed(|| {
        let mut live = search(world, first, max, extra);
        match live.reaches(part, PATIENCE * 2) {
            true => Ok(interrupt(world, live)),
            false => Err(live.stderr()),
        }
    })
}

/// The newest stored run, with trials or without, which has to say that it was interrupted.
fn stored(world: &World) -> serde_json::Value {
    let newest = world.run(&["runs", "list", "--json"]).code(0).json()[0]["run"].clone();
    let newest = newest.as_str().expect("a run's id");
    let document = world.run(&["runs", "show", newest, "--json"]).code(0).json();
    assert_eq!(document["state"], "interrupted");
    let shown = world.run(&["runs", "show", newest]).code(0).stdout;
    assert!(shown.to_lowercase().contains("interrupted"), "{shown}");
    document
}

fn phases(document: &serde_json::Value) -> Vec<&str> {
    let trials = document["trials"].as_array().expect("trials");
    trials.iter().map(|trial| trial["phase"].as_str().expect("a phase")).collect()
}

#[test]
fn while_making_content() {
    let _beside = beside_others();
    let world = World::new();
    // More than can be made before the signal comes; the beginning of the file is the sign that it is being
    // made.
    let live = world.start(&["content", "make", "film.ts", "--duration", "1h"]);
    let grows = || std::fs::metadata(world.path("film.ts.part")).is_ok_and(|facts| facts.len() > 0);
    wait_until("film.ts.part grows", PATIENCE, grows);
    let ended = interrupt(&world, live);
    assert!(ended.stderr.contains("nothing was left behind"), "{}", ended.stderr);
    for name in ["film.ts", "film.ts.part", "film.ts.kgi"] {
        assert!(!world.path(name).exists(), "{name}");
    }
}

#[test]
fn killed_while_making_content() {
    let _beside = beside_others();
    let world = World::new();
    let mut live = world.start(&["content", "make", "film.ts", "--duration", "1h"]);
    let part = world.path("film.ts.part");
    wait_until("film.ts.part grows", PATIENCE, || {
        std::fs::metadata(&part).is_ok_and(|facts| facts.len() > 0)
    });
    live.signal(Signal::SIGKILL);
    wait_until("it has ended", PATIENCE, || !live.is_running());
    assert!(part.exists() && !world.path("film.ts").exists());
    // The next command that makes it removes what was left.
    world.run(&["content", "make", "film.ts", "--duration", "2s", "--quiet"]).code(0);
    assert!(!part.exists() && world.path("film.ts").exists() && world.path("film.ts.kgi").exists());
}

#[test]
fn while_indexing() {
    let _beside = beside_others();
    let world = World::new();
    world.run(&["content", "make", "film.ts", "--duration", "200s", "--quiet"]).code(0);
    // If other programs delay this test for a second, the film is indexed before the signal comes.
    let interrupted = (0..ATTEMPTS).any(|_| {
        std::fs::remove_file(world.path("film.ts.kgi")).unwrap_or_default();
        is_interrupted_indexing(&world)
    });
    assert!(interrupted, "it was too quick {ATTEMPTS} times");
    assert!(world.path("film.ts").exists() && !world.path("film.ts.kgi").exists());
}

/// Interrupt the indexing of the world's film; `false` when it had finished before.
fn is_interrupted_indexing(world: &World) -> bool {
    let live = world.start(&["content", "index", "film.ts"]);
    // It has begun once it has the file open.
    let film = world.path("film.ts").canonicalize().expect("it is there");
    let descriptors = format!("/proc/{}/fd", live.pid());
    let open = || {
        let entries = std::fs::read_dir(&descriptors).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| target == film))
    };
    wait_until("film.ts is open", PATIENCE, || open() || world.path("film.ts.kgi").exists());
    if world.path("film.ts.kgi").exists() {
        live.end(PATIENCE).code(0);
        return false;
    }
    live.signal(Signal::SIGINT);
    let ended = live.end(PATIENCE);
    world.assert_nothing_left(ended.pid);
    if ended.status.code() == Some(0) {
        return false;
    }
    ended.code(130);
    true
}

#[test]
fn while_serving() {
    let world = World::new();
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut live = world.start(&["content", "serve", ".", "--listen", "127.0.0.1:0"]);
        live.wait_for(" at http://", PATIENCE);
        live.signal(signal);
        let ended = live.end(PATIENCE);
        world.assert_nothing_left(ended.pid);
        // To be ended is how a server ends.
        ended.code(0);
    }
}

#[test]
fn during_the_search() {
    let _beside = beside_others();
    let world = World::new();
    film(&world);
    let ended = interrupted_at(&world, 1, 16, "2 streams  ", &["--json"]);
    let document = stored(&world);
    assert!(
        phases(&document).len() >= 2 && phases(&document).len() >= ended.trials_shown(),
        "no finished trial is lost"
    );
    assert_eq!(ended.json()["run"], document["run"], "what was measured is printed too");
    assert!(document["doubts"].to_string().contains("interrupted"), "{}", document["doubts"]);
}

#[test]
fn before_the_first_trial_has_ended() {
    let _beside = beside_others();
    let world = World::new();
    film(&world);
    let mut live = search(&world, 1, 1, &[]);
    live.wait_for("preparing", PATIENCE);
    interrupt(&world, live);
    assert!(phases(&stored(&world)).is_empty());
}

#[test]
fn during_the_confirmation_and_on_the_way_down() {
    let _beside = beside_others();
    let world = World::new();
    film(&world);
    interrupted_at(&world, 1, 1, "  confirm  ", &[]);
    let document = stored(&world);
    assert!(phases(&document).starts_with(&["search"]) && phases(&document).contains(&"confirm"));
    interrupted_at(&world, 3, 3, "  ramp down  ", &[]);
    let document = stored(&world);
    assert!(phases(&document).contains(&"ramp-down"), "{:?}", phases(&document));
    assert!(document["capacity"]["value"].is_number(), "what was confirmed stands");
}

#[test]
fn while_requests_are_answered_beside_a_load() {
    let _beside = beside_others();
    let world = World::new();
    let words = ["transfer", "--under-load", "0.2s", "--time", "60s", "-i", "0.2", "--rate", "100Mbit/s"];
    for _ in 0..3 {
        let mut live = world.start(&words);
        assert!(live.reaches("up ", PATIENCE), "{}", live.stderr());
        let ended = interrupt(&world, live);
        let printed = format!("{}{}", ended.stdout, ended.stderr);
        assert!(printed.contains("ended before its time") && !printed.contains("broke off"), "{printed}");
    }
}

#[test]
fn a_second_signal_leaves_at_once() {
    let _beside = beside_others();
    let world = World::new();
    film(&world);
    let mut live = search(&world, 1, 16, &[]);
    live.wait_for("1 stream   ", PATIENCE);
    let pid = live.pid();
    live.signal(Signal::SIGINT);
    std::thread::sleep(Duration::from_millis(300));
    if live.is_running() {
        live.signal(Signal::SIGTERM);
    }
    live.end(PATIENCE).code(130);
    // It may or may not have found the time to put everything back; after an undo it is.
    world.run(&["undo"]).code(0);
    world.assert_nothing_left(pid);
    let document = world.run(&["runs", "show", "--json"]).code(0).json();
    assert_eq!((document["state"].as_str(), phases(&document)[0]), (Some("interrupted"), "search"));
}

#[test]
fn two_signals_at_once_count_as_one() {
    let _beside = beside_others();
    let world = World::new();
    film(&world);
    let mut live = search(&world, 1, 16, &[]);
    live.wait_for("1 stream   ", PATIENCE);
    // As timeout(1) does it.
    live.signal(Signal::SIGTERM);
    live.signal(Signal::SIGTERM);
    let ended = live.end(PATIENCE).code(130);
    assert!(!ended.stderr.contains("stopped at once"), "{}", ended.stderr);
    assert!(ended.stdout.contains("1 stream"), "{}", ended.stdout);
    world.assert_nothing_left(ended.pid);
}

#[test]
fn while_a_lab_and_its_content_are_made() {
    need_root!();
    let _beside = beside_others();
    let world = World::new();
    for moment in ["is up", "of content"] {
        let RunInLab { mut live, lab } = RunInLab::start(&world);
        live.wait_for(moment, PATIENCE);
        interrupt(&world, live);
        assert_eq!(lab.namespaces(), Vec::<String>::new(), "{moment}");
    }
    assert!(phases(&stored(&world)).is_empty());
}

#[test]
fn a_plan_that_is_interrupted_takes_its_lab_down() {
    need_root!();
    let _beside = beside_others();
    let world = World::new();
    let (RunInLab { live, lab }, keeper) = RunInLab::measured(&world, PATIENCE);
    let traces = world.traces(keeper);
    assert!(!traces.mounts.is_empty() && !traces.loop_devices.is_empty(), "{traces:#?}");
    assert!(!traces.cgroups.is_empty() && !lab.namespaces().is_empty(), "{traces:#?}");
    interrupt(&world, live);
    world.assert_nothing_left(keeper);
    assert_eq!(lab.namespaces(), Vec::<String>::new());
    assert!(!phases(&stored(&world)).is_empty());
}

/// The lab is the run's: it goes down when the run is killed, and takes what its agents run along.
#[test]
fn a_run_that_is_killed_takes_its_lab_along() {
    need_root!();
    let _beside = beside_others();
    let world = World::new();
    let (RunInLab { live, lab }, keeper) = RunInLab::measured(&world, PATIENCE);
    let pid = live.pid();
    live.signal(Signal::SIGKILL);
    let _ = live.end(PATIENCE);
    wait_until("the lab's end", PATIENCE, || lab.namespaces().is_empty());
    world.run(&["undo"]).code(0);
    world.assert_nothing_left(pid);
    world.assert_nothing_left(keeper);
    let document = stored(&world);
    assert!(!phases(&document).is_empty(), "a crash loses no finished trial");
}
