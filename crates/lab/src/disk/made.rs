//! A host's disk: made, mounted, and taken away again.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use sys::child::{Child, Spawn};
use sys::disk::{DirectFile, DiskImage, FileSystem, ImageFile, ImageSpec, LoopDevice};
use sys::journal::{EntryId, Journal, Undo};
use sys::proc::BlockDevice;

use super::volume::{IMAGE, PACE, STATS, WAY, WAY_NS_MAX};
use super::{Counters, DiskModel, Flash, Service};
use crate::keeper::Program;
use crate::{Error, Result};

/// Starting a process and mounting a folder.
const READY_FOR: Duration = Duration::from_secs(10);
/// The server answers such a question in microseconds.
const ANSWER_FOR: Duration = Duration::from_secs(2);
/// How often a server is asked whether it still answers, while its disk is taken away.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// So many answers in a row that do not come mean that none will.
const MISSED_MAX: u32 = 2;
/// Reads by which the way to the server and back is measured, and how often.
const PROBES: u64 = 60;
const PROBE_BYTES: u64 = 4096;
const TRIALS: usize = 8;

/// What to make.
#[derive(Debug, Clone, PartialEq)]
pub struct DiskSpec {
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The file system on it.
    pub file_system: FileSystem,
    /// How long accesses take; as long as this machine's own disk needs if not given.
    pub model: Option<DiskModel>,
    /// The file that holds its bytes; must not exist. Put it where direct I/O works (not on tmpfs).
    pub image: PathBuf,
    /// Where to mount it; made if it does not exist.
    pub target: PathBuf,
}

/// A mounted disk. Dropping it takes it away, with all that is on it.
#[derive(Debug)]
pub struct Disk {
    // Dropped in this order.
    disk: DiskImage,
    server: Option<Server>,
}

impl Disk {
    /// Makes the disk; a modelled one is served by a process of `program`.
    ///
    /// Errors: no rights, no loop devices or no FUSE, a program is missing, no space. What was made already is undone.
    pub fn create(journal: &Journal, spec: &DiskSpec, program: &Program) -> Result<Self> {
        let Some(model) = &spec.model else {
            let image = ImageSpec {
                image: spec.image.clone(),
                size_bytes: spec.size_bytes,
                file_system: spec.file_system,
                target: spec.target.clone(),
            };
            return Ok(Self { disk: DiskImage::create(journal, &image)?, server: None });
        };
        let server = Server::start(journal, spec, model, program)?;
        let device = LoopDevice::attach(journal, &server.mount.join(IMAGE))?;
        device.set_rotational(model.is_rotating())?;
        let disk = DiskImage::make_on(journal, device, spec.file_system, &spec.target)?;
        // Whole from here on: what goes wrong is taken away as any disk is.
        let this = Self { disk, server: Some(server) };
        this.set_paced(true)?;
        if let (DiskModel::Flash(flash), Some(server)) = (model, &this.server) {
            server.measure_way(this.device_path(), flash)?;
        }
        Ok(this)
    }

    /// Where it is mounted.
    pub fn target(&self) -> &Path {
        self.disk.target()
    }

    /// Its block device, for counters and limits.
    pub fn block_device(&self) -> &BlockDevice {
        self.disk.block_device()
    }

    /// The block device's special file, `/dev/loop3`.
    pub fn device_path(&self) -> &Path {
        self.disk.device_path()
    }

    /// The process that serves a modelled disk.
    pub fn server_pid(&self) -> Option<i32> {
        self.server.as_ref()?.child.as_ref().map(Child::pid)
    }

    /// What a modelled disk did; `None` for one without a model. Error: its server does not answer.
    pub fn counters(&self) -> Result<Option<Counters>> {
        let Some(server) = &self.server else { return Ok(None) };
        let text = stats(&server.mount)?;
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| Error::io("read", server.mount.join(STATS), error))
    }

    /// Whether a modelled disk takes its time. It does from the beginning; without, content is put on it as fast as this
    /// machine can. Returns when the disk has changed. Error: its server does not answer.
    pub fn set_paced(&self, paced: bool) -> Result<()> {
        match &self.server {
            Some(server) => server.tell(PACE, u64::from(paced)),
            None => Ok(()),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // What is still in memory would be written to a disk that is about to go: at least it takes no time. A server
        // that does not answer would keep whoever unmounts waiting for it, even once it is killed if it is amid a write to
        // a busy disk: it is cut off first, and the kernel gives up at once.
        let Some(server) = &mut self.server else { return };
        if server.tell(PACE, 0).is_err() {
            sys::disk::cut_off(&server.mount);
            drop(server.child.take());
        } else {
            // It may still hang or die while its disk is unmounted.
            server.watch = Watch::start(&server.mount);
        }
    }
}

/// The process behind a modelled disk, and what it needs. Dropping it ends it.
#[derive(Debug)]
struct Server {
    journal: Journal,
    child: Option<Child>,
    /// The folder and the mount, newest last.
    entries: Vec<EntryId>,
    mount: PathBuf,
    /// While its disk is taken away.
    watch: Option<Watch>,
    _backing: ImageFile,
}

impl Server {
    fn start(journal: &Journal, spec: &DiskSpec, model: &DiskModel, program: &Program) -> Result<Self> {
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
            watch: None,
            _backing: backing,
        };
        this.entries.push(journal.record(Undo::RemoveFolder { path: this.mount.clone() })?);
        std::fs::create_dir(&this.mount).map_err(|error| Error::io("create", &this.mount, error))?;
        let undo = Undo::Unmount { target: this.mount.clone(), source: service.source.into() };
        this.entries.push(journal.record(undo)?);
        let spawn = Spawn::new(&program.path).args(&program.arguments).args(["lab", "disk"]).arg(what);
        let child = this.child.insert(spawn.start(journal)?);
        child.wait_line(READY_FOR, |line| line.ends_with(Service::READY))?;
        Ok(this)
    }

    /// Finds out how much of a flash disk's latency the way to the server and back takes already, and tells it.
    ///
    /// Tried with the model itself, because a thread that has slept wakes slower than one that has not: of the ways
    /// tried, the longest with which the quicker reads still are not quicker than the model.
    fn measure_way(&self, device: &Path, flash: &Flash) -> Result<()> {
        let mut file = DirectFile::open(device, PROBE_BYTES as usize, false)?;
        let modelled_ns = flash.random_read_ns(PROBE_BYTES);
        let (mut way_ns, mut best_ns) = (0, 0);
        for _ in 0..TRIALS {
            self.tell(WAY, way_ns)?;
            // Every other place, or it would be read ahead.
            let mut took_ns = file.time_reads_ns(PROBES, 2 * PROBE_BYTES)?;
            took_ns.sort_unstable();
            let quicker_ns = took_ns.get(took_ns.len() / 10).copied().unwrap_or(0);
            if quicker_ns >= modelled_ns {
                best_ns = best_ns.max(way_ns);
                way_ns += (quicker_ns - modelled_ns) / 2;
            } else {
                way_ns = way_ns.saturating_sub(modelled_ns - quicker_ns);
            }
            way_ns = way_ns.min(WAY_NS_MAX);
        }
        self.tell(WAY, best_ns)
    }

    /// Writes a number into one of the server's files.
    fn tell(&self, name: &str, number: u64) -> Result<()> {
        asked(&self.mount.join(name), move |path| std::fs::write(path, number.to_string()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.watch.take());
        // What cannot be undone stays in the journal, which reports it.
        if let Some(mount) = self.entries.pop() {
            self.journal.undo(mount);
        }
        if let Some(mut child) = self.child.take() {
            // Unmounted, it ends by itself; if it does not, it is killed when dropped.
            let _ = child.wait(ANSWER_FOR);
        }
        for entry in self.entries.drain(..).rev() {
            self.journal.undo(entry);
        }
    }
}

/// Cuts a server off that ceases to answer. Dropping it ends the watching.
#[derive(Debug)]
struct Watch {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// `None` if there is no thread to be had: then whoever unmounts waits until his own deadline.
    fn start(mount: &Path) -> Option<Self> {
        let (end, ended) = channel();
        let mount = mount.to_owned();
        let thread = std::thread::Builder::new().name("disk-watch".to_owned()).spawn(move || {
            let mut missed = 0;
            while ended.recv_timeout(ASK_EVERY) == Err(RecvTimeoutError::Timeout) {
                // A host that is busy may be late once.
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

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic in it has been printed.
            let _ = thread.join();
        }
    }
}

/// What the server says that its disk did.
fn stats(mount: &Path) -> Result<Vec<u8>> {
    asked(&mount.join(STATS), |path| {
        // One read: each tells what holds at its moment.
        let mut text = vec![0; 4096];
        let length = File::open(path)?.read(&mut text)?;
        text.truncate(length);
        Ok(text)
    })
}

/// Does something with a file of the server, within a time: a call to a server that hangs would hang as well.
fn asked<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> Result<T> {
    let (send, receive) = sync_channel(1);
    let file = path.to_owned();
    let thread = std::thread::Builder::new().name("disk-ask".to_owned()).spawn(move || {
        // The receiver may have given up.
        let _ = send.send(work(&file));
    });
    thread.map_err(|error| Error::io("ask the server of", path, error))?;
    match receive.recv_timeout(ANSWER_FOR) {
        Ok(answer) => answer.map_err(|error| Error::io("ask the server of", path, error)),
        Err(_) => Err(Error::Refused(format!(
            "the server behind {} does not answer within {} s; take the lab down and up again",
            path.display(),
            ANSWER_FOR.as_secs()
        ))),
    }
}
