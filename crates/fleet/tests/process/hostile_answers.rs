//! A taken-over agent answers with JSON whose values take a hundred times the memory of its text.

use std::time::{Duration, Instant};

use crate::common::{GUARD, bus, coordinator, endpoint, spec, wish};
use crate::scale::memory_bytes;
use crate::scripted_agent::{ScriptedAgent, honest_except};
use base::part::Endpoints;
use fleet::Bus;
use fleet::protocol::{MESSAGE_BYTES_MAX, PROTOCOL};
use serde_json::json;

/// What one answer may cost the coordinator, above idle; and what this process adds, which is the agent, too.
const COST_MAX_BYTES: u64 = (64 << 20) + 3 * MESSAGE_BYTES_MAX as u64;

#[test]
fn memory_for_one_hostile_answer_is_bounded() {
    let _alone = crate::alone();
    let dir = tempfile::tempdir().unwrap();
    let items = vec!["{}"; (MESSAGE_BYTES_MAX - 4096) / 3].join(",");
    let bomb = format!(r#"{{"stopped":{{"a":{{"Ok":[{items}]}}}}}}"#).into_bytes();
    let endpoint = endpoint();
    let mut coordinator = coordinator(&endpoint, "run");
    let _odd = ScriptedAgent::join("odd", &endpoint, PROTOCOL, honest_except("odd", "stop", vec![bomb]));
    coordinator.recruit(&[wish("odd")], GUARD, &|_| {}).unwrap();
    let mut bus = bus(coordinator, dir.path());
    bus.place(vec![spec("a", "odd", json!({}))]).unwrap();
    bus.prepare(&["a"], &Endpoints::new()).unwrap();
    let before = memory_bytes();
    let (sender, stopped) = std::sync::mpsc::channel();
    let mut most = before;
    std::thread::scope(|scope| {
        // The kernel's count of resident memory is the witness.
        let watch = scope.spawn(move || {
            let mut most = 0;
            let deadline = Instant::now() + GUARD;
            while stopped.recv_timeout(Duration::from_millis(2)).is_err() && Instant::now() < deadline {
                most = memory_bytes().max(most);
            }
            most
        });
        let why = bus.stop(&["a"]).remove("a").unwrap().unwrap_err().to_string();
        sender.send(()).unwrap();
        most = watch.join().unwrap().max(most);
        assert!(why.contains("odd") && why.contains("memory"), "{why}");
    });
    let cost = most - before;
    assert!(cost <= COST_MAX_BYTES, "one answer costs {} MiB", cost >> 20);
}
