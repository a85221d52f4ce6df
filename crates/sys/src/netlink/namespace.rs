//! Which network namespace is meant, in a form that outlives the program that wrote it down.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, setns};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Socket, Type};

use crate::net::socket_option;
use crate::proc::process::set::all_pids;

/// `asm-generic/socket.h`; libc has no name for it yet.
const SO_NETNS_COOKIE: libc::c_int = 71;
/// The namespace of the thread that opens it.
const OWN: &str = "/proc/thread-self/ns/net";
/// Where namespaces have their names, by the custom of `ip netns`.
const NAMES: &str = "/run/netns";

/// Identifies a network namespace within one boot of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NamespaceId {
    /// Its number (namespaces(7)), which another namespace may get later.
    inode: u64,
    /// Its number that no other one gets (`SO_NETNS_COOKIE`, since Linux 5.14).
    cookie: Option<u64>,
}

/// A network namespace that threads can enter.
#[derive(Debug)]
pub struct OpenNamespace(File);

impl NamespaceId {
    /// The namespace of this thread.
    pub fn of_this_thread() -> io::Result<Self> {
        Ok(Self { inode: std::fs::metadata(OWN)?.ino(), cookie: cookie() })
    }

    /// Its number (namespaces(7)). A later namespace may get it.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Searches for the namespace: this thread's, those with a name in `/run/netns`, those of all processes.
    /// `None`: it no longer exists, or only descriptors of other programs keep it.
    /// Errors: it is there, but may not be entered.
    pub fn find(&self) -> io::Result<Option<OpenNamespace>> {
        let names = std::fs::read_dir(NAMES).into_iter().flatten().flatten().map(|entry| entry.path());
        let pids = all_pids(Path::new("/"));
        let processes = pids.into_iter().map(|pid| PathBuf::from(format!("/proc/{pid}/ns/net")));
        for path in std::iter::once(PathBuf::from(OWN)).chain(names).chain(processes) {
            if !std::fs::metadata(&path).is_ok_and(|facts| facts.ino() == self.inode) {
                continue;
            }
            let Ok(file) = File::open(&path) else { continue };
            let found = OpenNamespace(file);
            // By the descriptor: the path may mean another one now.
            if found.0.metadata()?.ino() == self.inode && found.within(Self::of_this_thread)?? == *self {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

impl OpenNamespace {
    /// Runs `work` on a thread of its own inside the namespace.
    /// Errors: no right to enter it.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        crate::thread::on_own_thread(|| {
            setns(&self.0, CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        })
    }
}

fn cookie() -> Option<u64> {
    let socket = Socket::new(Domain::UNIX, Type::DGRAM, None).ok()?;
    let mut cookie = 0_u64;
    socket_option::get(socket.as_fd(), libc::SOL_SOCKET, SO_NETNS_COOKIE, &mut cookie).ok()?;
    Some(cookie)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_namespace_is_found_and_another_cookie_is_not() {
        let own = NamespaceId::of_this_thread().unwrap();
        if !crate::environment::is_root() {
            return features::skip("needs root to enter a namespace");
        }
        let found = own.find().unwrap().unwrap();
        assert_eq!(found.within(NamespaceId::of_this_thread).unwrap().unwrap(), own);
        let later = NamespaceId { cookie: own.cookie.map(|cookie| cookie + 1_000_000), ..own };
        assert!(later == own || later.find().unwrap().is_none());
        assert!(NamespaceId { inode: 1, cookie: None }.find().unwrap().is_none());
    }
}
