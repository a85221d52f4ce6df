//! The counters of `/proc/net/snmp`, `netstat` and `snmp6`, by group and name: `Udp`, `RcvbufErrors`.

use std::collections::BTreeMap;
use std::path::Path;

use sys::proc::SoftnetReading;

/// Longer files have no counters.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The group of `/proc/net/softnet_stat`, whose columns have no names.
pub const SOFTNET: &str = "softnet_stat";

/// Counters, or how much they have grown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    values: BTreeMap<(String, String), u64>,
}

impl Counters {
    /// Reads the files of the network namespace of this thread, below `root`. The second value lists files
    /// that could not be read.
    pub fn read(root: &Path) -> (Self, Vec<String>) {
        let mut counters = Self::default();
        let mut missing = Vec::new();
        for file in ["snmp", "netstat", "snmp6"] {
            let path = root.join("proc/thread-self/net").join(file);
            match sys::file::read_text(&path, FILE_BYTES_MAX) {
                Ok(text) if file == "snmp6" => counters.add_lines(&text),
                Ok(text) => counters.add_pairs(&text),
                // A kernel without IPv6 has none.
                Err(_) if file == "snmp6" => {}
                Err(error) => missing.push(format!("{}: {error}", path.display())),
            }
        }
        (counters, missing)
    }

    pub fn add_softnet(&mut self, reading: SoftnetReading) {
        for (name, value) in [
            ("processed", reading.processed),
            ("dropped", reading.dropped),
            ("time_squeeze", reading.squeezed),
        ] {
            self.set(SOFTNET, name, value);
        }
    }

    /// The counter `name` of `group`; `None`: the kernel does not have it.
    pub fn get(&self, group: &str, name: &str) -> Option<u64> {
        self.values.get(&(group.to_owned(), name.to_owned())).copied()
    }

    /// How much each has grown. A counter that has fallen was reset, and counts from 0.
    pub fn since(&self, before: &Self) -> Self {
        let grown = self.values.iter().map(|(key, now)| {
            let then = before.values.get(key).copied().unwrap_or_default();
            (key.clone(), if *now >= then { now - then } else { *now })
        });
        Self { values: grown.collect() }
    }

    pub(crate) fn set(&mut self, group: &str, name: &str, value: u64) {
        self.values.insert((group.to_owned(), name.to_owned()), value);
    }

    /// Two lines for each group: its names, then its values.
    fn add_pairs(&mut self, text: &str) {
        let mut lines = text.lines();
        while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
            let (Some((group, names)), Some((again, values))) =
                (names.split_once(':'), values.split_once(':'))
            else {
                continue;
            };
            if group != again {
                continue;
            }
            for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
                // `Tcp MaxConn` may be -1.
                if let Ok(value) = value.parse() {
                    self.set(group, name, value);
                }
            }
        }
    }

    /// One line for each counter: `Udp6RcvbufErrors 0`.
    fn add_lines(&mut self, text: &str) {
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(word), Some(Ok(value))) = (words.next(), words.next().map(str::parse)) else {
                continue;
            };
            if let Some(name) = word.strip_prefix("Udp6") {
                self.set("Udp6", name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn counters_are_read_by_name_and_grow() {
        let mut before = Counters::default();
        before.add_pairs("Tcp: MaxConn OutSegs\nTcp: -1 10\nUdp: RcvbufErrors\nUdp: 7\n");
        before.add_lines("Udp6RcvbufErrors \t3\nIp6InReceives 5\n");
        let mut after = before.clone();
        after.set("Tcp", "OutSegs", 25);
        after.set("Udp", "RcvbufErrors", 2);
        let grown = after.since(&before);
        assert_eq!(grown.get("Tcp", "OutSegs"), Some(15));
        assert_eq!(grown.get("Udp", "RcvbufErrors"), Some(2), "it was reset");
        assert_eq!(grown.get("Udp6", "RcvbufErrors"), Some(0));
        assert_eq!(grown.get("Tcp", "MaxConn"), None);
        assert_eq!(grown.get("Ip6", "InReceives"), None);
    }

    #[test]
    fn running_kernel_has_the_counters_that_advice_reads() {
        let (counters, missing) = Counters::read(Path::new("/"));
        assert!(missing.is_empty(), "{missing:?}");
        for (group, name) in [
            ("Tcp", "OutSegs"),
            ("Tcp", "RetransSegs"),
            ("Udp", "InDatagrams"),
            ("Udp", "RcvbufErrors"),
            ("TcpExt", "ListenOverflows"),
            ("TcpExt", "TCPBacklogDrop"),
            ("TcpExt", "PruneCalled"),
            ("TcpExt", "TCPMemoryPressures"),
        ] {
            assert!(counters.get(group, name).is_some(), "{group} {name}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text: String) {
            let mut counters = Counters::default();
            counters.add_pairs(&text);
            counters.add_lines(&text);
        }
    }
}
