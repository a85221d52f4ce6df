//! Which process measures a run: a later command checks whether it is still alive.

use std::fs;

/// A process, distinguished from later ones with the same id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) pid: u32,
    /// Start in clock ticks after boot (`proc_pid_stat(5)`, field 22).
    pub(crate) start_ticks: Option<i64>,
    /// `/proc/sys/kernel/random/boot_id`.
    pub(crate) boot: Option<String>,
    /// The pid namespace, as `/proc/PID/ns/pid` names it.
    pub(crate) pid_space: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    Alive,
    Dead,
    /// It lives (or not) in a container whose process ids mean nothing here.
    Unknown,
}

impl Owner {
    pub(crate) fn current() -> Self {
        let pid = std::process::id();
        let start_ticks = stat(pid).and_then(|text| parse(&text)).map(|(_, start)| start);
        Self { pid, start_ticks, boot: boot(), pid_space: pid_space() }
    }

    pub(crate) fn life(&self) -> Life {
        let (Some(start), Some(boot), Some(pid_space)) = (self.start_ticks, &self.boot, &self.pid_space)
        else {
            return Life::Unknown;
        };
        if self::boot().is_some_and(|now| now != *boot) {
            return Life::Dead;
        }
        if self::pid_space().as_ref() != Some(pid_space) {
            return Life::Unknown;
        }
        match stat(self.pid).and_then(|text| parse(&text)) {
            // A zombie has ended, its parent merely has not asked yet.
            Some((state, at)) if at == start && !matches!(state, 'Z' | 'X') => Life::Alive,
            _ => Life::Dead,
        }
    }
}

fn stat(pid: u32) -> Option<String> {
    // The name in parentheses may be any bytes.
    fs::read(format!("/proc/{pid}/stat")).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// State and start of a line of `/proc/PID/stat`. Counting begins after the last parenthesis, since the name
/// before it may hold spaces and parentheses.
fn parse(text: &str) -> Option<(char, i64)> {
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

fn boot() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|text| text.trim().to_owned())
}

fn pid_space() -> Option<String> {
    fs::read_link("/proc/self/ns/pid").ok().map(|link| link.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_line_is_parsed_after_last_parenthesis() {
        let line = "42 (a) b (c) S 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 987654 1 2 3";
        assert_eq!(parse(line), Some(('S', 987_654)));
        for cut in 0..line.len() {
            let _ = parse(&line[..cut]);
        }
    }

    #[test]
    fn owner_differs_from_later_process_of_same_id() {
        let me = Owner::current();
        assert_eq!(me.life(), Life::Alive);
        let earlier = Owner { start_ticks: me.start_ticks.map(|ticks| ticks - 1), ..me.clone() };
        assert_eq!(earlier.life(), Life::Dead);
        assert_eq!(Owner { boot: Some("another".into()), ..me.clone() }.life(), Life::Dead);
        assert_eq!(Owner { pid_space: Some("pid:[1]".into()), ..me.clone() }.life(), Life::Unknown);
        assert_eq!(Owner { start_ticks: None, ..me }.life(), Life::Unknown);
    }
}
