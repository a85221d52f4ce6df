//! What program a process runs: `/proc/PID` (proc_pid(5)).

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::proc::parse::{decimal, lines, words};

/// Longer command lines are cut off here.
const COMMAND_BYTES: u64 = 16 << 10;

/// The program that a process runs, and for whom. It changes when the process executes another program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The kernel's name of the process (`comm`), cut off after 15 bytes.
    pub name: String,
    /// The executed file; `None` for a process of the kernel, or without the right to see it.
    pub executable: Option<PathBuf>,
    /// The arguments, separated by blanks; at most 16 KiB.
    pub command: String,
    /// The effective user.
    pub uid: u32,
    /// Its control groups: one path for each hierarchy, without repetitions; version 2 first.
    pub cgroups: Vec<String>,
}

impl Program {
    /// Errors: the process has ended.
    pub fn read(pid: i32) -> io::Result<Self> {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let name = std::fs::read(folder.join("comm"))?;
        let mut command = Vec::new();
        File::open(folder.join("cmdline"))?.take(COMMAND_BYTES).read_to_end(&mut command)?;
        let status = std::fs::read(folder.join("status"))?;
        let uid = effective_uid(&status).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self {
            name: text(name.strip_suffix(b"\n").unwrap_or(&name)),
            executable: std::fs::read_link(folder.join("exe")).ok().map(without_mark),
            command: joined(&command),
            uid,
            cgroups: groups(&std::fs::read(folder.join("cgroup")).unwrap_or_default()),
        })
    }

    /// Whether `name` is what a user calls this program: the kernel's name, the name of the executed file, or
    /// that of the first argument (a script's interpreter is executed, but its first argument may be another
    /// name). A name of 15 bytes matches the beginning of a longer one.
    pub fn is_called(&self, name: &str) -> bool {
        /// `TASK_COMM_LEN` without the zero byte.
        const NAME_BYTES: usize = 15;
        let file_name = |path: &Path| path.file_name().is_some_and(|found| found == name);
        let first = self.command.split(' ').next().unwrap_or_default();
        self.name == name
            || (self.name.len() == NAME_BYTES && name.starts_with(&self.name))
            || self.executable.as_deref().is_some_and(file_name)
            || file_name(Path::new(first))
    }
}

/// The name of a user on this host; `None`: it has none.
pub fn user_name(uid: u32) -> Option<String> {
    nix::unistd::User::from_uid(uid.into()).ok().flatten().map(|user| user.name)
}

/// The kernel marks the path of a file that was removed or replaced.
fn without_mark(path: PathBuf) -> PathBuf {
    path.to_str().and_then(|path| path.strip_suffix(" (deleted)")).map(PathBuf::from).unwrap_or(path)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Arguments end with a zero byte each.
fn joined(command: &[u8]) -> String {
    let command = command.strip_suffix(b"\0").unwrap_or(command);
    text(command).replace('\0', " ")
}

/// The second number of the line `Uid:` (real, effective, saved, file system).
fn effective_uid(status: &[u8]) -> Option<u32> {
    let line = lines(status).find_map(|line| line.strip_prefix(b"Uid:"))?;
    words(line).nth(1).and_then(decimal).and_then(|uid| u32::try_from(uid).ok())
}

/// The paths of lines `HIERARCHY:CONTROLLERS:PATH` (cgroups(7)).
fn groups(file: &[u8]) -> Vec<String> {
    let mut found: Vec<(bool, String)> = Vec::new();
    for line in lines(file) {
        let mut parts = line.splitn(3, |byte| *byte == b':');
        let (Some(number), Some(_), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let (is_v1, path) = (number != b"0", text(path));
        if !found.iter().any(|(_, known)| *known == path) {
            found.push((is_v1, path));
        }
    }
    found.sort_by_key(|(is_v1, _)| *is_v1);
    found.into_iter().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_proc_are_parsed() {
        assert_eq!(effective_uid(b"Name:\tx\nUid:\t1\t2\t3\t4\n"), Some(2));
        assert_eq!(effective_uid(b"Uid:\t1\n"), None);
        assert_eq!(groups(b"4:memory:/a\n3:cpu,cpuacct:/a\n0::/b:c\nx\n"), ["/b:c", "/a"]);
        assert_eq!(joined(b"a\0b c\0\0"), "a b c ");
        assert_eq!(joined(b""), "");
        assert_eq!(without_mark("/a b (deleted)".into()), Path::new("/a b"));
    }

    #[test]
    fn own_program_is_read() {
        let own = Program::read(i32::try_from(std::process::id()).unwrap()).unwrap();
        let file = std::env::current_exe().unwrap();
        assert_eq!(own.executable.as_deref(), Some(&*file));
        assert_eq!(own.uid, nix::unistd::Uid::effective().as_raw());
        assert!(own.is_called(file.file_name().unwrap().to_str().unwrap()), "{own:?}");
        assert!(!own.is_called("k") && !own.is_called(""), "{own:?}");
        assert!(Program::read(i32::MAX).is_err());
    }
}
