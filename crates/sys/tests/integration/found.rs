//! What others have set up is found and used, and left as it is.

use std::path::Path;

use crate::common::{LONG, Pair, as_root, own_name};
use sys::cgroup::{Cgroup, ExistingGroup};
use sys::child::Spawn;
use sys::netlink::rate_of;

#[test]
fn program_starts_in_an_existing_group() {
    let Some((_folder, journal)) = as_root() else { return };
    let owner = Cgroup::create(&journal, "found").unwrap();
    owner.set_cpu_quota_percent(30.0).unwrap();
    let name = own_name("found");
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
fn link_rate_is_read_of_each_queueing_discipline() {
    let Some((_folder, journal)) = as_root() else { return };
    let pair = Pair::make(&journal, "rate");
    let inside = Spawn::new("sleep").arg("60").namespace(&pair.server).start(&journal).unwrap();
    let rate = || rate_of("eth0", Some(inside.pid())).unwrap();
    assert_eq!(rate(), None, "nothing holds it yet");
    pair.limit(16_000, 64_000);
    assert_eq!(rate(), Some(8_000_000));
    let commands = "qdisc replace dev eth0 root handle 1: htb default 1
class add dev eth0 parent 1: classid 1:1 htb rate 10mbit ceil 50mbit
class add dev eth0 parent 1:1 classid 1:10 htb rate 1mbit ceil 40mbit
class add dev eth0 parent 1: classid 1:2 htb rate 5mbit ceil 5mbit";
    pair.server.tc(commands).unwrap();
    assert_eq!(rate(), Some(55_000_000), "its topmost classes together");
    inside.stop(LONG).unwrap();
}
