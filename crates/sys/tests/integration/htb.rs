//! An HTB in front of an interface, with tc(8) as the independent witness.

use std::process::Command;

use crate::common::{Pair, as_root, own_name};
use sys::Error;
use sys::journal::{Journal, Outcome};
use sys::netns::Namespace;
use sys::shaping::{Htb, HtbClass, Sysctl};

fn class(rate_bit_per_s: u64, ceil_bit_per_s: u64, priority: u8) -> HtbClass {
    HtbClass { rate_bit_per_s, ceil_bit_per_s, priority }
}

/// What `tc` prints about `eth0`.
fn tc(namespace: &Namespace, arguments: &[&str]) -> String {
    let output = namespace.within(|| Command::new("tc").args(arguments).output()).unwrap().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn qdisc(namespace: &Namespace) -> String {
    tc(namespace, &["-s", "qdisc", "show", "dev", "eth0"])
}

fn classes(namespace: &Namespace) -> String {
    tc(namespace, &["-s", "class", "show", "dev", "eth0"])
}

#[test]
fn htb_is_made_changed_and_deleted_as_tc_sees_it() {
    let Some((_folder, journal)) = as_root() else { return };
    let pair = Pair::make(&journal, "htb");
    let host = &pair.client;
    let before = qdisc(host);
    let mut htb = host.within(|| Htb::create(&journal, "eth0", 30)).unwrap().unwrap();
    let handle = htb.socket_priority(0) >> 16;
    let text = qdisc(host);
    assert!(text.contains(&format!("qdisc htb {handle:x}: root")) && text.contains("default 0x1e"), "{text}");
    htb.add_class(1, None, class(50_000_000, 50_000_000, 0)).unwrap();
    htb.add_class(10, Some(1), class(10_000_000, 20_000_000, 1)).unwrap();
    htb.add_class(30, Some(1), class(1_000_000, 50_000_000, 7)).unwrap();
    let text = classes(host);
    for line in [
        format!("class htb {handle:x}:1 root rate 50Mbit ceil 50Mbit"),
        format!("class htb {handle:x}:10 parent {handle:x}:1 prio 1 rate 10Mbit ceil 20Mbit"),
        format!("class htb {handle:x}:1e parent {handle:x}:1 prio 7 rate 1Mbit ceil 50Mbit"),
    ] {
        // tc shows numbers of classes in hexadecimal.
        let line = line.replace(&format!("{handle:x}:10 "), &format!("{handle:x}:a "));
        assert!(text.contains(&line), "{line}: {text}");
    }
    // Live, beyond 32 bits of bytes per second, and back.
    htb.set_class(10, class(40_000_000_000, 40_000_000_000, 2)).unwrap();
    let read = htb.read().unwrap();
    assert_eq!((read[&10].bytes_per_s, read[&10].priority), (5_000_000_000, 2));
    assert!(classes(host).contains("prio 2 rate 40Gbit ceil 40Gbit"), "{}", classes(host));
    htb.set_class(10, class(3_000_000, 3_000_000, 0)).unwrap();
    let read = htb.read().unwrap();
    assert_eq!((read.len(), read[&10].bytes_per_s, read[&10].ceil_bytes_per_s), (3, 375_000, 375_000));
    assert_eq!(read[&10].class, htb.socket_priority(10));

    for wrong in [class(0, 8, 0), class(16, 8, 0), class(8, 8, 8)] {
        assert!(matches!(htb.set_class(10, wrong), Err(Error::Refused(_))));
    }
    assert!(
        htb.add_class(10, None, class(8, 8, 0)).is_err() && htb.add_class(0, None, class(8, 8, 0)).is_err()
    );
    assert!(
        htb.add_class(11, Some(9), class(8, 8, 0)).is_err() && htb.set_class(11, class(8, 8, 0)).is_err()
    );
    htb.remove_class(10).unwrap();
    assert!(!classes(host).contains("rate 3Mbit") && htb.read().unwrap().len() == 2);
    // Another of ours is refused, too, and does not undo the first.
    let second = host.within(|| Htb::create(&journal, "eth0", 1)).unwrap().unwrap_err().to_string();
    assert!(second.contains("another kagiri") && second.contains("kagiri undo"), "{second}");
    assert!(qdisc(host).contains(&format!("qdisc htb {handle:x}: root")));
    drop(htb);
    assert_eq!(qdisc(host), before, "the kernel's own choice again");
}

#[test]
fn foreign_root_is_refused_and_left_as_it_is() {
    let Some((_folder, journal)) = as_root() else { return };
    let pair = Pair::make(&journal, "foreign");
    pair.limit(10_000, 100_000);
    let before = tc(&pair.server, &["qdisc", "show", "dev", "eth0"]);
    let entries = journal.pending();
    let error = pair.server.within(|| Htb::create(&journal, "eth0", 1)).unwrap().unwrap_err().to_string();
    assert!(error.contains("discipline tbf 8") && error.contains("tc qdisc del dev eth0 root"), "{error}");
    assert_eq!(tc(&pair.server, &["qdisc", "show", "dev", "eth0"]), before);
    assert_eq!(journal.pending(), entries);
    assert!(pair.server.within(|| Htb::create(&journal, "none0", 1)).unwrap().is_err());
}

/// As `kagiri undo` does it after a crash: from another process's journal, in this one's namespace.
#[test]
fn undo_deletes_only_our_own_discipline() {
    let Some((folder, journal)) = as_root() else { return };
    let pair = Pair::make(&journal, "undo");
    let host = &pair.client;
    let crashed = folder.path().join(own_name("crashed"));
    // The journals of a process that has ended: those of this one, with another owner.
    let leave = |text: String| {
        let own = format!("\"pid\":{},", std::process::id());
        assert!(text.contains(&own));
        std::fs::write(crashed.join("1-1-0.jsonl"), text.replace(&own, "\"pid\":2147483647,")).unwrap();
    };
    let owner = Journal::open(&crashed).unwrap();
    let htb = host.within(|| Htb::create(&owner, "eth0", 1)).unwrap().unwrap();
    let sysctl = host.within(|| Sysctl::set(&owner, "net.ipv4.tcp_slow_start_after_idle", "0")).unwrap();
    let sysctl = sysctl.unwrap().unwrap();
    assert_eq!(sysctl.original(), "1");
    let text = std::fs::read_to_string(owner.path()).unwrap();
    let undo = || {
        let mut found = Journal::leftovers(&crashed, std::time::Duration::ZERO).unwrap().journals;
        assert_eq!(found.len(), 1);
        found.pop().unwrap().replay()
    };
    let setting = || {
        let read = || std::fs::read_to_string("/proc/sys/net/ipv4/tcp_slow_start_after_idle").unwrap();
        host.within(read).unwrap().trim().to_owned()
    };
    assert!(qdisc(host).contains("htb") && setting() == "0");
    leave(text.clone());
    let results = undo();
    assert!(results.iter().all(|result| result.outcome == Outcome::Done), "{results:?}");
    assert!(!qdisc(host).contains("htb") && setting() == "1");
    // Once more, with others in their place.
    host.tc("qdisc add dev eth0 root handle 6:0 htb").unwrap();
    let set = || std::fs::write("/proc/sys/net/ipv4/tcp_slow_start_after_idle", "2");
    // The kernel takes only some values on some versions.
    let is_set = host.within(set).unwrap().is_ok();
    leave(text.clone());
    for result in undo() {
        let is_left = matches!(result.outcome, Outcome::NotOurs(_));
        assert!(is_left || (!is_set && result.outcome == Outcome::AlreadyGone), "{result}");
    }
    assert!(qdisc(host).contains("htb 6:"));
    drop((htb, sysctl));
    assert!(qdisc(host).contains("htb 6:"), "dropping ours leaves the other one alone");
    assert_eq!(owner.pending(), 0);
    // The namespace is gone.
    drop(pair);
    leave(text);
    let results = undo();
    assert!(results.iter().all(|result| result.outcome == Outcome::AlreadyGone), "{results:?}");
}

/// The kernel prints tabs between numbers, users write blanks.
#[test]
fn setting_of_several_numbers_is_restored_unless_another_program_changed_it() {
    let Some((_folder, journal)) = as_root() else { return };
    let pair = Pair::make(&journal, "words");
    let path = "/proc/sys/net/ipv4/tcp_wmem";
    let read = || pair.client.within(|| std::fs::read_to_string(path).unwrap()).unwrap();
    let set = || {
        let set = || Sysctl::set(&journal, "net.ipv4.tcp_wmem", "4096 16384\t8388608");
        pair.client.within(set).unwrap().unwrap().unwrap()
    };
    let original = read();
    let made = journal.pending();
    let sysctl = set();
    assert_eq!(read().split_whitespace().collect::<Vec<_>>(), ["4096", "16384", "8388608"]);
    assert_eq!(sysctl.restore().unwrap().outcome, Outcome::Done);
    assert_eq!(read(), original);
    let sysctl = set();
    pair.client.within(|| std::fs::write(path, "4096 20000 4194304")).unwrap().unwrap();
    assert!(matches!(sysctl.restore().unwrap().outcome, Outcome::NotOurs(_)));
    assert_eq!(read().split_whitespace().nth(1), Some("20000"));
    let changed = set();
    changed.keep().unwrap();
    assert_eq!(read().split_whitespace().nth(2), Some("8388608"));
    assert_eq!(journal.pending(), made);
}
