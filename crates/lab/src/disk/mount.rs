//! A host's disk: made, mounted, removed.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use sys::child::{Child, Spawn};
use sys::disk::{DirectFile, DiskImage, ImageFile, ImageSpec, LoopDevice};
use sys::journal::{EntryId, Journal, Undo};
use sys::proc::BlockDevice;

use super::fuse_fs::{IMAGE, OVERHEAD, OVERHEAD_NS_MAX, PACE, STATS};
use super::{Counters, DiskModel, Flash, Service};
use crate::program::Program;
use crate::{Error, Result};

const READY_WITHIN: Duration = Duration::from_secs(10);
/// The server responds in microseconds.
const RESPONSE_WITHIN: Duration = Duration::from_secs(2);
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
const MISSED_MAX: u32 = 2;
/// Reads per measurement of the overhead, their size, and measurements.
const PROBES: u64 = 60;
const PROBE_BYTES: u64 = 4096;
const TRIALS: usize = 8;

#[derive(Debug, Clone, PartialEq)]
pub struct DiskSpec {
    pub image: ImageSpec,
    /// `None`: as fast as this machine's disk.
    pub model: Option<DiskModel>,
}

/// A mounted disk. Dropping it removes it with its content.
#[derive(Debug)]
pub struct Disk {
    // Dropped in this order.
    disk: DiskImage,
    server: Option<Server>,
}

impl Disk {
    /// Makes a disk; a process of `program` serves a modelled one.
    ///
    /// Errors: missing rights, loop devices, FUSE, programs or space. Everything is undone then.
    pub fn create(journal: &Journal, spec: &DiskSpec, program: &Program) -> Result<Self> {
        let Some(model) = &spec.model else {
            return Ok(Self { disk: DiskImage::create(journal, &spec.image)?, server: None });
        };
        let server = Server::start(journal, &spec.image, model, program)?;
        let device = LoopDevice::attach(journal, &server.mount.join(IMAGE))?;
        device.set_rotational(model.is_rotating())?;
        let disk = DiskImage::make_on(journal, device, spec.image.file_system, &spec.image.target)?;
        // Complete: dropping it on an error removes everything.
        let this = Self { disk, server: Some(server) };
        this.set_paced(true)?;
        if let (DiskModel::Flash(flash), Some(server)) = (model, &this.server) {
            server.measure_overhead(this.device_path(), flash)?;
        }
        Ok(this)
    }

    pub fn target(&self) -> &Path {
        self.disk.target()
    }

    pub fn block_device(&self) -> &BlockDevice {
        self.disk.block_device()
    }

    pub fn device_path(&self) -> &Path {
        self.disk.device_path()
    }

    /// Process that serves a modelled disk.
    pub fn server_pid(&self) -> Option<i32> {
        self.server.as_ref()?.child.as_ref().map(Child::pid)
    }

    /// Counters of a modelled disk; `None` without a model. Error: its server does not respond.
    pub fn counters(&self) -> Result<Option<Counters>> {
        let Some(server) = &self.server else { return Ok(None) };
        let text = stats(&server.mount)?;
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| Error::io("read", server.mount.join(STATS), error))
    }

    /// Switches modelled access times, which are on at first; content is written faster without. Returns
    /// when the change is effective. Error: the server does not respond.
    pub fn set_paced(&self, paced: bool) -> Result<()> {
        match &self.server {
            Some(server) => server.write_file(PACE, u64::from(paced)),
            None => Ok(()),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Pending writes should take no time, as the disk will be removed. A hung server would block the
        // unmount, even when killed during a write to a busy disk: abort its connection first, so that the
        // kernel gives up.
        let Some(server) = &mut self.server else { return };
        if server.write_file(PACE, 0).is_err() {
            sys::disk::cut_off(&server.mount);
            drop(server.child.take());
        } else {
            // The server may still hang or die during the unmount.
            server.hang_detector = HangDetector::start(&server.mount);
        }
    }
}

#[derive(Debug)]
struct Server {
    journal: Journal,
    child: Option<Child>,
    /// Folder and mount, newest last.
    entries: Vec<EntryId>,
    mount: PathBuf,
    hang_detector: Option<HangDetector>,
    _backing: ImageFile,
}

impl Server {
    fn start(journal: &Journal, spec: &ImageSpec, model: &DiskModel, program: &Program) -> Result<Self> {
        let backing = ImageFile::create(journal, &spec.image, spec.size_bytes)?;
        let mut mount = backing.path().as_os_str().to_owned();
        mount.push(".fuse");
        let mount = PathBuf::from(mount);
        let service = Service {
            model: model.clone(),
            backing: backing.path().to_owned(),
            mount: mount.clone(),
            source: format!("kagiri-disk-{}", std::process::id()),
        };
        let what = serde_json::to_string(&service).map_err(|error| Error::Refused(error.to_string()))?;
        let mut this = Self {
            journal: journal.clone(),
            child: None,
            entries: Vec::new(),
            mount,
            hang_detector: None,
            _backing: backing,
        };
        this.entries.push(journal.record(Undo::RemoveFolder { path: this.mount.clone() })?);
        std::fs::create_dir(&this.mount).map_err(|error| Error::io("create", &this.mount, error))?;
        let undo = Undo::Unmount { target: this.mount.clone(), source: service.source.into() };
        this.entries.push(journal.record(undo)?);
        let spawn = Spawn::new(&program.path).args(&program.arguments).args(["lab", "disk"]).arg(what);
        let child = this.child.insert(spawn.start(journal)?);
        child.wait_line(READY_WITHIN, |line| line.ends_with(Service::READY))?;
        Ok(this)
    }

    /// Measures which part of a flash disk's latency is the way to the server and back, and sends it to the
    /// server.
    ///
    /// Measured with the model itself, because a thread wakes up slower after a sleep. Takes the largest
    /// overhead with which the fastest reads are not faster than the model.
    fn measure_overhead(&self, device: &Path, flash: &Flash) -> Result<()> {
        let mut file = DirectFile::open(device, PROBE_BYTES as usize, false)?;
        let modelled_ns = flash.random_read_ns(PROBE_BYTES);
        let (mut overhead_ns, mut best_ns) = (0, 0);
        for _ in 0..TRIALS {
            self.write_file(OVERHEAD, overhead_ns)?;
            // Every other block, to avoid read-ahead.
            let mut took_ns = file.time_reads_ns(PROBES, 2 * PROBE_BYTES)?;
            took_ns.sort_unstable();
            let quicker_ns = took_ns.get(took_ns.len() / 10).copied().unwrap_or(0);
            if quicker_ns >= modelled_ns {
                best_ns = best_ns.max(overhead_ns);
                overhead_ns += (quicker_ns - modelled_ns) / 2;
            } else {
                overhead_ns = overhead_ns.saturating_sub(modelled_ns - quicker_ns);
            }
            overhead_ns = overhead_ns.min(OVERHEAD_NS_MAX);
        }
        self.write_file(OVERHEAD, best_ns)
    }

    fn write_file(&self, name: &str, number: u64) -> Result<()> {
        with_timeout(&self.mount.join(name), move |path| std::fs::write(path, number.to_string()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.hang_detector.take());
        // The journal keeps and reports what cannot be undone.
        if let Some(mount) = self.entries.pop() {
            self.journal.undo(mount);
        }
        if let Some(mut child) = self.child.take() {
            // It ends by itself once unmounted, or is killed when dropped.
            let _ = child.wait(RESPONSE_WITHIN);
        }
        for entry in self.entries.drain(..).rev() {
            self.journal.undo(entry);
        }
    }
}

/// Aborts the connection of a server that stops responding. Dropping it ends the check.
#[derive(Debug)]
struct HangDetector {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HangDetector {
    /// `None` without a thread: the unmount then waits for its own deadline.
    fn start(mount: &Path) -> Option<Self> {
        let (end, ended) = channel();
        let mount = mount.to_owned();
        let thread = std::thread::Builder::new().name("disk-watch".to_owned()).spawn(move || {
            let mut missed = 0;
            while ended.recv_timeout(CHECK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                // A busy machine may miss one response.
                missed = if stats(&mount).is_err() { missed + 1 } else { 0 };
                if missed == MISSED_MAX {
                    sys::disk::cut_off(&mount);
                    return;
                }
            }
        });
        Some(Self { end: Some(end), thread: Some(thread.ok()?) })
    }
}

impl Drop for HangDetector {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic in it has been printed.
            let _ = thread.join();
        }
    }
}

fn stats(mount: &Path) -> Result<Vec<u8>> {
    with_timeout(&mount.join(STATS), |path| {
        // A single read gives consistent values.
        let mut text = vec![0; 4096];
        let length = File::open(path)?.read(&mut text)?;
        text.truncate(length);
        Ok(text)
    })
}

/// Accesses a file of the server with a timeout: a call to a hung server hangs as well.
pub(crate) fn with_timeout<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> Result<T> {
    let (send, receive) = sync_channel(1);
    let file = path.to_owned();
    let thread = std::thread::Builder::new().name("disk-ask".to_owned()).spawn(move || {
        // The receiver may have given up.
        let _ = send.send(work(&file));
    });
    thread.map_err(|error| Error::io("access the server of", path, error))?;
    match receive.recv_timeout(RESPONSE_WITHIN) {
        Ok(answer) => answer.map_err(|error| Error::io("access the server of", path, error)),
        Err(_) => Err(Error::Refused(format!(
            "the server behind {} does not respond within {} s; restart the lab",
            path.display(),
            RESPONSE_WITHIN.as_secs()
        ))),
    }
}
