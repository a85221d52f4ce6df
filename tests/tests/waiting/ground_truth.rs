//! Servers whose disk or link is the known limit: the search finds it and names its cause.

use kagiri_tests::{beside_others, found, need_programs, need_root, search, shortened};

#[test]
fn a_slow_disk_carries_four() {
    need_root!();
    need_programs!("mkfs.ext3");
    let mut plan = shortened("disk-limited.toml", 3, "6s", "10s", Some("2s"));
    plan["stream"]["max"] = 5.into();
    // Long enough that five evenly spread streams read disjoint parts.
    plan["stream"]["content"]["duration"] = "150s".into();
    plan["variant"]
        .as_array_mut()
        .expect("variants")
        .retain(|variant| variant["name"].as_str() == Some("ext3"));
    let document = search(beside_others(), &plan, |it| found(it) == (4.0, "disk"));
    assert_eq!(found(&document), (4.0, "disk"), "{}", document["limit"]);
    assert_eq!(document["variants"][0]["name"], "ext3");
}

#[test]
fn a_narrow_link_carries_four() {
    need_root!();
    need_programs!("ip", "tc");
    let mut plan = shortened("network-limited.toml", 3, "5s", "8s", None);
    plan["stream"]["max"] = 5.into();
    let is_confirmed = |it: &serde_json::Value| it["limit"]["certainty"] == "confirmed";
    // The link's queue may drop nothing: TCP small queues bound what the sender queues. So check the evidence
    // instead.
    let waited = |it: &serde_json::Value| {
        it["limit"]["evidence"].to_string().contains("the network limited the server's connections")
    };
    let document =
        search(beside_others(), &plan, |it| found(it) == (4.0, "network") && is_confirmed(it) && waited(it));
    assert_eq!(found(&document), (4.0, "network"), "{}", document["limit"]);
    assert!(is_confirmed(&document) && waited(&document), "{}", document["limit"]);
}
