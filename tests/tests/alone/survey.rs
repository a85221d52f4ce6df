//! `kagiri survey`, interrupted. Alone, because it fills the machine.

use std::time::Duration;

use kagiri_tests::{World, alone};
use nix::sys::signal::Signal;

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn survey_is_interrupted_while_it_calibrates_and_measures() {
    let _alone = alone();
    let world = World::new();
    for (part, measured) in [("disk: reading", false), ("streams (search), 0:", true)] {
        let mut live = world.start(&["survey"]);
        live.wait_for(part, PATIENCE * 3);
        live.signal(Signal::SIGINT);
        let ended = live.end(PATIENCE);
        world.assert_nothing_left(ended.pid);
        assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
        let ended = ended.code(130);
        assert_eq!(ended.stderr.contains("4 of 4"), measured, "{}", ended.stderr);
        let listed = world.run(&["runs", "list"]).code(0).stdout;
        assert_eq!(!listed.contains("no runs"), measured, "a run begins with the first trials: {listed}");
    }
}
