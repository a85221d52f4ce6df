//! Timelines of timed calls in reports.

use std::process::Command;

use kagiri_tests::{Live, World, alone, need_programs, set_like, workspace};
use serde_json::Value;

use super::PATIENCE;

/// A layer's spans in a stored figure.
fn spans<'a>(
    figure: &'a Value,
    is_wanted: impl Fn(&str) -> bool + 'a,
) -> impl Iterator<Item = [f64; 3]> + 'a {
    let layers = figure["layers"].as_array().expect("layers").iter();
    let wanted = layers.filter(move |layer| is_wanted(layer["name"].as_str().expect("a name")));
    let at = wanted.flat_map(|layer| layer["marks"]["at"].as_array().into_iter().flatten());
    at.map(|span| [0, 1, 2].map(|at| span[at].as_f64().expect("a number")))
}

/// The calls of a thread, one every 5 ms, as strace writes them down, when each began, s.
fn traced(text: &str, thread: &str, call: &str) -> Vec<f64> {
    let of_thread = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let made = of_thread.filter(|words| words[0] == thread && words[2].starts_with(&format!("{call}(")));
    made.map(|words| words[1].parse().expect("a time")).collect()
}

#[test]
fn calls_of_a_stretch_are_those_that_strace_sees() {
    need_programs!("strace");
    let _alone = alone();
    let world = World::new();
    let words = ["transfer", "--protocol", "udp", "--size", "1000B", "--rate", "1.6Mbit/s", "--time", "1s"];
    let plain = world.command(&[&words[..], &["--calls", "--json", "--quiet"]].concat());
    let mut command = Command::new("strace");
    command.args(["-f", "-ttt", "-e", "trace=sendmsg,sendto,clock_nanosleep", "-o", "trace"]);
    command.arg(plain.get_program()).args(plain.get_args());
    set_like(&mut command, &plain);
    let document = Live::start(command).end(PATIENCE).code(0).json();
    let account = &document["trials"][0]["account"];
    let figures = account["figures"].as_array().expect("figures");
    let sender = figures.iter().find(|figure| figure["title"] == "Timeline: calls of the sender up");
    let sender = sender.unwrap_or_else(|| panic!("no timeline: {figures:?}"));
    let labels = sender["layers"].as_array().expect("layers").iter();
    let label = labels.filter_map(|layer| layer["marks"]["label"].as_str()).next().expect("a thread");
    let thread = label.rsplit(' ').next().expect("a number");
    let text = std::fs::read_to_string(world.path("trace")).expect("the trace");
    let table = account["tables"].as_array().expect("tables").iter();
    let table = table.clone().find(|table| table["title"] == "Calls of the sender up").expect("its table");
    let rows = || table["cells"].as_array().expect("rows").iter();
    let mut calls = 0;
    for call in ["sendmsg", "sendto"] {
        let all = traced(&text, thread, call);
        let name = call.trim_end_matches("to");
        let counted: f64 =
            rows().filter(|row| row[0] == name).map(|row| row[2].as_f64().expect("a count")).sum();
        assert_eq!(all.len() as f64, counted, "{call}, of the whole time");
        let mut seen: Vec<f64> = spans(sender, |layer| layer.split(',').next() == Some(name))
            .map(|[_, from_s, _]| from_s)
            .collect();
        seen.sort_by(f64::total_cmp);
        calls += seen.len();
        let Some(first) = seen.first() else { continue };
        // The clocks differ, so only the time from call to call can be compared; strace takes some of it.
        let is_here = |all: &[f64]| {
            all.iter().zip(&seen).all(|(one, other)| ((one - all[0]) - (other - first)).abs() < 0.002)
        };
        assert!(all.windows(seen.len()).any(is_here), "{call}: {seen:?} is not within {all:?}");
    }
    // One every 5 ms, in a tenth of a second.
    assert!((15..=25).contains(&calls), "{calls} calls in {sender:#}");
}

#[test]
fn report_of_a_plan_has_the_timelines_of_its_variants() {
    need_programs!("openssl", "base64");
    let _alone = alone();
    let world = World::new();
    let plan = std::fs::read_to_string(workspace().join("plans/call-timeline.toml")).expect("the plan");
    world.write("plan.toml", plan.replace("time = \"1s\"", "time = \"300ms\""));
    world.measure(&["run", "plan.toml", "--repeat", "1"], PATIENCE).code(0);
    let page = world.run(&["report", "last", "-o", "-"]).code(0).stdout;
    assert_eq!(page.matches("<section class=\"timeline\"").count(), 8, "both ends of four variants");
    assert!(page.len() <= 400_000, "{} bytes", page.len());
    for part in ["Calls of the sender up", "epoll_pwait2", "recvmsg", "in a stretch of"] {
        assert!(page.contains(part), "no '{part}'");
    }
    if nix::unistd::geteuid().is_root() {
        assert!(page.contains("Network softirqs of the sender"), "the driver's period");
    }
    // The page runs this script and its own, and no other.
    let words = "openssl dgst -sha256 -binary \"$1\" | base64";
    for script in ["html/pointing.js", "timeline/viewer.js"] {
        let file = workspace().join("crates/report/src").join(script);
        let output = Command::new("sh").args(["-c", words, "sh"]).arg(file).output().expect("sh runs");
        let hash = format!("'sha256-{}'", String::from_utf8_lossy(&output.stdout).trim());
        let policy = page.split("script-src ").nth(1).and_then(|rest| rest.split(';').next());
        assert!(policy.is_some_and(|policy| policy.contains(&hash)), "{script}: {hash} in {policy:?}");
    }
}
