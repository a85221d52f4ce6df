//! Runs that broke off at each of their trials, and go on.

use super::*;

/// The newest run of a folder, as it is loaded to go on.
fn broken_off(dir: &Path) -> Run {
    let mut store = Store::open(dir).unwrap();
    let id = store.list(&Filter::default()).unwrap()[0].run.clone();
    store.load_broken_off(&id).unwrap()
}

/// Goes on with the newest run of a folder; returns also how many trials were measured.
fn resume_in(dir: &Path, plan: &Plan, acts: &[(Moment, Act)]) -> (Ended, u32) {
    let ended = made_in(dir, plan, Some(broken_off(dir)), acts, || {});
    assert_eq!(ended.left, [""; 0], "{acts:?}: every part is stopped");
    (ended, SCRIPT.with_borrow(|script| script.trials))
}

/// Two variants, searched twice.
fn plan_of_two() -> Plan {
    let mut plan = plan_of(&json!({ "carries": 3 }));
    let other = Plan::of_one("scripted", "", "weak", json!({ "carries": 1 }));
    plan.variants.extend(other.variants);
    Plan { repeats: 2, ..plan }
}

/// What does not depend on the moment at which it was measured.
fn result(run: &Run) -> Value {
    let trials = run.trials.iter().map(|trial| {
        json!([trial.number, trial.variant, trial.repetition, trial.phase, trial.load, trial.verdict])
    });
    let variants = run.variants.iter().map(|variant| {
        json!([variant.name, variant.capacity, variant.repetitions, variant.predicted, variant.doubts])
    });
    let (trials, variants): (Vec<_>, Vec<_>) = (trials.collect(), variants.collect());
    json!({ "trials": trials, "variants": variants, "capacity": run.capacity, "doubts": run.doubts })
}

/// Breaks a run off at one of its trials, and continues it.
fn assert_goes_on(plan: &Plan, whole: &Run, cut: u32, act: Act) {
    let dir = tempfile::tempdir().unwrap();
    let broken = made_in(dir.path(), plan, None, &[(("load", "progress", cut), act)], || {});
    let id = broken.stored.as_ref().unwrap().run.clone();
    assert_eq!(broken.trials().len() as u32, cut - 1);
    let (ended, measured) = resume_in(dir.path(), plan, &[]);
    let run = ended.stored.unwrap();
    let left = whole.trials.len() as u32 - (cut - 1);
    assert_eq!((ended.code, measured), (0, left), "{cut}: {}", ended.error);
    assert_eq!((&run.run, run.state, run.failure.as_ref()), (&id, State::Complete, None));
    assert_eq!(result(&run), result(whole), "cut at trial {cut}");
    assert_eq!(run.environment["resumed"][0]["trials_before"], cut - 1);
}

#[test]
fn run_that_broke_off_at_any_trial_goes_on_to_the_result_of_a_whole_one() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan_of(&json!({}));
    let whole = made_in(dir.path(), &plan, None, &[], || {}).stored.unwrap();
    for cut in 1..=whole.trials.len() as u32 {
        assert_goes_on(&plan, &whole, cut, Act::Interrupt);
        assert_goes_on(&plan, &whole, cut, Act::Fail);
    }
}

#[test]
fn run_of_variants_and_repetitions_goes_on_in_its_order() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan_of_two();
    let whole = made_in(dir.path(), &plan, None, &[], || {}).stored.unwrap();
    let searches: Vec<(&str, u32)> =
        whole.trials.iter().map(|trial| (trial.variant.as_str(), trial.repetition)).collect();
    let begins = (1..searches.len()).filter(|&at| searches[at] != searches[at - 1]);
    let begins: Vec<u32> = begins.map(|at| at as u32 + 1).collect();
    assert_eq!(begins.len(), 3, "{searches:?}");
    // At the first trial of each search, and within one.
    for cut in begins.iter().chain([&(begins[1] + 2), &(searches.len() as u32)]) {
        assert_goes_on(&plan, &whole, *cut, Act::Interrupt);
    }
}

#[test]
fn run_goes_on_as_often_as_it_breaks_off() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan_of(&json!({}));
    made_in(dir.path(), &plan, None, &[(("load", "progress", 3), Act::Interrupt)], || {});
    let (again, _) = resume_in(dir.path(), &plan, &[(("load", "progress", 3), Act::Interrupt)]);
    assert_eq!((again.code, again.state(), again.trials().as_str()), (130, Some(State::Interrupted), "SSSs"));
    let (ended, measured) = resume_in(dir.path(), &plan, &[]);
    assert_eq!((ended.code, ended.trials().as_str(), measured), (0, WHOLE, 4));
    let id = ended.stored.unwrap().run;
    let refused = Store::open(dir.path()).unwrap().load_broken_off(&id).unwrap_err();
    assert!(refused.is_usage() && refused.to_string().contains("measured to its end"), "{refused}");
}

#[test]
fn trial_that_the_user_cut_short_is_measured_again() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan_of(&json!({ "single": 2, "keeps_interrupted": true }));
    let cut = made_in(dir.path(), &plan, None, &[(("load", "progress", 1), Act::Interrupt)], || {});
    assert!(cut.stored.unwrap().trials[0].account.is_cut);
    let (ended, measured) = resume_in(dir.path(), &plan, &[]);
    assert_eq!((ended.code, ended.trials().as_str(), measured), (0, "O", 1), "{}", ended.error);
    let run = ended.stored.unwrap();
    assert!(!run.trials[0].account.is_cut && run.trials[0].number == 1, "{:?}", run.trials);
}

#[test]
fn changed_environment_is_a_doubt_and_a_changed_lab_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan_of(&json!({}));
    made_in(dir.path(), &plan, None, &[(("load", "progress", 3), Act::Interrupt)], || {});
    let mut stored = broken_off(dir.path());
    stored.kagiri = "0.0.1".to_owned();
    stored.environment.insert("kernel_release".to_owned(), json!("4.4.0-old"));
    stored.environment.insert("host_name".to_owned(), json!("elsewhere"));
    let file = BTreeMap::from([("lab".to_owned(), json!("hosts = 2"))]);
    assert!(run::resume::check_files(&stored, &file).is_ok(), "the run had no lab");
    stored.environment.insert("lab".to_owned(), json!("hosts = 3"));
    let changed = run::resume::check_files(&stored, &file).unwrap_err();
    assert!(changed.usage && changed.message.contains("the plan's lab has changed"), "{}", changed.message);
    stored.environment.remove("lab");
    let run = made_in(dir.path(), &plan, Some(stored), &[], || {}).stored.unwrap();
    let doubt = run.doubts.iter().find(|note| note.message.contains("another environment")).unwrap();
    for difference in ["kagiri was 0.0.1", "kernel_release was 4.4.0-old", "host_name was elsewhere"] {
        assert!(doubt.message.contains(difference), "{}", doubt.message);
    }
}
