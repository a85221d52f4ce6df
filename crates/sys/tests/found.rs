//! What others have set up is found and used, and left as it is.

#![allow(clippy::unwrap_used)] // clippy exempts test functions only, not their helpers

use std::path::Path;
use std::time::Duration;

use kagiri_sys as sys;
use sys::cgroup::{Cgroup, ExistingGroup};
use sys::child::Spawn;
use sys::journal::Journal;
use sys::netlink::rate_of;
use sys::netns::{Netns, Shape, Subnet};

const LONG: Duration = Duration::from_secs(30);

fn root() -> bool {
    let root = nix::unistd::Uid::effective().is_root();
    if !root {
        eprintln!("skipped: needs root");
    }
    root
}

#[test]
fn a_program_is_started_in_a_group_that_is_there() {
    if !root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(&folder.path().join("journal")).unwrap();
    let owner = Cgroup::create(&journal, "found").unwrap();
    owner.set_cpu_quota_percent(30.0).unwrap();
    let name = format!("kagiri-{}-found", std::process::id());
    let group = ExistingGroup::find(&name).unwrap();
    assert_eq!(group.cpu_folder(), owner.cpu_stat_path().as_deref().and_then(Path::parent));
    let mut child = Spawn::new("sleep").arg("60").join(&group).start(&journal).unwrap();
    assert_eq!(owner.pids().unwrap(), [child.pid()]);
    let limits = sys::cgroup::limits_of(Path::new("/"), child.pid(), None).unwrap();
    assert_eq!(limits.cpu_quota_percent, Some(30.0));
    assert!(child.try_wait().unwrap().is_none());
    child.stop(LONG).unwrap();
    drop(owner);
    assert!(ExistingGroup::find(&name).is_err(), "it was its owner's");
    assert_eq!(journal.pending(), 0);
}

#[test]
fn the_rate_of_a_link_is_read_whichever_discipline_holds_it() {
    if !root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(&folder.path().join("journal")).unwrap();
    let made = (0..64).find_map(|number| {
        let subnet = Subnet::new([10, 84, number, 0].into(), 30).unwrap();
        Netns::create(&journal, &format!("rate-{}", std::process::id()), subnet).ok()
    });
    let namespace = made.expect("a network for the test");
    let inside = Spawn::new("sleep").arg("60").netns(&namespace).start(&journal).unwrap();
    let rate = || rate_of(namespace.inner_link(), Some(inside.pid())).unwrap();
    assert_eq!(rate(), None, "nothing holds it yet");
    namespace.shape(Shape { rate_bit_per_s: 8_000_000, burst_bytes: 16_000, buffer_bytes: 64_000 }).unwrap();
    assert_eq!(rate(), Some(8_000_000));

    let link = namespace.inner_link();
    for command in [
        format!("qdisc replace dev {link} root handle 1: htb default 1"),
        format!("class add dev {link} parent 1: classid 1:1 htb rate 10mbit ceil 50mbit"),
        format!("class add dev {link} parent 1:1 classid 1:10 htb rate 1mbit ceil 40mbit"),
        format!("class add dev {link} parent 1: classid 1:2 htb rate 5mbit ceil 5mbit"),
    ] {
        let tc = Spawn::new("tc").args(command.split(' ')).netns(&namespace).start(&journal);
        let ended = tc.unwrap().wait(LONG).unwrap();
        assert!(ended.success(), "tc {command}: {ended}");
    }
    assert_eq!(rate(), Some(55_000_000), "its topmost classes together");
    inside.stop(LONG).unwrap();
}
