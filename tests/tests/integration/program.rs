//! The program as such: help, completions, manual pages, colour, output without a reader.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use kagiri_tests::{Live, World, beside_others, need_programs, set_like, workspace};

const VERBS: [&[&str]; 42] = [
    &["survey"],
    &["stream"],
    &["transfer"],
    &["daq"],
    &["exchange"],
    &["files"],
    &["timeline"],
    &["explain"],
    &["run"],
    &["plan"],
    &["plan", "schema"],
    &["runs"],
    &["runs", "list"],
    &["runs", "show"],
    &["runs", "compare"],
    &["runs", "export"],
    &["runs", "import"],
    &["runs", "schema"],
    &["report"],
    &["content"],
    &["content", "make"],
    &["content", "index"],
    &["content", "serve"],
    &["fleet"],
    &["fleet", "init"],
    &["fleet", "list"],
    &["agent"],
    &["lab"],
    &["lab", "up"],
    &["lab", "status"],
    &["lab", "exec"],
    &["lab", "down"],
    &["qos"],
    &["qos", "check"],
    &["qos", "run"],
    &["qos", "coordinate"],
    &["qos", "status"],
    &["qos", "clear"],
    &["undo"],
    &["completions"],
    &["man"],
    &[],
];

#[test]
fn every_verb_explains_itself() {
    let world = World::new();
    for verb in VERBS {
        let words = [verb, &["--help"]].concat();
        let ended = world.run(&words).code(0);
        assert!(ended.stdout.contains("Usage: kagiri"), "{}", ended.stdout);
        assert!(ended.stderr.is_empty(), "{}", ended.stderr);
        assert!(!ended.stdout.contains('\x1b'), "no colour where it is not a terminal: {}", ended.stdout);
        let wide = ended.stdout.lines().filter(|line| line.chars().count() > 120).collect::<Vec<_>>();
        assert!(wide.is_empty(), "{verb:?}: {wide:?}");
        // An example shows this very verb.
        let example = ended.stdout.split_once("Example").map(|(_, after)| after).unwrap_or_default();
        let words = format!("kagiri {}", verb.join(" "));
        let joined = example.replace("\\\n", "");
        let lines = joined.lines().skip(1).take_while(|line| !line.is_empty());
        let is_command = |line: &&str| line.contains("kagiri ") || line.starts_with("  scp ");
        let wrapped: Vec<_> = lines.filter(|line| !is_command(line)).collect();
        assert!(wrapped.is_empty(), "{verb:?}: too long for 80 columns: {wrapped:?}");
        assert!(example.contains(words.trim_end()), "no example of '{words}' in\n{}", ended.stdout);
    }
}

#[test]
fn help_shows_how_numbers_are_written() {
    let world = World::new();
    let help = |verb: &[&str]| world.run(&[verb, &["--help"]].concat()).code(0).stdout;
    // The units that a verb reads stand in its help: as a default, or in an example.
    for (verb, words) in [
        (&[][..], &["25Mbit/s", "500ms", "128KiB", "Exit"][..]),
        (&["stream"], &["Examples", "--time 60s", "capacity>=", "disk=110Mbit/s", "RATE", "TIME"]),
        (&["survey"], &["capacity>=4", "slack_min>=500ms"]),
        (&["run"], &["--dry-run", "plans/", "capacity>=4"]),
        (&["explain"], &["disk Mbit/s", "memory KB", "Example", "cpu=2cores", "memory=512MiB"]),
        (&["content", "make"], &["default: 600s", "default: 25Mbit/s"]),
        (&["content", "serve"], &["127.0.0.1:8080", "in ns", "--open"]),
        (&["runs", "show"], &["last~1", "--json", "--plan"]),
        (&["report"], &["last~1"]),
    ] {
        let help = help(verb).split_whitespace().collect::<Vec<_>>().join(" ");
        for word in words {
            assert!(help.contains(word), "{verb:?}: no '{word}' in\n{help}");
        }
    }
}

#[test]
fn the_plan_in_the_help_can_be_run() {
    let world = World::new();
    let help = world.run(&["help", "run"]).code(0).stdout;
    let lines = help.lines().skip_while(|line| !line.starts_with("  name = "));
    let plan: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    world.write("plan.toml", plan.join("\n"));
    let resolved = world.run(&["run", "plan.toml", "--dry-run"]).code(0).json();
    let kinds: Vec<_> = resolved["variants"].as_array().expect("variants").iter().collect();
    assert_eq!((kinds.len(), resolved["repeats"].as_u64()), (2, Some(3)));
    assert_eq!(kinds[1]["settings"]["server"]["kind"], "nginx");
}

#[test]
fn the_version_is_the_packages() {
    let world = World::new();
    let manifest = std::fs::read_to_string(workspace().join("Cargo.toml")).unwrap();
    let version = manifest.parse::<toml::Table>().unwrap()["workspace"]["package"]["version"].clone();
    let expected = format!("kagiri {}\n", version.as_str().unwrap());
    assert_eq!(world.run(&["--version"]).code(0).stdout, expected);
}

#[test]
fn completions_are_scripts_of_their_shells() {
    let world = World::new();
    for (shell, mark) in [("bash", "complete -F"), ("zsh", "#compdef kagiri"), ("fish", "complete -c kagiri")]
    {
        let script = world.run(&["completions", shell]).code(0).stdout;
        assert!(script.contains(mark), "{shell}");
        for verb in ["survey", "stream", "explain", "undo", "--require"] {
            assert!(script.contains(verb.trim_start_matches("--")), "{shell}: {verb}");
        }
        let file = world.write(shell, script);
        if kagiri_tests::missing(&[shell]).is_some() {
            eprintln!("{shell} is not installed; its script is not parsed");
            continue;
        }
        let parsed = Command::new(shell).arg("-n").arg(&file).output().unwrap();
        assert!(parsed.status.success(), "{shell}: {}", String::from_utf8_lossy(&parsed.stderr));
    }
    world.run(&["completions", "teletype"]).code(2).says(&["teletype", "bash"]);
}

#[test]
fn manual_pages_are_pages() {
    let world = World::new();
    let page = world.run(&["man"]).code(0).stdout;
    assert!(page.contains(".TH kagiri 1") && page.contains(".SH SYNOPSIS"), "{page}");
    let dir = world.path("man1");
    world.run(&["man", "--out", dir.to_str().unwrap()]).code(0);
    let pages: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(pages.len() >= VERBS.len(), "{pages:?}");
    for name in ["kagiri.1", "kagiri-stream.1", "kagiri-content-make.1"] {
        assert!(dir.join(name).is_file(), "{name} in {pages:?}");
    }
    need_programs!("groff");
    for page in pages {
        let rendered = Command::new("groff").args(["-man", "-Tutf8", "-ww"]).arg(&page).output().unwrap();
        assert!(rendered.status.success() && rendered.stderr.is_empty(), "{}: {rendered:?}", page.display());
    }
}

/// Long output must not end in a panic when its reader has closed the pipe.
#[test]
fn a_closed_pipe_is_no_error() {
    let world = World::new();
    world.import_fixture();
    let plan = workspace().join("plans/disk-limited.toml");
    let table = workspace().join("tests/fixtures/reference.csv");
    let policy = workspace().join("plans/qos/robots.toml");
    let (plan, table, policy) = (plan.to_str().unwrap(), table.to_str().unwrap(), policy.to_str().unwrap());
    for words in [
        &["--help"][..],
        &["completions", "bash"],
        &["man"],
        &["runs", "list"],
        &["runs", "list", "--json"],
        &["runs", "show"],
        &["runs", "show", "--json"],
        &["runs", "export"],
        &["runs", "schema"],
        &["report", "-o", "-"],
        &["run", plan, "--dry-run"],
        &["explain", table],
        &["explain", table, "--json"],
        &["qos", "check", policy],
        &["undo"],
    ] {
        // A pipe whose reading end is closed before the program writes.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = world.command(words).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!stderr.contains("panicked"), "{words:?}: {stderr}");
        assert_eq!(stderr, "", "{words:?}");
        assert!(output.status.success(), "{words:?}: {:?}", output.status);
    }
}

/// What the program writes to a terminal, as `script` records it.
fn on_a_terminal(world: &World, words: &str, set: &[(&str, &str)]) -> String {
    let kagiri = kagiri_tests::program();
    // `script` gives its command a terminal of its own; the typescript goes to standard output.
    let mut command = Command::new("script");
    command.args(["-qec", &format!("'{}' {words}", kagiri.display()), "/dev/null"]).stdin(Stdio::null());
    set_like(&mut command, &world.command(&[]));
    command.env("TERM", "xterm").envs(set.iter().copied());
    Live::start(command).end(Duration::from_secs(60)).stdout
}

/// A terminal shows `^C` where its cursor stands; below a bar that is the next line.
#[test]
fn ctrl_c_leaves_a_clean_line() {
    need_programs!("script");
    let world = World::new();
    let kagiri = kagiri_tests::program();
    let (line, bar) = ("\r\x1b[K", "\x1b[A\x1b[K");
    for (words, shown, erased) in [
        ("content serve . --listen 127.0.0.1:0", "serving ", line),
        ("transfer --time 30", "left: measuring 1 flow", bar),
    ] {
        let (keys, mut typed) = std::io::pipe().unwrap();
        let mut command = Command::new("script");
        // Its terminal shows what is typed, as one with a person does.
        command.args(["-E", "always", "-qec", &format!("'{}' {words}", kagiri.display()), "/dev/null"]);
        set_like(&mut command, &world.command(&[]));
        command.env("TERM", "xterm").env("NO_COLOR", "1").stdin(keys);
        let mut live = Live::start(command);
        live.wait_for(shown, Duration::from_secs(20));
        typed.write_all(b"\x03").unwrap();
        let ended = live.end(Duration::from_secs(20));
        let (_, after) = ended.stdout.split_once("^C").expect("the terminal shows the key");
        assert!(after.contains(erased), "{words}: not erased: {after:?}");
    }
}

#[test]
fn colour_is_for_terminals_that_want_it() {
    need_programs!("script");
    let world = World::new();
    world.import_fixture();
    for words in ["runs show", "explain nowhere.csv"] {
        assert!(on_a_terminal(&world, words, &[]).contains("\x1b["), "{words}: colour on a terminal");
        let plain = on_a_terminal(&world, words, &[("NO_COLOR", "1")]);
        assert!(!plain.is_empty() && !plain.contains("\x1b["), "{words}: {plain:?}");
    }
    let bar = on_a_terminal(&world, "content make a.ts --duration 20s", &[("NO_COLOR", "1")]);
    assert!(bar.contains("frames") && !bar.contains("\x1b[3"), "a bar may move, not be coloured: {bar:?}");
}

#[test]
fn making_content_says_what_it_makes_and_how_fast_it_was() {
    let world = World::new();
    let words = ["content", "make", "film.ts", "--duration", "20s", "--bitrate", "5Mbit/s"];
    let made = world.run(&words).code(0);
    // Where there is no terminal: what it begins, with size and path, and what it came to, with the rate.
    assert_eq!(made.stderr, "making 12.5MB of MPEG-2 content (5Mbit/s, 20s): film.ts\n");
    let is_summary = |line: &str| {
        line.starts_with("film.ts: 20s, 500 frames, ")
            && (line.ends_with(" MB/s)\n") || line.ends_with(" GB/s)\n"))
    };
    let has_time = made.stdout.contains(" s, ") || made.stdout.contains(" ms, ");
    assert!(is_summary(&made.stdout) && has_time, "{}", made.stdout);
    let indexed = world.run(&["content", "index", "film.ts"]).code(0);
    let bytes = std::fs::metadata(world.path("film.ts")).unwrap().len();
    assert!(bytes.abs_diff(12_500_000) < 50_000, "{bytes}");
    assert!(
        indexed.stderr.starts_with("indexing 12.") && indexed.stderr.ends_with("MB: film.ts\n"),
        "{indexed:?}"
    );
    assert!(is_summary(&indexed.stdout), "{}", indexed.stdout);
    let again = [&words[..], &["--replace"]].concat();
    for words in [&again[..], &["content", "index", "film.ts"]] {
        let quiet = world.run(&[words, &["--quiet"]].concat()).code(0);
        assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("", ""), "{words:?}");
    }
}

/// What `make survey` shows of its first minutes: here nothing is left to compile, but the words are the
/// same.
#[test]
fn building_says_what_it_does_and_how_long_it_took() {
    let build = |words: &[&str]| {
        let mut command = Command::new(workspace().join("scripts/build"));
        // What cargo tells a test of its own package would make the build scripts of others run again, and
        // all that depends on them be compiled anew. Cargo's own settings, such as a
        // profile, have to stay for the same reason.
        for (name, _) in std::env::vars_os() {
            let is_named = |name: &str| {
                ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"].iter().any(|prefix| name.starts_with(prefix))
                    || ["CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE", "CARGO_TARGET_TMPDIR", "RUSTC_BOOTSTRAP"]
                        .contains(&name)
            };
            if name.to_str().is_some_and(is_named) {
                command.env_remove(name);
            }
        }
        command.args(words).env("CARGO_TERM_COLOR", "never").stdin(Stdio::null());
        Live::start(command).end(Duration::from_secs(600))
    };
    let ended = build(&["dev"]).code(0);
    let said: Vec<&str> = ended.stdout.lines().collect();
    assert!(said.len() == 2 && said[0].starts_with("kagiri: "), "{said:?}");
    assert!(
        said[1].starts_with("kagiri: target/debug/kagiri is ready after ") && said[1].ends_with(" s"),
        "{said:?}"
    );
    assert!(ended.stderr.contains("Finished"), "cargo is not silenced: {}", ended.stderr);
    build(&["debug"]).code(2).says(&["usage", "release", "dev"]);
    let makefile = std::fs::read_to_string(workspace().join("Makefile")).unwrap();
    assert!(makefile.contains("./scripts/build release") && !makefile.contains("--quiet"), "{makefile}");
}

/// The cargo of a distribution may be years old; its own error message does not help.
#[test]
fn an_old_cargo_is_named_before_anything_is_built() {
    let world = World::new();
    let old = world.write("cargo", "#!/bin/sh\necho 'cargo 1.63.0 (fd9c4297c 2022-07-01)'\n");
    std::fs::set_permissions(&old, PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = Command::new(workspace().join("scripts/build"));
    let path = format!("{}:{}", world.path("").display(), std::env::var("PATH").unwrap());
    command.env("PATH", path).stdin(Stdio::null());
    let ended = Live::start(command).end(Duration::from_secs(30)).code(1);
    assert!(ended.stdout.is_empty(), "nothing was begun: {}", ended.stdout);
    ended.says(&["needs Rust 1.", "cargo is 1.63.0", "rustup"]);
}

/// Lines of the form "measuring 1 stream (search), 0:00 so far, about 20 s left".
#[test]
fn progress_says_what_is_tried_and_how_much_is_left() {
    need_programs!("script");
    let _beside = beside_others();
    let world = World::new();
    let film = ["content", "make", "film.ts", "--duration", "15s", "--bitrate", "2Mbit/s", "--quiet"];
    world.run(&film).code(0);
    let plan = "workload = 'stream'\n[stream]\nmax = 1\nhold = '1s'\nconfirmations = 1\n\
                player.warm_up = '1s'\ncontent.path = 'film.ts'\n";
    world.write("plan.toml", plan.replace("film.ts", world.path("film.ts").to_str().unwrap()));
    let run = world.run(&["run", "plan.toml"]).code(0);
    let (said, ended) = (&run.stderr, run.trials_shown());
    let (first, rest) = said.split_once('\n').expect("lines");
    assert!(
        first.starts_with("up to ") && first.contains(" trials, ") && first.contains("are repeated"),
        "{said}"
    );
    let tried: Vec<&str> = rest.lines().filter(|line| line.starts_with("measuring 1 stream (")).collect();
    assert!(tried.len() == ended && ended >= 1, "every trial says that it begins and how it ends: {said}");
    for line in &tried {
        let (before, left) = line.split_once(" so far, about ").expect("what is left");
        assert!(before.contains("), 0:") && left.ends_with(" s left"), "{line}");
    }
    assert!(tried[0].contains("(search)") && said.contains("preparing"), "{said}");
    let bar = on_a_terminal(&world, "stream --content film.ts --streams 1 --hold 2s", &[]);
    assert!(bar.contains(" s left: measuring 1 stream"), "{bar:?}");
    assert!(bar.contains("00:00:01"), "and the time that has gone: {bar:?}");
}

#[test]
fn standard_input_can_be_the_table() {
    let world = World::new();
    let table = std::fs::File::open(workspace().join("tests/fixtures/reference.csv")).unwrap();
    let mut child =
        world.command(&["explain", "-", "--json"]).stdin(table).stdout(Stdio::piped()).spawn().unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success());
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["limit"]["resource"], "cpu");
}
