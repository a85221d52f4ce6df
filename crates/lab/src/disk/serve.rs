//! The process of a modelled disk.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use fuser::{Config, MountOption, Session, SessionACL};
use sys::clock::monotonic_ns;
use sys::stop::StopSignal;

use super::delay_queue::DelayQueue;
use super::fuse_fs::FuseDisk;
use super::model::DiskModel;
use super::service_time::ServiceTime;
use crate::{Error, Result};

const WAKES: usize = 50;
/// A longer latency means that another thread had the CPU.
const EARLY_NS_MAX: u64 = 100_000;

/// Configuration of the process: one command line argument, as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    pub model: DiskModel,
    /// File with the disk's content, which has the disk's size.
    pub backing: PathBuf,
    /// Where to mount the folder with the file `disk.img`.
    pub mount: PathBuf,
    /// Source of the mount in `/proc/self/mountinfo`.
    pub source: String,
}

impl Service {
    /// Output once the folder is mounted.
    pub const READY: &str = "disk ready";
}

/// Serves a disk until it is unmounted. Calls `ready` when it is mounted.
///
/// Access times are not modelled at first, so that the disk can be filled quickly: write `1` to the file
/// `pace` to start. SIGTERM (see [`StopSignal`]) stops modelling, so that pending writes finish at once
/// before the unmount.
pub fn serve(service: &Service, stop: StopSignal, ready: impl FnOnce()) -> Result<()> {
    let backing = OpenOptions::new().read(true).write(true).open(&service.backing);
    let backing = backing.map_err(failed("open", &service.backing))?;
    let size = backing.metadata().map_err(failed("look at", &service.backing))?.len();
    let head = ServiceTime::new(&service.model, size).map_err(|error| Error::Refused(error.to_string()))?;
    // Inherited by the serving threads. A disk waits neither for a CPU nor for its own writers. Without the
    // rights, or on an old kernel, responses are later, which the counters show.
    let _ = sys::thread::set_timer_slack_ns(1);
    let _ = sys::thread::set_io_flusher();
    let _ = sys::thread::set_realtime();

    let delay_queue = Arc::new(DelayQueue::default());
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(service.source.clone()),
        MountOption::NoExec,
        MountOption::NoAtime,
        MountOption::DefaultPermissions,
    ];
    config.acl = SessionACL::Owner;
    let disk = FuseDisk::new(backing, size, head, Arc::clone(&delay_queue));
    let session = Session::new(disk, &service.mount, &config).map_err(failed("mount", &service.mount))?;

    let start = |name: &str, work: Box<dyn FnOnce() + Send>| {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
        thread.map_err(|error| Error::Refused(format!("cannot start a thread of the disk: {error}")))
    };
    let (queue, flushing) = (Arc::clone(&delay_queue), Arc::clone(&delay_queue));
    let replies = start("disk-replies", Box::new(move || queue.run(wakeup_latency_ns())))?;
    start(
        "disk-stop",
        Box::new(move || {
            while !stop.wait_timeout(Duration::from_secs(3600)) {}
            flushing.set_paced(false);
        }),
    )?;
    ready();
    let ended = session.run();
    delay_queue.end();
    // A panic in it has been printed.
    let _ = replies.join();
    ended.map_err(failed("serve", &service.mount))
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error::io(action, path, error)
}

/// The smallest wake-up latency of this machine. Waking up that much earlier makes no response early and
/// most of them accurate.
fn wakeup_latency_ns() -> u64 {
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
