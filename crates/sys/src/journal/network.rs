//! Undoes changes to sockets of other programs, queueing disciplines, and settings of a network namespace.

use std::collections::{HashMap, HashSet};
use std::fs::DirEntry;
use std::path::{Path, PathBuf};

use super::{Outcome, SocketId};
use crate::netlink::NamespaceId;
use crate::netlink::traffic_control::TrafficControl;
use crate::process::{
    ForeignProcess, ForeignSocketError, PacingRate, SocketChange, SocketHolder, find_holders,
};

/// The lowest bits of a pacing rate that a BPF program sets are random: a rate that ends with them is ours.
pub(crate) const OWN_RATES: u64 = 1 << 8;

/// Restores sockets, each if it still is the one of its number. The cost of a search of all processes comes
/// once, and only if a socket is not where it was found.
pub(super) fn restore_sockets(sockets: &[(SocketId, SocketChange)]) -> Vec<Outcome> {
    let mut outcomes = vec![Outcome::AlreadyGone; sockets.len()];
    let mut lost: Vec<usize> = Vec::new();
    let mut processes: HashMap<i32, Option<ForeignProcess>> = HashMap::new();
    for (place, (socket, original)) in sockets.iter().enumerate() {
        let process = processes
            .entry(socket.pid)
            .or_insert_with(|| ForeignProcess::open_started_at(socket.pid, socket.start_ticks).ok());
        let same = process.as_ref().filter(|process| process.start_ticks() == socket.start_ticks);
        match same.map(|process| process.change(socket.fd, socket.cookie, *original)) {
            None => lost.push(place),
            Some(result) => match outcome(result) {
                Outcome::AlreadyGone => lost.push(place),
                settled => outcomes[place] = settled,
            },
        }
    }
    if lost.is_empty() {
        return outcomes;
    }
    // The program has another descriptor of it, or has handed it to another process.
    let mut holders: HashMap<u64, Vec<SocketHolder>> = HashMap::new();
    let inodes: HashSet<u64> = lost.iter().map(|place| sockets[*place].0.inode).collect();
    for (inode, holder) in find_holders(&inodes) {
        holders.entry(inode).or_default().push(holder);
    }
    for place in lost {
        let (socket, original) = &sockets[place];
        for holder in holders.get(&socket.inode).into_iter().flatten() {
            let process = ForeignProcess::open(holder.pid);
            let changed = process.and_then(|process| process.change(holder.fd, socket.cookie, *original));
            outcomes[place] = outcome(changed);
            if outcomes[place] == Outcome::Done {
                break;
            }
        }
    }
    outcomes
}

/// Restores the sockets that a BPF program of ours has set, of the processes in a control group and the
/// groups below it.
pub(super) fn restore_new_sockets(group: &Path, ours: &SocketChange, varies: bool) -> Outcome {
    let is_ours = |rate: PacingRate, now: PacingRate| match varies {
        true => !now.is_unlimited() && now.bytes_per_s() % OWN_RATES == rate.bytes_per_s() % OWN_RATES,
        false => now == rate,
    };
    let mut folders = vec![group.to_path_buf()];
    let mut outcome = Outcome::AlreadyGone;
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let is_folder = |entry: &DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        folders.extend(entries.filter(is_folder).map(|entry| entry.path()));
        let pids = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        for process in pids.split_whitespace().filter_map(|pid| ForeignProcess::open(pid.parse().ok()?).ok())
        {
            for fd in process.sockets() {
                let Ok(now) = process.read(fd) else { continue };
                let pacing = ours.pacing.filter(|rate| is_ours(*rate, now.pacing) && !now.is_listening);
                let priority = ours.priority.filter(|priority| *priority == now.priority);
                if pacing.is_none() && priority.is_none() {
                    continue;
                }
                let original = SocketChange {
                    pacing: pacing.map(|_| PacingRate::UNLIMITED),
                    priority: priority.map(|_| 0),
                    congestion: None,
                };
                match process.change(fd, now.cookie, original) {
                    Ok(_) if outcome == Outcome::AlreadyGone => outcome = Outcome::Done,
                    Ok(_) => {}
                    Err(error) if error.is_gone() => {}
                    Err(error) => outcome = Outcome::Failed(error.to_string()),
                }
            }
        }
    }
    outcome
}

fn outcome(result: Result<SocketChange, ForeignSocketError>) -> Outcome {
    match result {
        Ok(_) => Outcome::Done,
        Err(error) if error.is_gone() => Outcome::AlreadyGone,
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

/// Deletes the root queueing discipline of interface number `device` if its handle is `handle`.
pub(super) fn delete_htb(namespace: &NamespaceId, device: u32, handle: u32) -> Result<Outcome, String> {
    // The discipline went with its namespace.
    let Some(found) = namespace.find().map_err(|error| error.to_string())? else {
        return Ok(Outcome::AlreadyGone);
    };
    let delete = || -> std::io::Result<Outcome> {
        let mut control = TrafficControl::open()?;
        match control.root_of(device)? {
            Some(root) if root.kind == "htb" && root.handle == handle => {
                control.delete_root(device, handle).map(|()| Outcome::Done)
            }
            Some(root) if root.handle != 0 => {
                let (kind, handle) = (root.kind, root.handle >> 16);
                Ok(Outcome::NotOurs(format!("its root is now {kind} {handle:x}:")))
            }
            _ => Ok(Outcome::AlreadyGone),
        }
    };
    found.within(delete).and_then(|outcome| outcome).map_err(|error| error.to_string())
}

/// Gives a setting below `net.` its value `original` back if its value still is `ours`.
pub(super) fn restore_sysctl(
    namespace: &NamespaceId,
    name: &str,
    original: &str,
    ours: &str,
) -> Result<Outcome, String> {
    let Some(path) = sysctl_path(name) else {
        return Ok(Outcome::NotOurs("it is not named like a network setting".to_owned()));
    };
    let Some(found) = namespace.find().map_err(|error| error.to_string())? else {
        return Ok(Outcome::AlreadyGone);
    };
    let restore = || -> std::io::Result<Outcome> {
        let now = sysctl_words(&std::fs::read_to_string(&path)?);
        if now == sysctl_words(original) {
            Ok(Outcome::AlreadyGone)
        } else if now == sysctl_words(ours) {
            std::fs::write(&path, original).map(|()| Outcome::Done)
        } else {
            Ok(Outcome::NotOurs(format!("its value is {now} now")))
        }
    };
    found.within(restore).and_then(|outcome| outcome).map_err(|error| format!("{}: {error}", path.display()))
}

/// The value of a setting with single blanks: the kernel prints tabs between several numbers.
pub(crate) fn sysctl_words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The file of a setting below `net.` (proc_sys_net(5)), `None` for any other name.
pub(crate) fn sysctl_path(name: &str) -> Option<PathBuf> {
    let is_plain = |part: &str| {
        let of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        !part.is_empty() && part.bytes().all(of_name)
    };
    let parts: Vec<&str> = name.split('.').collect();
    let is_network = parts.len() > 1 && parts[0] == "net" && parts.iter().all(|part| is_plain(part));
    is_network.then(|| PathBuf::from(format!("/proc/sys/{}", parts.join("/"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_compared_without_their_white_space() {
        assert_eq!(sysctl_words("4096\t16384\t4194304\n"), "4096 16384 4194304");
        assert_eq!(sysctl_words(" bbr\n"), "bbr");
    }

    #[test]
    fn only_network_settings_have_a_path() {
        assert_eq!(
            sysctl_path("net.ipv4.tcp_tso_rtt_log").as_deref(),
            Some(Path::new("/proc/sys/net/ipv4/tcp_tso_rtt_log"))
        );
        for wrong in ["", "net", "net.", "kernel.panic", "net...x", "net.ipv4/../..", "net.a b"] {
            assert_eq!(sysctl_path(wrong), None, "{wrong}");
        }
    }
}
