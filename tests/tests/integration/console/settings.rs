//! Settings of the kernel, set from the console: for a time, kept, undone, changed by others meanwhile.

use std::process::Command;
use std::time::Duration;

use kagiri_tests::{Live, Namespaces, World, beside_others, need_root, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::request::Inside;

const PATIENCE: Duration = Duration::from_secs(30);

/// The value of a setting of host `a`, as the kernel has it.
fn value(net: &Namespaces, name: &str) -> String {
    let mut cat = Command::new("cat");
    cat.arg(format!("/proc/sys/net/ipv4/{name}")).current_dir("/");
    Live::start(net.on("a", &cat)).end(PATIENCE).code(0).stdout.trim().to_owned()
}

fn set_by_others(net: &Namespaces, name: &str, to: &str) {
    let mut sysctl = Command::new("sysctl");
    sysctl.args(["-q", "-w", &format!("net.ipv4.{name}={to}")]).current_dir("/");
    Live::start(net.on("a", &sysctl)).end(PATIENCE).code(0);
}

/// Sets what differs from the kernel's default in the tests' namespaces.
fn set(console: &Inside<'_>, settings: Value, for_s: u64) -> Value {
    console.answered("POST", "/settings/set", &json!({ "settings": settings, "for_s": for_s }), 201)
}

fn act(console: &Inside<'_>, set: &Value, what: &str) -> Value {
    let id = set["id"].as_str().expect("an id");
    console.answered("POST", &format!("/settings/applied/{id}/{what}"), &Value::Null, 200)
}

fn outcomes(applied: &Value) -> Vec<&str> {
    let changes = applied["changes"].as_array().expect("changes").iter();
    changes.map(|change| change["outcome"].as_str().unwrap_or("none")).collect()
}

#[test]
fn settings_are_set_for_a_time_and_undone() {
    need_root!();
    let _beside = beside_others();
    let (world, net) = (World::with_own_journal(), Namespaces::new(&["a"]));
    let console = Inside::start(&world, &net);
    assert_eq!(value(&net, "tcp_sack"), "1");
    console.answered("POST", "/settings/set", &json!({ "settings": { "tcp_sack": 7 }, "for_s": 60 }), 422);
    // No command can get a zero byte.
    for wrong in [json!({ "tcp_sack": "0\0" }), json!({ "tcp_\0sack": "0" }), json!({ "tcp_sack": "0\n1" })] {
        let asked = json!({ "settings": wrong, "for_s": 60 });
        console.answered("POST", "/settings/set", &asked, 422);
    }
    let applied = set(&console, json!({ "tcp_sack": "0" }), 600);
    assert_eq!(value(&net, "tcp_sack"), "0");
    assert_eq!((&applied["state"], &applied["changes"][0]["before"]), (&json!("applied"), &json!("1")));
    // A second one would take the changed value for the original.
    let again = json!({ "settings": { "tcp_sack": "1" }, "for_s": 600 });
    console.answered("POST", "/settings/set", &again, 409);
    assert_eq!(outcomes(&act(&console, &applied, "undo")), ["restored"]);
    assert_eq!(value(&net, "tcp_sack"), "1");
    let id = applied["id"].as_str().expect("an id");
    console.answered("POST", &format!("/settings/applied/{id}/keep"), &Value::Null, 409);
}

#[test]
fn timer_ends_after_the_server_was_killed_and_the_next_server_lists_how() {
    need_root!();
    let _beside = beside_others();
    let (world, net) = (World::with_own_journal(), Namespaces::new(&["a"]));
    let first = Inside::start(&world, &net);
    set(&first, json!({ "tcp_sack": "0", "tcp_notsent_lowat": "131072" }), 15);
    first.end(Signal::SIGKILL);
    assert_eq!([value(&net, "tcp_sack"), value(&net, "tcp_notsent_lowat")], ["0", "131072"]);
    // Another program changes one of them meanwhile, to a third value.
    set_by_others(&net, "tcp_notsent_lowat", "65536");
    wait_until("restored by its timer", PATIENCE, || value(&net, "tcp_sack") == "1");
    let second = Inside::start(&world, &net);
    let mut listed = Value::Null;
    wait_until("its process has ended", PATIENCE, || {
        listed = second.get("/settings/applied")[0].take();
        listed["state"] == "ended"
    });
    assert_eq!(outcomes(&listed).iter().filter(|one| **one == "restored").count(), 1, "{listed:#}");
    assert_eq!(value(&net, "tcp_notsent_lowat"), "65536");
}

#[test]
fn kept_settings_stay_and_are_put_back_unless_others_changed_them() {
    need_root!();
    let _beside = beside_others();
    let (world, net) = (World::with_own_journal(), Namespaces::new(&["a"]));
    let first = Inside::start(&world, &net);
    let applied = set(&first, json!({ "tcp_sack": "0", "tcp_notsent_lowat": "131072" }), 600);
    // What another program has changed meanwhile is not kept, and not overwritten.
    let third = set(&first, json!({ "tcp_slow_start_after_idle": "0", "tcp_ecn": "1" }), 600);
    set_by_others(&net, "tcp_ecn", "0");
    let kept = act(&first, &third, "keep");
    assert_eq!(outcomes(&kept).iter().filter(|one| **one == "left_alone").count(), 1, "{kept:#}");
    assert_eq!([value(&net, "tcp_ecn"), value(&net, "tcp_slow_start_after_idle")], ["0", "0"]);
    let before = applied["changes"].as_array().and_then(|all| {
        let lowat = all.iter().find(|one| one["name"] == "net.ipv4.tcp_notsent_lowat")?;
        lowat["before"].as_str().map(str::to_owned)
    });
    assert!(before.is_some_and(|before| before != "131072"), "{applied:#}");
    let kept = act(&first, &applied, "keep");
    assert_eq!((outcomes(&kept), &kept["can_be_put_back"]), (vec!["kept", "kept"], &json!(true)), "{kept:#}");
    first.end(Signal::SIGKILL);
    assert_eq!(value(&net, "tcp_sack"), "0");
    // Its record stays as long as it can be put back.
    let folder = world.data().join("console/settings").join(applied["id"].as_str().expect("an id"));
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(7200);
    let end = std::fs::File::options().append(true).open(folder.join("stdout")).expect("a file");
    end.set_modified(long_ago).expect("an older time");
    let second = Inside::start(&world, &net);
    let all = second.get("/settings/applied");
    assert!(all.as_array().is_some_and(|all| all.iter().any(|one| one["id"] == applied["id"])), "{all:#}");
    set_by_others(&net, "tcp_notsent_lowat", "65536");
    let back = act(&second, &applied, "undo");
    let by_name = |name: &str| {
        let changes = back["changes"].as_array().expect("changes");
        changes.iter().find(|one| one["name"] == name).expect("a change").clone()
    };
    assert_eq!(by_name("net.ipv4.tcp_sack")["outcome"], "restored", "{back:#}");
    let left = by_name("net.ipv4.tcp_notsent_lowat");
    assert_eq!(left["outcome"], "left_alone", "{back:#}");
    assert!(left["note"].as_str().is_some_and(|note| note.contains("65536")), "{back:#}");
    assert_eq!((value(&net, "tcp_sack").as_str(), value(&net, "tcp_notsent_lowat").as_str()), ("1", "65536"));
    // It is done once.
    let id = applied["id"].as_str().expect("an id");
    second.answered("POST", &format!("/settings/applied/{id}/undo"), &Value::Null, 404);
}
