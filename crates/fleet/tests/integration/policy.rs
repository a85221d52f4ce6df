//! What a policy lets coordinators do, case by case.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use base::permit::SystemChange;
use fleet::policy::{Action, ActionRequest, HostInfo, Policy};
use proptest::prelude::*;

fn owner() -> HostInfo {
    HostInfo { host: "nas".into(), data_dir: "/var/lib/kagiri".into() }
}

fn policy(text: &str) -> Policy {
    Policy::parse(text, &owner()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn ask(policy: &Policy, part: &str, action: Action<'_>) -> Result<(), String> {
    let fleet =
        ["192.0.2.7".parse().unwrap(), "::ffff:192.0.2.8".parse().unwrap(), "224.0.0.1".parse().unwrap()];
    let request = ActionRequest { coordinator: "c1", part, fleet: &fleet, action };
    policy.decide(&request).map_err(|refusal| refusal.to_string())
}

fn peer(policy: &Policy, address: &str) -> bool {
    let ip: IpAddr = address.parse().unwrap();
    ask(policy, "stream.viewers", Action::Peer(SocketAddr::new(ip, 80))).is_ok()
}

fn with_peers(peers: &str) -> Policy {
    policy(&format!("[[allow]]\nparts = ['*']\npeers = [{peers}]\n"))
}

#[test]
fn refusal_names_host_file_coordinator_part_and_line() {
    let policy = policy("[[allow]]\nparts = ['stream.*']\n\npeers = ['10.0.0.0/8']\nrate_max = '1Gbit/s'\n");
    let message = |part, action| ask(&policy, part, action).unwrap_err();
    assert_eq!(
        message("stream.viewers", Action::Peer("198.51.100.7:80".parse().unwrap())),
        "the policy of host nas (its policy file) does not let coordinator c1 have stream.viewers send to \
         198.51.100.7:80: allowed peers are 10.0.0.0/8 (line 4)"
    );
    let cases = [
        (Action::Rate(2_000_000_000), "send at 2Gbit/s: at most 1Gbit/s is allowed (line 5)"),
        (Action::Rate(u64::MAX), "send as fast as it can: at most 1Gbit/s is allowed (line 5)"),
        (
            Action::Directory(Path::new("/etc")),
            "use the directory /etc: allowed directories are none (line 1)",
        ),
        (
            Action::SystemChange(SystemChange::Network),
            "change the system (network): allowed system changes are none (line 1)",
        ),
        (Action::Program("mpv"), "start mpv: allowed programs are none (line 1)"),
    ];
    for (action, end) in cases {
        let message = message("stream.viewers", action);
        assert!(message.ends_with(end), "{message}");
    }
    let message = message("transfer.source", Action::Run);
    assert!(message.ends_with("run transfer.source: allowed parts are stream.*"), "{message}");
}

#[test]
fn default_policy_allows_private_traffic_only() {
    let policy = Policy::default_for(&owner());
    let inside = ["127.0.0.1", "::1", "10.1.2.3", "172.31.0.1", "192.168.1.1", "fd00::1"];
    for inside in inside {
        assert!(peer(&policy, inside), "{inside}");
    }
    let outside = [
        "8.8.8.8",
        "172.32.0.1",
        "192.169.0.1",
        "2001:db8::1",
        "::ffff:8.8.8.8",
        "::8.8.8.8",
        "64:ff9b::10.0.0.1",
        "2002:a00:1::",
        "0.0.0.0",
        "::",
        "::ffff:0.0.0.0",
        "255.255.255.255",
        "224.0.0.1",
        "ff02::1",
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "192.0.2.7",
        "169.254.1.1",
        "::ffff:169.254.1.1",
        "fe80::1",
        "febf::1",
    ];
    for outside in outside {
        assert!(!peer(&policy, outside), "{outside}");
    }
    assert!(ask(&policy, "any.part", Action::Run).is_ok());
    assert!(ask(&policy, "x.y", Action::Rate(u64::MAX)).is_ok());
    assert!(ask(&policy, "x.y", Action::Directory(Path::new("/var/lib/kagiri/content"))).is_ok());
    for path in ["/var/lib/kagiri-other", "/var/lib", "/var/lib/kagiri/../x", "kagiri"] {
        assert!(ask(&policy, "x.y", Action::Directory(Path::new(path))).is_err(), "{path}");
    }
    assert!(ask(&policy, "x.y", Action::SystemChange(SystemChange::Cgroup)).is_err());
    assert!(ask(&policy, "x.y", Action::Program("mpv")).is_err());
}

#[test]
fn special_addresses_must_be_listed() {
    let cases = [
        ("'0.0.0.0/0'", "8.8.8.8", true),
        ("'0.0.0.0/0'", "0.0.0.0", false),
        ("'0.0.0.0/0'", "255.255.255.255", false),
        ("'0.0.0.0/0'", "239.1.2.3", false),
        ("'0.0.0.0/0'", "169.254.169.254", false),
        ("'169.254.0.0/16'", "169.254.170.2", false),
        ("'169.254.0.0/16'", "169.254.170.3", true),
        ("'fe80::/10'", "fe80::1", true),
        ("'fc00::/7'", "fd00:ec2::254", false),
        ("'fc00::/7'", "fd00:ec2::253", true),
        ("'fd00:ec2::254'", "fd00:ec2::254", true),
        ("'::/0'", "ff02::1", false),
        ("'::/0'", "8.8.8.8", false),
        ("'::/0'", "::ffff:8.8.8.8", false),
        ("'224.0.0.0/3'", "224.0.0.1", false),
        ("'239.0.0.0/8'", "239.1.2.3", true),
        ("'239.0.0.0/8'", "::ffff:239.1.2.3", true),
        ("'ff02::/16'", "ff02::1", true),
        ("'0.0.0.0'", "0.0.0.0", true),
        ("'0.0.0.0'", "::", false),
        ("'255.255.255.255'", "255.255.255.255", true),
        ("'169.254.169.254/32'", "169.254.169.254", true),
        ("'any'", "255.255.255.255", true),
        ("'any'", "::", true),
        ("'::ffff:10.0.0.0/104'", "10.1.1.1", true),
        ("'::ffff:10.0.0.0/104'", "::ffff:10.1.1.1", true),
        ("'::ffff:10.0.0.0/104'", "11.1.1.1", false),
        ("'fleet'", "192.0.2.7", true),
        ("'fleet'", "::ffff:192.0.2.7", true),
        ("'fleet'", "192.0.2.8", true),
        ("'fleet'", "192.0.2.9", false),
        ("'fleet'", "224.0.0.1", false),
        ("'loopback'", "127.9.9.9", true),
        ("'loopback'", "::ffff:127.0.0.1", true),
        ("'loopback'", "::127.0.0.1", false),
    ];
    for (peers, address, allowed) in cases {
        assert_eq!(peer(&with_peers(peers), address), allowed, "{peers} {address}");
    }
    let message = ask(&with_peers("'10.0.0.0/8'"), "a.b", Action::Peer("224.0.0.1:1".parse().unwrap()));
    let message = message.unwrap_err();
    assert!(
        message.contains("224.0.0.1 is a multicast address, which only \"any\" or the address"),
        "{message}"
    );
}

#[test]
fn first_matching_rule_decides_alone() {
    let policy = policy(
        "[[allow]]\ncoordinator = 'lab*'\nparts = ['*']\npeers = ['any']\n\
         [[allow]]\nparts = ['stream.*']\npeers = ['10.0.0.0/8']\nrate_max = '1Gbit/s'\n\
         [[allow]]\nparts = ['*']\npeers = ['any']\nrate_max = '1Mbit/s'\n",
    );
    assert!(peer(&policy, "10.0.0.1") && !peer(&policy, "8.8.8.8"), "the later rule adds nothing to it");
    assert!(ask(&policy, "stream.viewers", Action::Rate(1_000_000_000)).is_ok());
    assert!(ask(&policy, "transfer.source", Action::Peer("8.8.8.8:1".parse().unwrap())).is_ok());
    assert!(ask(&policy, "transfer.source", Action::Rate(2_000_000)).is_err());
}

#[test]
fn policy_error_names_its_line() {
    let cases = [
        ("[[allow]]\nparts = ['*']\npeer = ['any']\n", "line 3: unknown field `peer`"),
        ("[[allow]]\npeers = ['any']\n", "line 1: missing field `parts`"),
        ("[[allow]]\nparts = []\n", "line 2: parts: the list is empty"),
        ("[[allow]]\nparts = ['a b']\n", "line 2: parts: 'a b' is no name pattern"),
        (
            "[[allow]]\nparts = ['*']\npeers = [\n'loopback',\n'10.0.0.0/33']\n",
            "line 5: peers: '10.0.0.0/33' is no peer",
        ),
        (
            "[[allow]]\nparts = ['*']\npeers = ['10.0.0.1/8']\n",
            "line 3: peers: '10.0.0.1/8' has bits beyond its prefix",
        ),
        ("[[allow]]\nparts = ['*']\nrate_max = 5\n", "line 3: "),
        ("[[allow]]\nparts = ['*']\nrate_max = '-5Mbit/s'\n", "line 3: '-5Mbit/s' is not a bit rate"),
        (
            "[[allow]]\nparts = ['*']\ndirectories = ['srv']\n",
            "line 3: directories: 'srv' must be an absolute path",
        ),
        ("[[allow]]\nparts = ['*']\ndirectories = ['/srv/../etc']\n", "line 3: directories: "),
        (
            "[[allow]]\nparts = ['*']\nsystem_changes = ['kernel']\n",
            "line 3: system_changes: write true, false, or",
        ),
        ("[[allow]]\nparts = ['*']\nsystem_changes = 1\n", "line 3: system_changes: write true, false, or"),
        (
            "[[allow]]\nparts = ['*']\nprograms = ['bin/sh']\n",
            "line 3: programs: 'bin/sh' must be an absolute path",
        ),
        (
            "[[allow]]\nparts = ['*']\n\n[[allow]]\nparts = ['a.*']\n",
            "line 4: this rule is never reached: the rule at line 1",
        ),
        ("allow = 3\n", "line 1: "),
        ("[[allow]\n", "line 1: "),
    ];
    for (text, begin) in cases {
        let message = Policy::parse(text, &owner()).unwrap_err().to_string();
        assert!(message.starts_with(begin), "{text}\n{message}");
    }
    let long = format!("[[allow]]\nparts = ['{}']", "a".repeat(70_000));
    assert!(Policy::parse(&long, &owner()).is_err());
    assert!(ask(&policy(""), "a.b", Action::Run).unwrap_err().ends_with("no rule is for this coordinator"));
}

#[test]
fn world_writable_policy_is_rejected() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("policy.toml");
    let message = Policy::load(&path, &owner()).unwrap_err().to_string();
    assert!(message.starts_with(&format!("the policy {}: No such file", path.display())), "{message}");

    std::fs::write(&path, "[[allow]]\nparts = ['a.*']\n").unwrap();
    let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o644);
    let policy = Policy::load(&path, &owner()).unwrap();
    assert!(ask(&policy, "b.c", Action::Run).unwrap_err().contains(&format!("({})", path.display())));
    mode(0o646);
    assert!(Policy::load(&path, &owner()).unwrap_err().to_string().contains("everybody can write it"));
    mode(0o600);
    std::fs::write(&path, "[[allow]]\nparts = ['a.*']\nport = 1\n").unwrap();
    assert!(Policy::load(&path, &owner()).unwrap_err().to_string().contains("line 3: unknown field"));
}

/// The ways to write an IPv4 address as a socket address.
fn forms(v4: Ipv4Addr) -> [IpAddr; 2] {
    [v4.into(), v4.to_ipv6_mapped().into()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// An address outside never passes, one inside always does, however it is written.
    #[test]
    fn only_listed_addresses_pass(bits: u32, prefix in 1u8..=32, address: u32, flip in 0u32..32) {
        let mask = u32::MAX << (32 - prefix);
        let net = Ipv4Addr::from(bits & mask);
        let policy = with_peers(&format!("'{net}/{prefix}'"));
        // Addresses drawn at random are hardly ever near the range: try some that differ from it in one bit.
        for address in [address, bits ^ (1 << flip), bits] {
            let v4 = Ipv4Addr::from(address);
            let special = v4.is_multicast() || v4.is_broadcast() || v4.octets()[0] == 0
                || [[169, 254, 169, 254], [169, 254, 170, 2], [169, 254, 170, 23]].contains(&v4.octets());
            let listed = address & mask == bits & mask;
            for form in forms(v4) {
                let passes = peer(&policy, &form.to_string());
                prop_assert!(listed || !passes, "{form} passes {net}/{prefix}");
                prop_assert!(special || passes == listed, "{form} {net}/{prefix}");
            }
        }
    }

    /// Without a file no traffic leaves the private ranges.
    #[test]
    fn nothing_public_passes_by_default(address: u32, low: u128) {
        let policy = Policy::default_for(&owner());
        let v4 = Ipv4Addr::from(address);
        let private = v4.is_private() || v4.is_loopback();
        for form in forms(v4) {
            prop_assert!(private || !peer(&policy, &form.to_string()), "{}", form);
        }
        let v6 = std::net::Ipv6Addr::from(low >> 3 | 1 << 125);
        prop_assert!(!peer(&policy, &v6.to_string()), "{} is global unicast (2000::/3)", v6);
    }
}
