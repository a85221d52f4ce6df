//! A run that broke off on a console's host is continued there.

use kagiri_tests::{Console, Ended, LabHosts, World, beside_others, need_root, unique_name, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::{PATIENCE, ask, jobs, start, url, write_plan};

/// Two variants, measured twice: four trials.
const PLAN: &str = "workload = 'transfer'\nrepeats = 2\nname = 'slow and fast'\n[transfer]\ntime = '1s'\n\
                    rate = '20Mbit/s'\n[[variant]]\nname = 'one'\n[[variant]]\nname = 'four'\n\
                    transfer.flows = 4\n";

/// Network namespaces of a lab of two hosts: these, and one for its switches.
const IN_LAB: usize = 3;

fn stored(world: &World, id: &str) -> Value {
    world.run(&["runs", "show", id, "--json"]).code(0).json()
}

/// Of each trial that was not cut: its number, variant, repetition, and when it began.
fn trials(run: &Value) -> Vec<[Value; 4]> {
    const KEYS: [&str; 4] = ["number", "variant", "repetition", "started_at"];
    let trials = run["trials"].as_array().expect("trials").iter();
    trials
        .filter(|trial| trial["account"]["is_cut"] != true)
        .map(|trial| KEYS.map(|key| trial[key].clone()))
        .collect()
}

/// The id of the newest job, and of its run.
fn newest_job(console: &Console) -> (String, String) {
    let job = &jobs(console)[0];
    let text = |key: &str| job[key].as_str().unwrap_or_else(|| panic!("{key}: {job}")).to_owned();
    (text("id"), text("run"))
}

/// The process of a job that runs.
fn process_of(world: &World, job: &str) -> i32 {
    let file = world.data().join("console/jobs").join(job).join("job.json");
    let job: Value = serde_json::from_slice(&std::fs::read(file).expect("the job")).expect("JSON");
    job["process"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a process")
}

/// Kills the process of a job.
fn kill_job(world: &World, job: &str) {
    kill(Pid::from_raw(process_of(world, job)), Signal::SIGKILL).expect("it runs");
}

fn lines(away: &World, file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(away.path(file)).expect("the lines");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn resume(away: &World, console: &Console, run: &str) -> Ended {
    ask(away, console, &["run", "--resume", run])
}

#[test]
fn killed_run_continues_there_while_its_console_is_killed_too() {
    let _beside = beside_others();
    let (world, away) = (World::new(), World::new());
    let console = Console::start(&world);
    let address = console.address.to_string();
    away.write("plan.toml", PLAN);
    let mut first = start(&away, &console, &["run", "plan.toml", "--json-lines=first"]);
    first.wait_for("repetition 2", PATIENCE);
    let (job, id) = newest_job(&console);
    resume(&away, &console, &id).fails(1, &["still measures run", &id, &url(&console)]);
    kill_job(&world, &job);
    let command = format!("kagiri --console {} run --resume {id}", url(&console));
    let ended = first.end(PATIENCE).fails(1, &["ended before the run did", &command]);
    let message = console.get(&format!("/jobs/{job}"))["message"].clone();
    assert_eq!(message, "its process ended before the run did; finished trials are stored");
    assert!(!ended.stderr.contains("lost console"), "{}", ended.stderr);
    let before = stored(&world, &id);
    let kept = trials(&before);
    assert!(before["state"] == "interrupted" && kept.len() >= 2, "{before}");
    let shown = ask(&away, &console, &["runs", "show", "last"]).code(0).stdout;
    assert!(shown.ends_with(&format!("Go on with it: {command}\n")), "{shown}");
    let list = ask(&away, &console, &["runs", "list"]).code(0).stdout;
    let how = format!("(1 run broke off: 'kagiri --console {} run --resume RUN' goes on", url(&console));
    assert!(list.contains(&how), "{list}");

    let mut second = start(&away, &console, &["run", "--resume", "last", "--full", "--json-lines=second"]);
    second.wait_for("measuring", PATIENCE);
    console.end(Signal::SIGKILL);
    second.wait_for("trying again", PATIENCE);
    let console = Console::of(world.start(&["serve", "--listen", &address]));
    let ended = second.end(PATIENCE).code(0);
    let continues = format!("continues run {id} after {} trials", kept.len());
    let ended = ended.says(&[&continues, "reached console"]);
    assert_eq!(ended.stdout, world.run(&["runs", "show", &id]).code(0).stdout);
    let after = stored(&world, &id);
    assert_eq!((&after["state"], &after["failure"]), (&json!("complete"), &Value::Null));
    let all = trials(&after);
    assert_eq!(&all[..kept.len()], &kept[..], "finished trials are kept");
    // A disturbed trial is measured again.
    let mut of: Vec<[&Value; 2]> =
        all.iter().map(|[_, variant, repetition, _]| [variant, repetition]).collect();
    of.dedup();
    let expected = [("one", 1), ("four", 1), ("four", 2), ("one", 2)];
    let expected = expected.map(|(variant, repetition)| [json!(variant), json!(repetition)]);
    assert_eq!(of, expected.iter().map(|[variant, repetition]| [variant, repetition]).collect::<Vec<_>>());
    assert_eq!(after["environment"]["resumed"].as_array().map(Vec::len), Some(1));
    assert_eq!(after["environment"]["resumed"][0]["trials_before"], kept.len());
    let (first, second) = (lines(&away, "first"), lines(&away, "second"));
    assert!(second.iter().all(|line| line["run"] == id.as_str()), "{second:?}");
    let measured = second.iter().filter(|line| line["event"] == "trial").count();
    assert_eq!(measured, all.len() - kept.len(), "{second:?}");
    // Of four searches, two are left.
    let left_s = |lines: &[Value]| {
        let first = lines.iter().find(|line| line["event"] == "trial_began").expect("a trial");
        first["left_s"].as_f64().expect("a time")
    };
    assert!(left_s(&second) < 0.75 * left_s(&first), "{} of {} s", left_s(&second), left_s(&first));

    resume(&away, &console, &id).fails(2, &["was measured to its end", &url(&console)]);
    resume(&away, &console, "none").fails(2, &["no run 'none'", &url(&console)]);
    let hosts = ["run", "--resume", &id, "--listen", "tcp/127.0.0.1:7447"];
    ask(&away, &console, &hosts).fails(2, &["Hosts", "does not work on console"]);
    console.answered("POST", "/jobs", &json!({ "resume": "none" }), 404);
    console.answered("POST", "/jobs", &json!({ "resume": id }), 422);
    let named = console.answered("POST", "/jobs", &json!({ "resume": id, "name": "other" }), 422);
    assert_eq!(named["error"]["field"], "name", "{named}");
    console.answered("POST", "/jobs", &json!({ "resume": id, "toml": PLAN }), 422);
}

#[test]
fn resumed_run_waits_in_the_queue_and_can_be_stopped_and_go_on_again() {
    let _beside = beside_others();
    let (world, away) = (World::new(), World::new());
    let console = Console::start(&world);
    let mut first = start(&away, &console, &["run", &write_plan(&away, "first", 3, "2s")]);
    first.wait_for("pass", PATIENCE);
    first.signal(Signal::SIGINT);
    first.end(PATIENCE).code(130);
    let (begun_by, id) = newest_job(&console);
    let command = format!("Go on with 'kagiri --console {} run --resume {id}'", url(&console));

    let mut other = start(&away, &console, &["run", &write_plan(&away, "other", 100, "1s")]);
    other.wait_for("measuring", PATIENCE);
    let mut second = start(&away, &console, &["run", "--resume", &id]);
    second.wait_for("place 1 in its queue: waits for 'other'", PATIENCE);
    let waiting = jobs(&console)[0]["id"].as_str().expect("an id").to_owned();
    resume(&away, &console, &id).fails(1, &[&waiting, "continues run", "already"]);
    // Its folder is that of the job that began the run.
    let kept = console.answered("DELETE", &format!("/jobs/{begun_by}"), &Value::Null, 409);
    assert!(kept["error"]["message"].as_str().is_some_and(|text| text.contains(&waiting)), "{kept}");
    other.signal(Signal::SIGINT);
    other.end(PATIENCE).code(130);
    second.wait_for("pass", PATIENCE);
    second.signal(Signal::SIGINT);
    second.end(PATIENCE).code(130).says(&["stopping the run", &command]);
    let before = stored(&world, &id);
    let kept = trials(&before);
    assert!(before["state"] == "interrupted" && kept.len() >= 2, "{before}");

    let ended = ask(&away, &console, &["run", "--resume", &id, "--json"]).code(0);
    assert_eq!(ended.stdout, world.run(&["runs", "show", &id, "--json"]).code(0).stdout);
    let run = ended.json();
    assert_eq!(
        (&run["state"], run["environment"]["resumed"].as_array().map(Vec::len)),
        (&json!("complete"), Some(2))
    );
    assert_eq!(&trials(&run)[..kept.len()], &kept[..]);
    wait_until("nothing runs", PATIENCE, || jobs(&console).iter().all(|job| job["ended"].is_string()));
    assert_eq!(console.get("/runs")["runs"].as_array().map(Vec::len), Some(2), "no run was begun anew");
}

#[test]
fn run_in_a_lab_goes_on_after_its_console_and_its_process_were_killed() {
    need_root!();
    let _beside = beside_others();
    let (world, away) = (World::new(), World::new());
    let console = Console::start(&world);
    let address = console.address.to_string();
    let name = unique_name("it");
    let lab = LabHosts::of(&name);
    // A file of the console's host.
    let text =
        format!("name = '{name}'\n[host.a]\n[host.b]\n[[link]]\nbetween = ['a', 'b']\nrate = '100Mbit/s'\n");
    let file = world.write("lab.toml", &text);
    let head = format!("lab = '{}'\n", file.display());
    let plan = PLAN.replace("[transfer]", "[place]\nserver = 'a'\nclients = 'b'\n[transfer]");
    away.write("plan.toml", head + &plan);
    let mut first = start(&away, &console, &["run", "plan.toml"]);
    first.wait_for("repetition 2", PATIENCE);
    let (job, id) = newest_job(&console);
    assert_eq!(lab.namespaces().len(), IN_LAB, "{:?}", lab.namespaces());

    // The run does not need its console, and the next console follows it.
    console.end(Signal::SIGKILL);
    first.wait_for("trying again", PATIENCE);
    assert_eq!(lab.namespaces().len(), IN_LAB, "the lab belongs to the run");
    let console = Console::of(world.start(&["serve", "--listen", &address]));
    first.wait_for("reached console", PATIENCE);
    kill_job(&world, &job);
    first.end(PATIENCE).fails(1, &["ended before the run did", &format!("run --resume {id}")]);
    wait_until("the lab's end", PATIENCE, || lab.namespaces().is_empty());
    let before = stored(&world, &id);
    let kept = trials(&before);
    assert!(before["state"] == "interrupted" && kept.len() >= 2, "{before}");

    // Another lab would make other trials.
    std::fs::write(&file, text.replace("100Mbit/s", "50Mbit/s")).expect("the lab's file");
    resume(&away, &console, &id).fails(2, &["the plan's lab has changed", "restore it", &url(&console)]);
    std::fs::write(&file, text).expect("the lab's file");
    let mut second = start(&away, &console, &["run", "--resume", &id, "--json"]);
    second.wait_for("measuring", PATIENCE);
    assert_eq!(lab.namespaces().len(), IN_LAB, "{:?}", lab.namespaces());
    let process = process_of(&world, &newest_job(&console).0);
    let run = second.end(PATIENCE).code(0).json();
    assert_eq!((&run["run"], &run["state"]), (&json!(id), &json!("complete")), "{}", run["failure"]);
    let all = trials(&run);
    assert_eq!(&all[..kept.len()], &kept[..], "finished trials are kept");
    assert!(all.len() >= 4, "{all:?}");
    assert_eq!(run["environment"]["resumed"][0]["trials_before"], kept.len());
    let doubts = run["doubts"].to_string();
    assert!(!doubts.contains("another environment"), "{doubts}");
    wait_until("the lab's end", PATIENCE, || lab.namespaces().is_empty());
    assert_eq!(console.get("/runs")["runs"].as_array().map(Vec::len), Some(1), "no run was begun anew");
    console.end(Signal::SIGINT).code(0);
    world.assert_nothing_left(process.unsigned_abs());
}
