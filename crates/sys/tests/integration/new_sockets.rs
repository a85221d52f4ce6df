//! New sockets of a control group have their settings from the start.

use std::path::PathBuf;

use crate::common::{HOLD_SOCKETS, LONG, as_root, flows, flows_of, namespace_with_loopback, own_name};
use sys::cgroup::ExistingGroup;
use sys::child::{Child, Spawn};
use sys::journal::{Journal, Outcome, Undo};
use sys::netns::Namespace;
use sys::process::{PacingRate, SocketChange};
use sys::shaping::{ManagedSockets, NewSockets, SocketTarget};

const PRIORITY: u32 = 0x6b01_0010;

/// A group of the unified hierarchy; `None` without one.
fn group(journal: &Journal, name: &str) -> Option<(PathBuf, ExistingGroup)> {
    let mounts = sys::proc::mounts::mounts(std::path::Path::new("/")).unwrap();
    let Some(top) = mounts.iter().find(|mount| mount.fs_type == "cgroup2") else {
        features::skip("needs control groups of version 2");
        return None;
    };
    let folder = top.target.join(own_name(name));
    journal.record(Undo::RemoveCgroup { folders: vec![folder.clone()] }).unwrap();
    std::fs::create_dir(&folder).unwrap();
    Some((folder, ExistingGroup::find(&own_name(name)).unwrap()))
}

fn holder(journal: &Journal, namespace: &Namespace, group: &ExistingGroup) -> Child {
    let mut child = Spawn::new(std::env::current_exe().unwrap())
        .args(["--exact", "foreign_sockets::holder", "--nocapture"])
        .env(HOLD_SOCKETS, "5")
        .namespace(namespace)
        .join(group)
        .start(journal)
        .unwrap();
    child.wait_line(LONG, |line| line == "holding").unwrap();
    child
}

#[test]
fn new_sockets_of_a_group_are_set_and_restored() {
    let Some((_folder, journal)) = as_root() else { return };
    let Some((folder, group)) = group(&journal, "new") else { return };
    let namespace = namespace_with_loopback(&journal, "new");
    let wanted = SocketChange {
        pacing: PacingRate::from_bytes_per_s(2_000_000),
        priority: Some(PRIORITY),
        ..SocketChange::default()
    };
    let mut new = NewSockets::attach(&journal, &folder, wanted).unwrap();
    let rate = new.change().pacing.unwrap();
    assert!((1_999_489..2_000_000).contains(&rate.bytes_per_s()), "{rate:?}");
    let inside = holder(&journal, &namespace, &group);
    let outside = crate::common::holder(&journal, &namespace, 5);
    let count = |bytes: u64| {
        let of = |flow: &sys::netlink::Flow| flow.tcp.as_ref().and_then(|info| info.pacing_max_bytes_per_s);
        flows(inside.pid()).iter().filter(|flow| of(flow) == Some(bytes)).count()
    };
    // Both ends of the connections of the one, none of the other.
    assert_eq!((count(rate.bytes_per_s()), count(u64::MAX)), (10, 10));
    let (process, found) = flows_of(inside.pid(), |_| true);
    assert!(found.len() == 10, "{found:?}");
    for (_, fd) in &found {
        assert_eq!(process.read(*fd).unwrap().priority, PRIORITY);
    }
    let (other, others) = flows_of(outside.pid(), |_| true);
    assert_eq!((others.len(), other.read(others[0].1).unwrap().priority), (10, 0));
    // What is managed later does not get our own value back.
    let mut managed = ManagedSockets::new(&journal);
    managed.assume_new_sockets_have(new.change());
    let (flow, fd) = &found[0];
    let (fd, inode, cookie) = (*fd, flow.inode, flow.cookie);
    let change = SocketChange {
        pacing: PacingRate::from_bytes_per_s(5_000_000),
        priority: Some(1),
        ..SocketChange::default()
    };
    let target = SocketTarget { process: &process, fd, inode, cookie, change };
    assert!(managed.apply(&[target]).unwrap()[0].is_ok());
    drop(managed);
    let now = process.read(fd).unwrap();
    assert_eq!((now.pacing, now.priority), (PacingRate::UNLIMITED, 0));
    // One that its program has set itself is left alone.
    let own = 3_000_000 + u64::from(3_000_000 % 256 == rate.bytes_per_s() % 256);
    let own = SocketChange { pacing: PacingRate::from_bytes_per_s(own), ..SocketChange::default() };
    process.change(found[1].1, found[1].0.cookie, own).unwrap();
    let own = own.pacing.unwrap().bytes_per_s();
    // A rate that was changed since is ours, too.
    new.set_pacing(PacingRate::from_bytes_per_s(1_000_000).unwrap()).unwrap();
    let changed = new.change().pacing.unwrap();
    assert!(changed.bytes_per_s() % 256 == rate.bytes_per_s() % 256 && changed < rate, "{changed:?}");
    let second = holder(&journal, &namespace, &group);
    let [of_first, of_second] = [&inside, &second].map(|child| flows_of(child.pid(), |_| true).1.len());
    assert_eq!((of_first, of_second, count(changed.bytes_per_s())), (10, 10, 10));
    drop(new);
    assert_eq!(count(changed.bytes_per_s()), 0);
    drop(second);
    assert_eq!((count(own), count(rate.bytes_per_s()), count(u64::MAX)), (1, 0, 19));
    assert!(found.iter().all(|(_, fd)| process.read(*fd).unwrap().priority == 0));
    let later = holder(&journal, &namespace, &group);
    assert_eq!((count(rate.bytes_per_s()), flows(later.pid()).len()), (0, 30), "the programs are detached");
    drop((inside, later));
    let results = journal.undo_all();
    assert!(results.iter().all(|result| !matches!(result.outcome, Outcome::Failed(_))), "{results:?}");
}

#[test]
fn folder_that_is_no_group_is_refused() {
    let Some((folder, journal)) = as_root() else { return };
    let change = SocketChange { priority: Some(1), ..SocketChange::default() };
    let error = NewSockets::attach(&journal, folder.path(), change).unwrap_err().to_string();
    assert!(error.contains("cgroup2"), "{error}");
    let slow = SocketChange { pacing: PacingRate::from_bytes_per_s(511), ..SocketChange::default() };
    let error = NewSockets::attach(&journal, folder.path(), slow).unwrap_err().to_string();
    assert!(error.contains("from 512"), "{error}");
    assert_eq!(journal.pending(), 0);
}
