//! Agents' policies in TOML; an accepted policy never permits traffic that it does not list, however it is
//! addressed.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use fleet::policy::{Action, ActionRequest, HostInfo, Policy};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let owner = HostInfo { host: "nas".into(), data_dir: "/data".into() };
    let policy = match Policy::parse(&text, &owner) {
        Ok(policy) => policy,
        Err(fleet::policy::PolicyError::Text { problem, line }) => {
            assert!(!problem.is_empty());
            assert!(
                line.is_none_or(|line| (1..=text.lines().count() + 1).contains(&line)),
                "{line:?}: {problem}"
            );
            return;
        }
        Err(other) => panic!("a text has no file: {other}"),
    };
    let decide = |action| {
        let decided =
            policy.decide(&ActionRequest { coordinator: "c1", part: "stream.viewers", fleet: &[], action });
        if let Err(refusal) = &decided {
            assert!(refusal.to_string().starts_with("the policy of host nas"), "{refusal}");
        }
        decided.is_ok()
    };
    let runs = decide(Action::Run);
    let peer = |ip: IpAddr| decide(Action::Peer(SocketAddr::new(ip, 80)));
    // The policy's own bytes make addresses that are near those in it.
    for bytes in data.chunks_exact(4).take(16).chain([&[8, 8, 8, 8][..], &[0; 4], &[255; 4], &[10, 0, 0, 1]])
    {
        let v4 = Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]);
        let passes = peer(v4.into());
        assert_eq!(passes, peer(v4.to_ipv6_mapped().into()), "{v4} depends on how it is written");
        assert!(runs || !passes, "a part that must not run may send");
        assert!(!passes || text.contains("any") || text.contains("loopback") || text.contains(['.', ':']));
    }
    assert!(!decide(Action::Directory("/data/../etc".as_ref())), "it leads out");
    let _ = (decide(Action::Rate(u64::MAX)), decide(Action::Program("mpv")));
});
