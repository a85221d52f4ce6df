//! Settings and advice of a console's host. The witness is the same command there, without `--console`.

use std::process::Command;
use std::time::Duration;

use kagiri_tests::{Ended, Live, Namespaces, World, beside_others, need_root};
use serde_json::{Value, json};

use crate::console::request::Inside;
use crate::tune_advise::PROGRAM;

const PATIENCE: Duration = Duration::from_secs(30);

fn there(world: &World, net: &Namespaces, words: &[&str]) -> Ended {
    Live::start(net.on_with_mounts("a", &world.command(words))).end(PATIENCE)
}

#[test]
fn settings_are_those_of_the_console_and_name_what_is_set_there() {
    need_root!();
    let _beside = beside_others();
    let (world, net) = (World::with_own_journal(), Namespaces::new(&["a"]));
    let console = Inside::start(&world, &net);
    let agree = |words: &[&str]| {
        let answer = console.command(words).code(0).stdout;
        assert_eq!(answer, there(&world, &net, words).code(0).stdout, "{words:?}");
        answer
    };
    let forms: [&[&str]; 5] = [
        &["tune", "list"],
        &["tune", "list", "--full"],
        &["tune", "list", "--json"],
        &["tune", "list", "tcp_sack"],
        &["tune", "list", "tcp_sack", "--json"],
    ];
    let before: Vec<String> = forms.iter().map(|words| agree(words)).collect();
    let asked = json!({ "settings": { "tcp_sack": "0" }, "for_s": 600 });
    let set = console.answered("POST", "/settings/set", &asked, 201);
    let during: Vec<String> = forms.iter().map(|words| agree(words)).collect();
    assert!(during[0].contains("has set net.ipv4.tcp_sack=0 (for 10min)"), "{}", during[0]);
    let one: Value = serde_json::from_str(&during[4]).expect("JSON");
    assert_eq!(one["settings"].as_array().map(Vec::len), Some(1), "{one:#}");
    assert_eq!((&one["settings"][0]["value"], &one["set"][0]), (&json!("0"), &set["record"]), "{one:#}");
    // This host has another value.
    let own = world.run(&["tune", "list", "tcp_sack", "--json"]).code(0).json();
    assert_eq!((&own["settings"][0]["value"], &own["set"]), (&json!("1"), &json!([])), "{own:#}");
    let id = set["id"].as_str().expect("an id");
    let undone = console.answered("POST", &format!("/settings/applied/{id}/undo"), &Value::Null, 200);
    assert_eq!(undone["record"], Value::Null, "{undone:#}");
    assert_eq!(forms.iter().map(|words| agree(words)).collect::<Vec<_>>(), before);

    console.command(&["tune", "list", "tcp_wmen"]).fails(2, &["did you mean 'net.ipv4.tcp_wmem'?"]);
    for words in [&["tune", "set", "tcp_sack=0"][..], &["tune", "undo"], &["tune", "auto", "plan.toml"]] {
        console.command(words).fails(2, &["does not work on console", "tune advise, tune list"]);
    }
}

#[test]
fn advice_is_about_the_console_and_names_its_host() {
    need_root!();
    let _beside = beside_others();
    let (world, net) = (World::with_own_journal(), Namespaces::new(&["a"]));
    world.write("program.py", PROGRAM);
    let console = Inside::start(&world, &net);
    let start = |mode: &str| {
        let mut command = Command::new("python3");
        command.args(["program.py", mode, "127.0.0.1"]).current_dir(world.path(""));
        let mut live = Live::start(net.on("a", &command));
        live.wait_for("ready", PATIENCE);
        live
    };
    // A UDP socket that is never read, until its buffer is full.
    let (_deaf, _shout) = (start("deaf"), start("shout"));
    std::thread::sleep(Duration::from_secs(1));
    let document = console.command(&["tune", "advise", "--for", "2s", "--json"]).code(0).json();
    let local = there(&world, &net, &["tune", "advise", "--for", "2s", "--json"]).code(0).json();
    let keys = |document: &Value| document.as_object().expect("keys").keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&document), keys(&local));
    for (key, from, to) in [("observed_s", 1.9, 10.0), ("udp_sockets", 2.0, 2.0), ("tcp_sockets", 1.0, 100.0)]
    {
        let value = document[key].as_f64().expect("a number");
        assert!((from..=to).contains(&value), "{key}: {document:#}");
    }
    for document in [&document, &local] {
        let statement = &document["statements"][0];
        assert_eq!(statement["setting"], "net.core.rmem_default", "{document:#}");
        assert!(statement["counters"][1]["value"].as_u64() > Some(100), "{document:#}");
    }
    let host = console.get("/console")["host"].as_str().expect("a name").to_owned();
    let ended = console.command(&["tune", "advise", "--for", "2s"]).code(0).says(&["Watching", &host]);
    let text = ended.stdout;
    assert!(text.contains(&format!("watched on {host}: ")) && text.contains("RcvbufErrors"), "{text}");
    assert!(text.contains(&format!("try    on {host}: kagiri tune set net.core.rmem_default=")), "{text}");
    assert!(text.lines().count() <= 15 && text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for time in ["90s", "1500ms", "0s"] {
        console.command(&["tune", "advise", "--for", time]).fails(2, &["--for", "1 s to 60 s"]);
    }
}
