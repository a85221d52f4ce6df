//! The console's pages (`ui`): built by npm, and used in a real browser against the real server.

use std::process::Command;
use std::time::Duration;

use kagiri_tests::{Live, Namespaces, World, beside_others, need_programs, need_root, program, workspace};

/// Packages are downloaded, and ten seconds are measured more than once, beside other tests.
const PATIENCE: Duration = Duration::from_secs(600);

/// `npm` in the folder of the pages.
fn npm(words: &[&str]) -> Command {
    let mut command = Command::new("npm");
    command.args(words).current_dir(workspace().join("ui"));
    command
}

#[test]
fn pages_are_built_and_work_in_a_browser() {
    need_programs!("npm", "chromium");
    need_root!();
    let _beside = beside_others();
    let world = World::with_own_journal();
    let pages = world.path("pages").display().to_string();
    Live::start(npm(&["ci", "--no-audit", "--no-fund"])).end(PATIENCE).code(0);
    Live::start(npm(&["run", "check"])).end(PATIENCE).code(0);
    Live::start(npm(&["test"])).end(PATIENCE).code(0);
    Live::start(npm(&["run", "build", "--", "--outDir", &pages])).end(PATIENCE).code(0);
    // Server and browser are in a network namespace, whose settings nobody else has.
    let net = Namespaces::new(&["console"]);
    // The pages set and undo a setting, and 'tune undo' of another test would undo it first.
    let mut browser = world.with_journal_here("npm");
    browser.args(["run", "test:browser"]).current_dir(workspace().join("ui"));
    browser.env("KAGIRI", program()).env("KAGIRI_PAGES", &pages).env("TMPDIR", world.path("tmp"));
    let ended = Live::start(net.on_with_mounts("console", &browser)).end(PATIENCE).code(0);
    // What was measured: times of the first page, size of the bundle, memory after an hour.
    println!("{}", ended.stdout);
}
