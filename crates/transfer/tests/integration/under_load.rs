//! Requests on the idle path and beside a load, between a real client and a real server over loopback.

use serde_json::json;

use crate::native_common::*;
use base::outcome::Marks;
use base::verdict::Verdict;
use sys::clock::monotonic_ns;
use transfer::flow::Direction;
use transfer::judge::judge;
use transfer::native::NativeSettings;

#[test]
fn requests_are_answered_before_and_beside_the_load() {
    let (server, natives) = server(NativeSettings::default());
    let asked = json!({
        "under_load": "500ms", "time": "1s", "direction": "both", "flows": 2, "rate": "5Mbit/s",
        "requests": { "size": "64B", "answer_size": "10B" },
    });
    let settings = settings(asked);
    let ready = prepare(server.local_addr(), &settings).unwrap();
    // All threads are there by then, so that no request is late.
    let report = ready.run(monotonic_ns() + 300_000_000);
    assert_eq!(report.broken, None);
    let (idle, loaded) = (report.idle_responses.clone().unwrap(), report.responses.clone().unwrap());
    // 200 a second.
    assert_eq!((idle.answered + idle.unanswered, loaded.answered + loaded.unanswered), (100, 200));
    assert_eq!((idle.unanswered, loaded.unanswered), (0, 0));
    for direction in [Direction::Up, Direction::Down] {
        let (sender, receiver) = ends(&report, direction);
        assert_eq!((sender.bytes(), sender.flows.len()), (receiver.bytes(), 2), "{direction:?}");
        // Nothing but requests moves before the load begins.
        for end in [sender, receiver] {
            assert!(end.intervals.iter().all(|(from_s, ..)| *from_s >= 0.5), "{:?}", end.intervals);
        }
    }
    assert!(report.hold_s.0 == 0.5 && report.hold_s.1 >= 1.5, "{:?}", report.hold_s);
    // The server counts the same requests and bytes, in sessions of their own.
    let sessions = session_ends(&natives, 3);
    let received = |direction: Direction| {
        let ways = sessions.iter().flat_map(|session| &session.directions);
        let found = ways.filter(|way| way.direction == direction).filter_map(|way| way.receiver.as_ref());
        found.map(|end| end.bytes()).collect::<Vec<_>>()
    };
    let mut counted = received(Direction::Up);
    counted.sort_unstable();
    assert_eq!(counted[..2], [64 * 100, 64 * 200], "{counted:?}");
    assert_eq!(counted[2], ends(&report, Direction::Up).0.bytes());
    let judgement = judge(&settings, &report);
    assert_eq!(judgement.verdict, Verdict::Pass, "{:?}", judgement.reasons);
    for name in ["round_trips_per_min", "idle_round_trips_per_min", "idle_response_p99_us"] {
        assert!(judgement.metrics[name].unwrap() > 0.0, "{name}");
    }
    let headline = judgement.account.headline.unwrap();
    assert!(headline.contains(" round trips a minute under load"), "{headline}");
    assert!(headline.contains("Mbit/s up and ") && headline.contains("Mbit/s down"), "{headline}");
    let over_time = &judgement.account.figures[1];
    let rule = over_time.layers.iter().find_map(|layer| match &layer.marks {
        Marks::Down { x, .. } => Some(*x),
        _ => None,
    });
    assert_eq!(rule, Some(0.5));
}

#[test]
fn load_that_breaks_off_ends_the_trial_with_its_reason() {
    let (mut server, _) = server(NativeSettings::default());
    let settings = settings(json!({ "under_load": "200ms", "time": "60s", "rate": "10Mbit/s" }));
    let ready = prepare(server.local_addr(), &settings).unwrap();
    let (report, took) = interrupted(ready, Direction::Up, || server.stop());
    assert!(report.broken.is_some() && took.as_secs() < 30, "{:?} after {took:?}", report.broken);
    assert_eq!(judge(&settings, &report).verdict, Verdict::Fail);
}
