//! The process behind a modelled disk.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use fuser::{Config, MountOption, Session, SessionACL};
use sys::clock::monotonic_ns;
use sys::stop::StopSignal;

use super::answers::Answers;
use super::head::Head;
use super::model::DiskModel;
use super::volume::Volume;
use crate::{Error, Result};

/// How often it is tried how late this machine wakes a thread.
const WAKES: usize = 50;
/// A thread that is woken this late met somebody else on its CPU.
const EARLY_NS_MAX: u64 = 100_000;

/// What the process serves: one argument of its command line, as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// How long accesses take.
    pub model: DiskModel,
    /// Where the bytes are. The disk is as large as this file.
    pub backing: PathBuf,
    /// Where to mount the folder with the file `disk.img`.
    pub mount: PathBuf,
    /// What is mounted there, as `/proc/self/mountinfo` names it.
    pub source: String,
}

impl Service {
    /// The line by which the process says that the folder is mounted.
    pub const READY: &str = "disk ready";
}

/// Serves until the folder is unmounted; `ready` is called when it is mounted.
///
/// The disk begins without taking time, so that it can be filled quickly: write `1` to the file `pace` to make it slow.
/// After SIGTERM (see [`StopSignal`]) it takes no time again, so that what still has to be written before it can be
/// unmounted is written at once. Errors: no rights, no FUSE in this kernel, the backing file cannot be used.
pub fn serve(service: &Service, stop: StopSignal, ready: impl FnOnce()) -> Result<()> {
    let backing = OpenOptions::new().read(true).write(true).open(&service.backing);
    let backing = backing.map_err(failed("open", &service.backing))?;
    let size = backing.metadata().map_err(failed("look at", &service.backing))?.len();
    let head = Head::new(&service.model, size).map_err(|error| Error::Refused(error.to_string()))?;
    // All are inherited by the threads that serve. A disk does not wait for a CPU, nor for its own writers. Where the
    // rights are not enough or the kernel is old it is less punctual, as its counters then say.
    let _ = sys::thread::set_timer_slack_ns(1);
    let _ = sys::thread::set_io_flusher();
    let _ = sys::thread::set_realtime();

    let answers = Arc::new(Answers::default());
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(service.source.clone()),
        MountOption::NoExec,
        MountOption::NoAtime,
        MountOption::DefaultPermissions,
    ];
    config.acl = SessionACL::Owner;
    let volume = Volume::new(backing, size, head, Arc::clone(&answers));
    let session = Session::new(volume, &service.mount, &config).map_err(failed("mount", &service.mount))?;

    let start = |name: &str, work: Box<dyn FnOnce() + Send>| {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
        thread.map_err(|error| Error::Refused(format!("cannot start a thread of the disk: {error}")))
    };
    let (giving, hurrying) = (Arc::clone(&answers), Arc::clone(&answers));
    let give = start("disk-answers", Box::new(move || giving.give(least_lateness_ns())))?;
    start(
        "disk-stop",
        Box::new(move || {
            while !stop.wait_timeout(Duration::from_secs(3600)) {}
            hurrying.set_paced(false);
        }),
    )?;
    ready();
    let ended = session.run();
    answers.end();
    // It has nothing left to wait for; a panic in it has been printed.
    let _ = give.join();
    ended.map_err(failed("serve", &service.mount))
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error::io(action, path, error)
}

/// By how much this machine wakes a waiting thread too late at the least. That much earlier it is to be woken: no
/// answer comes before its time, and most come close after it.
fn least_lateness_ns() -> u64 {
    let (mutex, never) = (Mutex::new(()), Condvar::new());
    let mut least_ns = EARLY_NS_MAX;
    for _ in 0..WAKES {
        let due_ns = monotonic_ns() + 200_000;
        let guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
        drop(never.wait_timeout(guard, Duration::from_nanos(due_ns.saturating_sub(monotonic_ns()))));
        least_ns = least_ns.min(monotonic_ns().saturating_sub(due_ns));
    }
    least_ns
}
