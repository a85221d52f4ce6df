//! What the classes of sockets follow from.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::Joined;

/// The class of a socket, and what it follows from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) class: Option<usize>,
    pub(super) pid: i32,
    pub(super) ends: [SocketAddr; 2],
    pub(super) placing: u64,
}

/// What the classes of sockets follow from, beside the policy, the process and the ends of each. As long as
/// the version is the same, so are the classes.
#[derive(Debug, Default)]
pub(super) struct Placing {
    pub(super) version: u64,
    programs_version: u64,
    joined: HashMap<i32, Joined>,
}

impl Placing {
    /// Whether the classes follow from these statements of processes.
    pub(super) fn is_of(&self, joined: &HashMap<i32, Joined>) -> bool {
        self.joined == *joined
    }

    pub(super) fn update(&mut self, programs_version: u64, joined: &HashMap<i32, Joined>) {
        if self.programs_version != programs_version || self.joined != *joined {
            self.version += 1;
            self.programs_version = programs_version;
            self.joined.clone_from(joined);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_looked_up_anew_when_a_program_or_a_statement_changes() {
        let mut placing = Placing::default();
        let mut versions = vec![];
        let none = HashMap::new();
        let stated = |class| HashMap::from([(7, Joined { uid: 0, class })]);
        for (programs_version, joined) in [
            (0, none.clone()),
            (1, none.clone()),
            (1, none.clone()),
            (1, stated(0)),
            (1, stated(0)),
            (1, stated(1)),
            (2, stated(1)),
            (2, none),
        ] {
            placing.update(programs_version, &joined);
            versions.push(placing.version);
        }
        assert_eq!(versions, [0, 1, 1, 2, 2, 3, 4, 5]);
    }
}
