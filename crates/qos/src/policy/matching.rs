//! Which sockets belong to a class.

use std::net::IpAddr;

use ipnet::IpNet;

/// Conditions of a class; all that are given must hold. At least one is given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Match {
    /// Name of the process, as in `/proc/PID/comm` (proc_pid_comm(5)), which has at most 15 bytes.
    pub process: Option<String>,
    /// Text that the command line contains, its arguments separated by blanks.
    pub command: Option<String>,
    /// Control group of the process, or one above it.
    pub cgroup: Option<String>,
    pub user: Option<User>,
    /// Port of either end of the socket.
    pub port: Option<Ports>,
    /// Network of the other end.
    pub peer: Option<IpNet>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum User {
    Id(u32),
    Name(String),
}

/// A range of ports; both ends belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    pub first: u16,
    pub last: u16,
}

/// What is known of a socket and of the process that owns it.
#[derive(Debug, Clone, Copy)]
pub struct SocketFacts<'a> {
    pub process: &'a str,
    pub command: &'a str,
    /// Path below the root of the control groups, with a leading slash.
    pub cgroup: &'a str,
    pub user_id: u32,
    /// `None`: the user has no name on this host.
    pub user_name: Option<&'a str>,
    pub local_port: u16,
    pub peer_port: u16,
    pub peer: IpAddr,
}

/// Whether a socket can match two classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overlap {
    /// No socket can.
    Disjoint,
    /// Some sockets do.
    Overlapping,
    /// The policy does not decide; the first class in the file gets such a socket.
    Undecided,
}

impl Ports {
    fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl Match {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub fn accepts(&self, socket: &SocketFacts<'_>) -> bool {
        let user = |user: &User| match user {
            User::Id(id) => *id == socket.user_id,
            User::Name(name) => socket.user_name == Some(name),
        };
        let port = |ports: &Ports| ports.contains(socket.local_port) || ports.contains(socket.peer_port);
        self.process.as_ref().is_none_or(|process| process == socket.process)
            && self.command.as_ref().is_none_or(|part| socket.command.contains(part.as_str()))
            && self.cgroup.as_ref().is_none_or(|group| is_within(socket.cgroup, group))
            && self.user.as_ref().is_none_or(user)
            && self.port.as_ref().is_none_or(port)
            && self.peer.is_none_or(|network| network.contains(&socket.peer.to_canonical()))
    }

    /// Whether every socket matches: all control groups are below `/`.
    pub fn is_everything(&self) -> bool {
        *self == Self { cgroup: Some("/".to_owned()), ..Self::default() }
    }

    /// Compares the conditions of the same kind; classes without any in common are undecided.
    pub fn overlap(&self, other: &Self) -> Overlap {
        let compared = [
            compare(&self.process, &other.process, |a, b| disjoint_unless(a == b)),
            compare(&self.command, &other.command, |a, b| {
                undecided_unless(a.contains(b.as_str()) || b.contains(a.as_str()))
            }),
            compare(&self.cgroup, &other.cgroup, |a, b| disjoint_unless(is_within(a, b) || is_within(b, a))),
            compare(&self.user, &other.user, |a, b| match (a, b) {
                (User::Id(a), User::Id(b)) => disjoint_unless(a == b),
                (User::Name(a), User::Name(b)) => undecided_unless(a == b),
                // Only the host knows the user's name.
                _ => Overlap::Undecided,
            }),
            // Different ports: a socket may have one at its own end, and the other at its peer's.
            compare(&self.port, &other.port, |a, b| undecided_unless(a.first <= b.last && b.first <= a.last)),
            compare(&self.peer, &other.peer, |a, b| disjoint_unless(a.contains(b) || b.contains(a))),
        ];
        let mut shared = compared.into_iter().flatten().peekable();
        if shared.peek().is_none() {
            return Overlap::Undecided;
        }
        shared.fold(Overlap::Overlapping, |all, one| match (all, one) {
            (Overlap::Disjoint, _) | (_, Overlap::Disjoint) => Overlap::Disjoint,
            (Overlap::Undecided, _) | (_, Overlap::Undecided) => Overlap::Undecided,
            _ => Overlap::Overlapping,
        })
    }
}

fn compare<T>(a: &Option<T>, b: &Option<T>, how: impl Fn(&T, &T) -> Overlap) -> Option<Overlap> {
    Some(how(a.as_ref()?, b.as_ref()?))
}

fn disjoint_unless(overlaps: bool) -> Overlap {
    if overlaps { Overlap::Overlapping } else { Overlap::Disjoint }
}

fn undecided_unless(overlaps: bool) -> Overlap {
    if overlaps { Overlap::Overlapping } else { Overlap::Undecided }
}

/// Whether a control group is `group` or below it. Both begin with a slash.
pub fn is_within(path: &str, group: &str) -> bool {
    let group = group.trim_end_matches('/');
    path.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
