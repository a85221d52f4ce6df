//! What a part may do on a host: a policy applied to its file system and its parts.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use base::permit::{Permit, SystemChange};
use fleet::policy::{Grant, HostInfo, Policy};

fn policy(text: &str) -> Arc<Policy> {
    let owner = HostInfo { host: "nas".into(), data_dir: "/var/lib/kagiri".into() };
    Arc::new(Policy::parse(text, &owner).unwrap_or_else(|error| panic!("{error}\n{text}")))
}

#[test]
fn directories_are_compared_by_their_targets() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for name in ["data", "data/deep", "outside", "data-too"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    std::os::unix::fs::symlink(at("outside"), at("data/out")).unwrap();
    std::os::unix::fs::symlink(at("data"), at("in")).unwrap();
    std::os::unix::fs::symlink(at("later"), at("data/dangling")).unwrap();
    let owner = HostInfo { host: "nas".into(), data_dir: at("in") };
    let policy = Arc::new(Policy::default_for(&owner));
    let grant = Grant::new(policy, "c1", "stream.server", Vec::new()).unwrap();
    let cases = [
        ("data", true),
        ("in", true),
        ("data/deep", true),
        ("data/new/below", true),
        ("in/new", true),
        ("data/deep/..", true),
        ("data/deep/../..", false),
        ("data/new/..", false),
        ("data/new/../../outside", false),
        ("data/out", false),
        ("data/out/new", false),
        ("data/dangling", false),
        ("data/dangling/new", false),
        ("data-too", false),
        ("outside", false),
    ];
    for (name, allowed) in cases {
        let came = grant.directory(&at(name));
        assert_eq!(came.is_ok(), allowed, "{name}: {came:?}");
    }
    let message = grant.directory(&at("data/out")).unwrap_err();
    assert!(
        message.usage && message.message.contains("it leads to") && message.message.contains("/outside"),
        "{message}"
    );
    assert!(grant.directory(Path::new("data")).unwrap_err().message.contains("not absolute"));
}

#[test]
fn parts_under_one_rule_share_its_rate() {
    let policy = policy("[[allow]]\nparts = ['*']\nrate_max = '10Mbit/s'\n");
    let grant = |part| Grant::new(policy.clone(), "c1", part, Vec::new()).unwrap();
    let (one, two) = (grant("a.b"), grant("a.c"));
    assert_eq!(one.rate(8_000_000), Ok(()));
    let message = two.rate(4_000_000).unwrap_err().message;
    assert!(
        message.ends_with("at most 10Mbit/s is allowed (line 3), of which other parts have 8Mbit/s"),
        "{message}"
    );
    assert_eq!(one.rate(6_000_000), Ok(()), "a part may change its mind");
    assert_eq!(two.rate(4_000_000), Ok(()));
    assert!(one.rate(6_000_001).is_err() && two.rate(u64::MAX).is_err());
    drop(one);
    assert_eq!(two.rate(10_000_000), Ok(()), "what ends gives back its rate");
}

#[test]
fn grant_follows_the_policy() {
    let policy = policy(
        "[[allow]]\nparts = ['a.*']\nsystem_changes = ['cgroup']\nprograms = ['mpv', '/usr/bin/vlc']\n\
         peers = ['fleet']\n",
    );
    assert!(Grant::new(policy.clone(), "c1", "b.c", Vec::new()).is_err());
    let grant = Grant::new(policy, "c1", "a.b", vec![Ipv4Addr::new(192, 0, 2, 1).into()]).unwrap();
    assert!(grant.peer("192.0.2.1:80".parse().unwrap()).is_ok());
    assert!(grant.peer("192.0.2.2:80".parse().unwrap()).is_err());
    assert!(grant.system_change(SystemChange::Cgroup).is_ok());
    assert!(grant.system_change(SystemChange::Cache).is_err());
    for (program, allowed) in [
        ("mpv", true),
        ("/usr/bin/vlc", true),
        ("vlc", false),
        ("/tmp/mpv", false),
        ("./mpv", false),
        ("any", false),
    ] {
        assert_eq!(grant.program(program).is_ok(), allowed, "{program}");
    }
    assert!(grant.rate(u64::MAX).is_ok(), "no limit where none is written");
}
