//! The files of a thread, and the flowops that work on names: open, create, delete, stat, directories.

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fastrand::Rng;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, PosixFadviseAdvice, openat, posix_fadvise};
use nix::sys::stat::{Mode, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use sys::clock::monotonic_ns;
use sys::memory::PagedMemory;
use wml::Kind;

use super::aio::Outstanding;
use super::fault::Fault;
use super::open_files::{OpenFile, OpenFiles};
use super::shared::Shared;
use crate::engine::compile::Planned;
use crate::tree::PathBuffer;
use crate::tree::slots::{Choice, Picked, Want};

/// A file that is to be deleted may be in use for so long; then there is nothing to delete.
const IN_USE_NS: u64 = 100_000_000;
/// The most memory of all threads that is made before the start.
const TOUCHED_MAX: u64 = 1 << 30;
const PAGE_BYTES: usize = 4096;
const BUSY_PAUSE: Duration = Duration::from_micros(50);

pub(in crate::engine) type Bytes = Result<u64, Fault>;

/// The files and the memory of one thread.
pub(crate) struct FileOps {
    pub shared: Arc<Shared>,
    pub rng: Rng,
    pub(in crate::engine) open: OpenFiles,
    pub(in crate::engine) memory: PagedMemory,
    path: PathBuffer,
    /// By tree: the next file of this thread.
    rotors: Vec<u32>,
    pub(in crate::engine) outstanding: Arc<Outstanding>,
    /// When the last flowop began, after it had its file.
    pub begin_ns: u64,
    /// The end of the run.
    pub to_ns: u64,
}

/// Repeats a call that a signal interrupted.
pub(in crate::engine) fn uninterrupted<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}

impl FileOps {
    /// # Errors
    /// There is no address space for the memory.
    pub(crate) fn new(
        shared: Arc<Shared>,
        seed: u64,
        slots: usize,
        memory_bytes: u64,
    ) -> std::io::Result<Self> {
        let own = if shared.settings.is_strict { usize::try_from(memory_bytes).unwrap_or(0) } else { 0 };
        let memory = PagedMemory::new(own.max(shared.compiled.io_bytes_max))?;
        Ok(Self {
            rng: Rng::with_seed(seed),
            open: OpenFiles::new(slots),
            memory,
            path: PathBuffer::default(),
            rotors: vec![0; shared.trees.len()],
            outstanding: Arc::default(),
            begin_ns: 0,
            to_ns: u64::MAX,
            shared,
        })
    }

    /// Has the pages of the memory before the start: page faults in calls that read take a lock of the whole
    /// process, and a write from a page that is not there yet copies less than it made room for, which file
    /// systems without delayed allocation (ext3) undo in their journal. Not if all threads together would
    /// have too many; filebench has them all.
    pub(crate) fn touch_memory(&mut self) {
        let all = (self.memory.len() as u64).saturating_mul(self.shared.live.len() as u64);
        if all > TOUCHED_MAX && !self.shared.settings.is_strict {
            return;
        }
        for page in self.memory.chunks_mut(PAGE_BYTES) {
            *std::hint::black_box(&mut page[0]) = 0;
        }
    }

    pub(crate) fn is_past_end(&self) -> bool {
        self.shared.is_over() || monotonic_ns() >= self.to_ns
    }

    /// The time that is left; `None` at the end.
    pub(crate) fn left(&self) -> Option<Duration> {
        let left = self.to_ns.saturating_sub(monotonic_ns());
        (left > 0 && !self.shared.is_over()).then(|| Duration::from_nanos(left))
    }

    pub(crate) fn perform(&mut self, planned: &Planned, kind: Kind) -> Bytes {
        match kind {
            Kind::CreateFile => self.create(planned),
            Kind::OpenFile => self.open_existing(planned),
            Kind::CloseFile => self.close(planned),
            Kind::DeleteFile => self.delete(planned),
            Kind::StatFile => self.stat(planned),
            Kind::ReadWholeFile => self.read_whole(planned),
            Kind::WriteWholeFile => self.write_whole(planned),
            Kind::AppendFile | Kind::AppendFileRandom => self.append(planned, kind),
            Kind::Read => self.read(planned),
            Kind::Write | Kind::AioWrite => self.write(planned, kind),
            Kind::AioWait => self.wait_for_writes(),
            Kind::Fsync => self.sync(planned),
            Kind::FsyncSet => self.sync_set(planned),
            Kind::MakeDir | Kind::RemoveDir => self.leaf_dir(planned, kind),
            Kind::ListDir => self.list(planned),
            _ => Ok(0),
        }
    }

    pub(in crate::engine) fn begin(&mut self) {
        self.begin_ns = monotonic_ns();
    }

    pub(in crate::engine) fn tree_of(planned: &Planned) -> Result<usize, Fault> {
        planned.tree.ok_or_else(|| Fault::Program("the flowop has no fileset".to_owned()))
    }

    fn pick(&mut self, planned: &Planned, tree: usize, want: Want, is_dir: bool) -> Result<u32, Fault> {
        let set = &self.shared.trees[tree];
        let slots = if is_dir { &set.leaf_dirs } else { &set.slots };
        let mut since_ns = None;
        loop {
            let choice = match &planned.index {
                Some(index) => Choice::Index(index.draw(&mut self.rng)),
                None if planned.opens_next => Choice::Own(&mut self.rotors[tree]),
                None if self.shared.settings.is_strict => Choice::Shared,
                None => Choice::Random(&mut self.rng),
            };
            match slots.pick(want, choice) {
                Picked::Slot(slot) => return Ok(slot),
                Picked::Exhausted => {
                    let wanted = if want == Want::Missing { "create" } else { "use" };
                    return Err(Fault::Exhausted { set: set.name.clone(), wanted });
                }
                Picked::Busy => {
                    let now_ns = monotonic_ns();
                    let since_ns = *since_ns.get_or_insert(now_ns);
                    if want == Want::Unused && now_ns - since_ns > IN_USE_NS {
                        return Err(Fault::Skipped);
                    }
                    if self.is_past_end() {
                        return Err(Fault::Over);
                    }
                    std::thread::sleep(BUSY_PAUSE);
                }
            }
        }
    }

    fn flags(&self, planned: &Planned, tree: usize) -> OFlag {
        let set = &self.shared.trees[tree];
        let mut flags = OFlag::O_CLOEXEC;
        flags |= match (set.is_read_only, set.is_write_only) {
            (true, _) => OFlag::O_RDONLY,
            (false, true) => OFlag::O_WRONLY,
            (false, false) => OFlag::O_RDWR,
        };
        flags.set(OFlag::O_DSYNC, planned.is_dsync);
        flags.set(OFlag::O_DIRECT, planned.is_direct);
        flags
    }

    fn must_be_closed(&self, planned: &Planned) -> Result<(), Fault> {
        match self.open.get(planned.fd) {
            None => Ok(()),
            Some(_) => {
                Err(Fault::Program(format!("its slot fd={} has a file already; close it first", planned.fd)))
            }
        }
    }

    fn create(&mut self, planned: &Planned) -> Bytes {
        self.must_be_closed(planned)?;
        let tree = Self::tree_of(planned)?;
        let slot = self.pick(planned, tree, Want::Missing, false)?;
        let flags = self.flags(planned, tree) | OFlag::O_CREAT;
        self.begin();
        let set = &self.shared.trees[tree];
        let (dir, name) = set.file(slot, &mut self.path);
        let made = uninterrupted(|| openat(dir, name, flags, Mode::from_bits_truncate(0o666)));
        set.slots.created(slot, made.is_ok());
        let file = made.map_err(Fault::call("create"))?;
        self.open.set(planned.fd, OpenFile::new(file, tree, slot));
        Ok(0)
    }

    fn open_existing(&mut self, planned: &Planned) -> Bytes {
        self.must_be_closed(planned)?;
        let tree = Self::tree_of(planned)?;
        let slot = self.pick(planned, tree, Want::Existing, false)?;
        let flags = self.flags(planned, tree);
        self.begin();
        let set = &self.shared.trees[tree];
        let (dir, name) = set.file(slot, &mut self.path);
        match uninterrupted(|| openat(dir, name, flags, Mode::empty())) {
            Ok(file) => {
                if planned.is_without_read_ahead {
                    // Advice that a file system does not take changes nothing that is counted.
                    let _ = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM);
                }
                self.open.set(planned.fd, OpenFile::new(file, tree, slot));
                Ok(0)
            }
            Err(error) => {
                set.slots.release(slot);
                Err(Fault::Call { call: "open", error })
            }
        }
    }

    /// Opens a file if the slot has none, or the next one where each call takes another.
    pub(in crate::engine) fn opened(&mut self, planned: &Planned) -> Result<(), Fault> {
        if self.open.get(planned.fd).is_some() {
            if !planned.opens_next {
                return Ok(());
            }
            self.open.close(planned.fd, &self.shared.trees).map_err(Fault::call("close"))?;
        }
        if planned.tree.is_none() {
            return Err(Fault::Program(format!(
                "its slot fd={} has no file, and it names no fileset",
                planned.fd
            )));
        }
        self.open_existing(planned).map(drop)
    }

    pub(in crate::engine) fn file(&self, fd: usize) -> Result<&OpenFile, Fault> {
        self.open.get(fd).ok_or_else(|| Fault::Program(format!("its slot fd={fd} has no file")))
    }

    fn close(&mut self, planned: &Planned) -> Bytes {
        if self.open.get(planned.fd).is_none() {
            return Err(Fault::Skipped);
        }
        self.begin();
        self.open.close(planned.fd, &self.shared.trees).map(|()| 0).map_err(Fault::call("close"))
    }

    fn delete(&mut self, planned: &Planned) -> Bytes {
        let (tree, slot) = match self.open.get(planned.fd).filter(|_| planned.fd > 0) {
            Some(open) => {
                let (tree, slot) = (open.tree, open.slot);
                if !self.shared.trees[tree].slots.begin_deletion(slot) {
                    return Err(Fault::Skipped);
                }
                // The use of the file has become its deletion. What close(2) says of earlier writes is lost
                // with it.
                drop(self.open.take(planned.fd));
                (tree, slot)
            }
            None => {
                let tree = Self::tree_of(planned)?;
                (tree, self.pick_to_delete(planned, tree)?)
            }
        };
        self.begin();
        let set = &self.shared.trees[tree];
        let (dir, name) = set.file(slot, &mut self.path);
        let removed = uninterrupted(|| unlinkat(dir, name, UnlinkatFlags::NoRemoveDir));
        set.slots.deleted(slot, removed.is_ok());
        removed.map(|()| 0).map_err(Fault::call("delete"))
    }

    fn pick_to_delete(&mut self, planned: &Planned, tree: usize) -> Result<u32, Fault> {
        if !self.shared.settings.is_strict {
            return self.pick(planned, tree, Want::Unused, false);
        }
        // filebench takes any file, and skips it silently if another thread uses it.
        let slot = self.pick(planned, tree, Want::Existing, false)?;
        let slots = &self.shared.trees[tree].slots;
        match slots.begin_deletion(slot) {
            true => Ok(slot),
            false => {
                slots.release(slot);
                Err(Fault::Skipped)
            }
        }
    }

    fn stat(&mut self, planned: &Planned) -> Bytes {
        if planned.fd > 0
            && let Some(open) = self.open.get(planned.fd)
        {
            self.begin_ns = monotonic_ns();
            return fstat(open.fd()).map(|_| 0).map_err(Fault::call("stat"));
        }
        let tree = Self::tree_of(planned)?;
        let slot = self.pick(planned, tree, Want::Existing, false)?;
        self.begin();
        let set = &self.shared.trees[tree];
        let (dir, name) = set.file(slot, &mut self.path);
        let found = fstatat(dir, name, AtFlags::empty());
        set.slots.release(slot);
        found.map(|_| 0).map_err(Fault::call("stat"))
    }

    fn leaf_dir(&mut self, planned: &Planned, kind: Kind) -> Bytes {
        let tree = Self::tree_of(planned)?;
        let is_new = kind == Kind::MakeDir;
        let want = if is_new { Want::Missing } else { Want::Unused };
        let slot = self.pick(planned, tree, want, true)?;
        self.begin();
        let set = &self.shared.trees[tree];
        let (dir, name): (_, &CStr) = set.leaf_dir(slot, &mut self.path);
        if !is_new {
            let removed = unlinkat(dir, name, UnlinkatFlags::RemoveDir);
            set.leaf_dirs.deleted(slot, removed.is_ok());
            return removed.map(|()| 0).map_err(Fault::call("remove directory"));
        }
        let made = mkdirat(dir, name, Mode::from_bits_truncate(0o777));
        set.leaf_dirs.created(slot, made.is_ok());
        if made.is_ok() {
            set.leaf_dirs.release(slot);
        }
        made.map(|()| 0).map_err(Fault::call("create directory"))
    }

    fn list(&mut self, planned: &Planned) -> Bytes {
        let set = &self.shared.trees[Self::tree_of(planned)?];
        let number = set.list_rotor.fetch_add(1, Ordering::Relaxed) % set.dir_count();
        let path = set.dir_path(number);
        self.begin_ns = monotonic_ns();
        let wrong = |error: std::io::Error| Fault::Call {
            call: "list directory",
            error: Errno::from_raw(error.raw_os_error().unwrap_or(0)),
        };
        let mut bytes = 0;
        for entry in std::fs::read_dir(path).map_err(wrong)? {
            bytes += entry.map_err(wrong)?.file_name().len() as u64;
        }
        Ok(bytes)
    }
}
