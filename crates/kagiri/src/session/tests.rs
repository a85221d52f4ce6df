//! Whole runs of a scripted workload, from the plan to what is printed: interrupted at, failing at, or unable
//! to store any of their steps. `tests/` has one run of the real program for each phase.

mod resumed;
mod scripted;

use base::outcome::{Phase, State};
use base::verdict::Verdict;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde_json::json;
use store::Filter;

use super::*;
use crate::exit::Code;
use scripted::{Act, Moment, REGISTRY, SCRIPT, Script};

/// All trials of a run that carries 3 of 4: searched, confirmed, and down again. Capitals: it passed.
const WHOLE: &str = "SSSsCcRR";

/// How a run ended for its user.
struct Ended {
    code: u8,
    error: String,
    printed: String,
    /// The stored run, if it had begun.
    stored: Option<Run>,
    /// Parts that were not stopped.
    left: Vec<&'static str>,
}

impl Ended {
    /// The stored trials, a letter each.
    fn trials(&self) -> String {
        let letter = |trial: &Trial| {
            let letter = match trial.phase {
                Phase::Search => 's',
                Phase::Confirm => 'c',
                Phase::RampDown => 'r',
                Phase::Single => 'o',
            };
            if trial.verdict == Verdict::Pass { letter.to_ascii_uppercase() } else { letter }
        };
        self.stored.iter().flat_map(|run| &run.trials).map(letter).collect()
    }

    fn state(&self) -> Option<State> {
        self.stored.as_ref().map(|run| run.state)
    }
}

fn plan_of(settings: &Value) -> Plan {
    Plan::of_one("scripted", "a scripted run", "default", settings.clone())
}

/// Makes a run with results in `dir`; `before` happens when they were found to be writable.
fn run_in(dir: &Path, settings: &Value, acts: &[(Moment, Act)], before: impl FnOnce()) -> Ended {
    made_in(dir, &plan_of(settings), None, acts, before)
}

/// [`run_in`]; `stored` is the run to continue.
fn made_in(
    dir: &Path,
    plan: &Plan,
    stored: Option<Run>,
    acts: &[(Moment, Act)],
    before: impl FnOnce(),
) -> Ended {
    let stop = Arc::default();
    let script = Script { acts: acts.into(), stop: Arc::clone(&stop), disk: dir.into(), ..Script::default() };
    SCRIPT.set(script);
    let store = Store::open(dir).unwrap();
    store.check_writable().unwrap();
    before();
    let facts = BTreeMap::new();
    let data_dir = dir.into();
    let mut session = Session { stop, store, data_dir, facts, registry: &REGISTRY, json_lines: None };
    let quiet = MeasureArgs { quiet: true, ..MeasureArgs::default() };
    let mut printed = String::new();
    let made = session.make_run(plan, stored, &quiet, &HostArgs::default());
    let outcome = made.and_then(|(run, failure)| {
        conclude(&run, failure, false, || {
            printed = output::summary(&run, None, true, None);
            Ok(output::code(&run))
        })
    });
    let (code, error) = match outcome {
        Ok(code) => (code, String::new()),
        Err(failure) => (failure.code(), failure.to_string()),
    };
    let listed = session.store.list(&Filter::default()).unwrap();
    let stored = listed.first().map(|summary| session.store.load(&summary.run).unwrap());
    let left = SCRIPT.with_borrow(|script| script.standing.clone());
    Ended { code: code as u8, error, printed, stored, left }
}

fn run_with(settings: &Value, acts: &[(Moment, Act)]) -> Ended {
    let dir = tempfile::tempdir().unwrap();
    let ended = run_in(dir.path(), settings, acts, || {});
    assert_eq!(ended.left, [""; 0], "{acts:?}: every part is stopped");
    ended
}

#[test]
fn undisturbed_run_is_complete() {
    let ended = run_with(&json!({}), &[]);
    assert_eq!((ended.code, ended.error.as_str(), ended.trials().as_str()), (0, "", WHOLE));
    let run = ended.stored.unwrap();
    assert_eq!((run.state, run.capacity.value), (State::Complete, Some(3.0)));
    assert!(ended.printed.contains("3 loads"), "{}", ended.printed);
    let ended = run_with(&json!({}), &[(("server", "stop", 8), Act::Interrupt)]);
    assert_eq!((ended.code, ended.state(), ended.trials().as_str()), (0, Some(State::Complete), WHOLE));
}

#[test]
fn interrupted_run_keeps_the_trials_that_ended() {
    let (search, single) = (json!({}), json!({ "single": 2 }));
    let keeps = json!({ "single": 2, "keeps_interrupted": true });
    for (settings, moment, act, trials) in [
        // While the server is prepared: as most parts notice it, and as one that does not.
        (&search, ("server", "new", 0), Act::Interrupt, ""),
        (&search, ("server", "prepare", 0), Act::Break, ""),
        (&search, ("server", "prepare", 0), Act::Interrupt, ""),
        (&search, ("load", "prepare", 1), Act::Break, ""),
        (&search, ("load", "start", 1), Act::Break, ""),
        (&search, ("load", "progress", 1), Act::Interrupt, ""),
        (&search, ("load", "prepare", 3), Act::Break, "SS"),
        (&search, ("load", "progress", 3), Act::Interrupt, "SS"),
        // A trial that has ended is stored before the run ends.
        (&search, ("load", "stop", 3), Act::Interrupt, "SSS"),
        (&search, ("load", "progress", 4), Act::Interrupt, "SSS"),
        (&search, ("load", "progress", 5), Act::Interrupt, "SSSs"),
        (&search, ("load", "prepare", 6), Act::Break, "SSSsC"),
        (&search, ("load", "progress", 6), Act::Interrupt, "SSSsC"),
        (&search, ("load", "progress", 7), Act::Interrupt, "SSSsCc"),
        (&search, ("load", "prepare", 8), Act::Break, "SSSsCcR"),
        (&search, ("load", "progress", 8), Act::Interrupt, "SSSsCcR"),
        (&single, ("load", "progress", 1), Act::Interrupt, ""),
        (&keeps, ("load", "prepare", 1), Act::Break, ""),
        (&keeps, ("load", "progress", 1), Act::Interrupt, "O"),
    ] {
        let ended = run_with(settings, &[(moment, act)]);
        let seen = (ended.code, ended.state(), ended.trials());
        assert_eq!(seen, (130, Some(State::Interrupted), trials.to_owned()), "{moment:?}: {}", ended.error);
        let run = ended.stored.unwrap();
        assert!(run.doubts.iter().any(|note| note.message.contains("interrupted")), "{moment:?}");
        match trials {
            "" => {
                assert_eq!(ended.error, "interrupted before the first trial ended", "{moment:?}");
                assert_eq!(ended.printed, "", "{moment:?}");
            }
            _ => {
                assert_eq!(ended.error, "", "{moment:?}");
                assert!(
                    ended.printed.to_lowercase().contains("interrupted"),
                    "{moment:?}: {}",
                    ended.printed
                );
            }
        }
        // What was confirmed stands.
        if trials.starts_with("SSSsC") {
            assert_eq!(run.capacity.value, Some(3.0), "{moment:?}");
        }
    }
}

#[test]
fn part_that_dies_ends_the_run_and_is_named() {
    for (moment, trials) in [
        (("server", "new", 0), ""),
        (("server", "prepare", 0), ""),
        (("load", "new", 1), ""),
        (("load", "prepare", 1), ""),
        (("load", "start", 1), ""),
        (("load", "progress", 1), ""),
        (("load", "stop", 1), ""),
        (("workload", "judge", 1), ""),
        (("load", "new", 3), "SS"),
        (("load", "prepare", 3), "SS"),
        (("load", "start", 4), "SSS"),
        (("load", "progress", 4), "SSS"),
        (("load", "stop", 5), "SSSs"),
        (("workload", "judge", 5), "SSSs"),
        (("load", "prepare", 6), "SSSsC"),
        (("load", "progress", 7), "SSSsCc"),
        (("load", "stop", 8), "SSSsCcR"),
        // It had carried all trials, but what it changed may not be put back.
        (("server", "stop", 8), WHOLE),
    ] {
        for (act, code) in [(Act::Fail, 1), (Act::Misuse, 2)] {
            let ended = run_with(&json!({}), &[(moment, act)]);
            let expected = (code, Some(State::Failed), trials.to_owned());
            assert_eq!((ended.code, ended.state(), ended.trials()), expected, "{moment:?}: {}", ended.error);
            let (part, method, _) = moment;
            let cause = match act {
                Act::Fail => format!("the {part} died in {method}"),
                _ => format!("the {part} cannot {method} this"),
            };
            assert!(ended.error.contains(&cause), "{moment:?}: {}", ended.error);
            let failure = ended.stored.unwrap().failure.unwrap_or_default();
            assert!(failure.contains(&cause), "{moment:?}: {failure}");
            assert_eq!(ended.printed.is_empty(), trials.is_empty(), "{moment:?}: {}", ended.printed);
            assert!(!ended.printed.contains(&cause), "the error says it: {}", ended.printed);
        }
    }
}

#[test]
fn server_that_dies_during_a_trial_ends_the_run() {
    for (trial, trials) in [(1, ""), (3, "SS"), (6, "SSSsC"), (8, "SSSsCcR")] {
        // The load goes on for as long as the server lives.
        let goes_on = (("load", "progress", trial), Act::Last);
        let ended = run_with(&json!({}), &[goes_on, (("server", "progress", trial), Act::Fail)]);
        let expected = (1, Some(State::Failed), trials.to_owned());
        assert_eq!((ended.code, ended.state(), ended.trials()), expected, "{}", ended.error);
        assert!(ended.error.contains("the server died in progress"), "{}", ended.error);
        // The user's wish comes first.
        let interrupted = (("load", "progress", trial), Act::Interrupt);
        let ended = run_with(&json!({}), &[interrupted, (("server", "progress", trial), Act::Fail)]);
        assert_eq!((ended.code, ended.state()), (130, Some(State::Interrupted)), "{}", ended.error);
        assert_eq!(ended.trials(), trials);
    }
}

/// Run with results on a disk of 4 MiB that only the calling thread sees.
fn on_small_disk(test: impl FnOnce(&Path) + Send) {
    if !nix::unistd::geteuid().is_root() {
        return features::skip("needs root to mount a small disk");
    }
    let dir = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            let none = None::<&str>;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
            mount(none, dir.path(), Some("tmpfs"), MsFlags::empty(), Some("size=4m")).unwrap();
            test(dir.path());
        });
    });
}

#[test]
fn full_disk_loses_no_stored_trial_and_nothing_that_was_measured() {
    let stopped = |trial| (("load", "stop", trial), Act::Fill);
    let freed = (("server", "stop", 3), Act::Free);
    for (acts, stored, printed_trials) in [
        (vec![stopped(1)], "", true),
        (vec![stopped(3)], "SS", true),
        (vec![stopped(5)], "SSSs", true),
        (vec![stopped(7)], "SSSsCc", true),
        // When the run is finished, all trials are stored.
        (vec![(("server", "stop", 8), Act::Fill)], WHOLE, true),
        // Room that comes back in time takes what was measured meanwhile, too.
        (vec![stopped(3), freed], "SSS", true),
    ] {
        on_small_disk(|dir| {
            let ended = run_in(dir, &json!({}), &acts, || {});
            assert_eq!(ended.left, [""; 0], "{acts:?}");
            assert_eq!((ended.code, ended.trials().as_str()), (1, stored), "{acts:?}: {}", ended.error);
            for words in ["the disk is full", "runs.sqlite", "KAGIRI_DATA"] {
                assert!(ended.error.contains(words), "{acts:?}: {}", ended.error);
            }
            assert_eq!(!ended.printed.is_empty(), printed_trials, "{acts:?}: {}", ended.printed);
            // This process lives; once it has died, the run is shown as interrupted.
            let state = if acts.contains(&freed) { State::Failed } else { State::Running };
            assert_eq!(ended.state(), Some(state), "{acts:?}");
        });
    }
    on_small_disk(|dir| {
        let ended = run_in(dir, &json!({}), &[], || scripted::fill(dir));
        assert_eq!((ended.code, ended.stored.is_none(), ended.printed.as_str()), (1, true, ""));
        assert!(ended.error.contains("the disk is full"), "{}", ended.error);
        assert_eq!(ended.left, [""; 0], "nothing was begun");
    });
}

#[test]
fn read_only_results_are_refused_before_anything_is_measured() {
    on_small_disk(|dir| {
        drop(Store::open(dir).unwrap());
        let none = None::<&str>;
        mount(none, dir, none, MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, none).unwrap();
        let opened = Store::open(dir).and_then(|store| store.check_writable());
        let failure = Failure::from(opened.unwrap_err());
        assert_eq!(failure.code(), Code::Failed);
        let message = failure.to_string();
        assert!(message.contains("read-only") && message.contains("KAGIRI_DATA"), "{message}");
    });
}
