//! Other traffic beside the messages.

use serde_json::json;

use super::common::{measure, metric};

#[test]
fn background_is_counted_where_it_arrives() {
    for (kind, rate) in [("udp", Some("8Mbit/s")), ("tcp", Some("8Mbit/s")), ("greedy", None)] {
        let found = measure(json!({
            "size": "10kB", "time": "1s", "rate_per_s": 20.0,
            "background": {"kind": kind, "rate": rate, "flows": 2}
        }));
        assert_eq!(metric(&found, "answered"), 20.0, "{kind}");
        let (sent, arrived) =
            (metric(&found, "background_sent_bit_per_s"), metric(&found, "background_bit_per_s"));
        assert!(arrived > 1e6, "{kind}: {arrived}");
        if rate.is_some() {
            assert!(sent < 9e6 && arrived < 9e6, "{kind}: {sent}, {arrived}");
        }
        assert!(found.series.iter().any(|series| series.name == "background_bit_per_s"));
        let table = found.account.tables.iter().find(|table| table.title == "Other traffic").unwrap();
        assert_eq!(table.rows[0][0].text(""), kind);
    }
}

#[test]
fn background_pauses_in_turn() {
    let found = measure(json!({
        "size": "1kB", "time": "2s", "rate_per_s": 10.0,
        "background": {"kind": "udp", "rate": "8Mbit/s", "on": "300ms", "off": "700ms"}
    }));
    let arrived = found.series.iter().find(|series| series.name == "background_bit_per_s").unwrap();
    let idle = arrived.values.iter().filter(|value| **value == Some(0.0)).count();
    assert!(idle >= 5, "{arrived:?}");
}
