//! What a program may leave behind on a machine.

use std::fs;
use std::path::{Path, PathBuf};

/// Everything that could be left of one kagiri.
#[derive(Debug, Default, PartialEq)]
pub struct Traces {
    /// Processes of its world, other than itself: (id, command line).
    pub processes: Vec<(u32, String)>,
    pub mounts: Vec<String>,
    /// Loop devices whose file lies in its world.
    pub loop_devices: Vec<String>,
    /// Control groups that bear its process id.
    pub cgroups: Vec<PathBuf>,
    /// Network namespaces that bear its process id.
    pub namespaces: Vec<String>,
    pub journals: Vec<PathBuf>,
    /// Temporary files, images of disks, halves of files.
    pub files: Vec<PathBuf>,
}

impl Traces {
    /// Look for them: those of process `pid`, whose data and temporary files lie below `world`.
    pub fn of(pid: u32, world: &Path) -> Self {
        let named = |name: &str| name.starts_with(&format!("kagiri-{pid}-"));
        let text = world.to_string_lossy().into_owned();
        let mut files = entries(&world.join("tmp"));
        files.extend(entries(&world.join("data/disks")));
        for folder in
            [world.to_owned(), world.join("data"), world.join("data/content"), world.join("data/reports")]
        {
            files.extend(entries(&folder).into_iter().filter(|path| is_half(path)));
        }
        Self {
            processes: processes(&text),
            mounts: mounts(&text),
            loop_devices: loop_devices(&text),
            cgroups: cgroups().into_iter().filter(|path| named(&name(path))).collect(),
            namespaces: entries(Path::new("/run/netns"))
                .iter()
                .map(|path| name(path))
                .filter(|n| named(n))
                .collect(),
            journals: journals(pid, world),
            files,
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Whether a file is one that was never finished.
fn is_half(path: &Path) -> bool {
    let name = name(path);
    name.ends_with(".part") || name.ends_with(".partial") || name.contains(".tmp")
}

/// Processes that were started in this world: their environment names it.
fn processes(world: &str) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for path in entries(Path::new("/proc")) {
        let Ok(pid) = name(&path).parse::<u32>() else { continue };
        let Ok(environment) = fs::read(path.join("environ")) else { continue };
        let mut variables = environment.split(|byte| *byte == 0);
        if pid != std::process::id()
            && variables.any(|one| {
                one.strip_prefix(b"KAGIRI_DATA=").is_some_and(|data| data.starts_with(world.as_bytes()))
            })
        {
            let line = fs::read(path.join("cmdline")).unwrap_or_default();
            found.push((pid, String::from_utf8_lossy(&line).replace('\0', " ")));
        }
    }
    found
}

fn mounts(world: &str) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let below = |line: &&str| {
        line.split(' ').nth(1).is_some_and(|target| target.starts_with(&format!("{world}/data/")))
    };
    table.lines().filter(below).map(str::to_owned).collect()
}

fn loop_devices(world: &str) -> Vec<String> {
    let behind = |path: &PathBuf| fs::read_to_string(path.join("loop/backing_file")).unwrap_or_default();
    let devices = entries(Path::new("/sys/block")).into_iter();
    devices.filter(|path| behind(path).starts_with(world)).map(|path| name(&path)).collect()
}

/// Every group at the top of every hierarchy, whichever version.
fn cgroups() -> Vec<PathBuf> {
    let top = entries(Path::new("/sys/fs/cgroup"));
    let below = top.iter().flat_map(|hierarchy| entries(hierarchy)).collect::<Vec<_>>();
    top.into_iter().chain(below).filter(|path| path.is_dir()).collect()
}

fn journals(pid: u32, world: &Path) -> Vec<PathBuf> {
    let folders = [PathBuf::from("/run/kagiri"), world.join("run/kagiri")];
    let own = |path: &PathBuf| name(path).starts_with(&format!("{pid}-"));
    folders.iter().flat_map(|folder| entries(folder)).filter(own).collect()
}
