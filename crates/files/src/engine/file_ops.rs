//! The flowops that work on files and directories.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fastrand::Rng;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, PosixFadviseAdvice, openat, posix_fadvise};
use nix::sys::stat::{Mode, fstat, fstatat, mkdirat};
use nix::sys::uio::{pread, pwrite};
use nix::unistd::{UnlinkatFlags, Whence, fsync, lseek, unlinkat};
use sys::clock::monotonic_ns;
use wml::Kind;

use super::aio::Outstanding;
use super::compile::Planned;
use super::content::ALIGNMENT;
use super::fault::Fault;
use super::open_files::{OpenFile, OpenFiles};
use super::shared::Shared;
use crate::tree::PathBuffer;
use crate::tree::slots::{Choice, Picked, Want};

/// A file that is to be deleted may be in use for so long; then there is nothing to delete.
const IN_USE_NS: u64 = 100_000_000;
const BUSY_PAUSE: Duration = Duration::from_micros(50);

type Bytes = Result<u64, Fault>;

/// The files and the memory of one thread.
pub(crate) struct FileOps {
    pub shared: Arc<Shared>,
    pub rng: Rng,
    open: OpenFiles,
    memory: Vec<u8>,
    /// The first aligned byte of the memory.
    start: usize,
    path: PathBuffer,
    /// By tree: the next file of this thread.
    rotors: Vec<u32>,
    outstanding: Arc<Outstanding>,
    /// When the last flowop began, after it had its file.
    pub begin_ns: u64,
    /// The end of the run.
    pub to_ns: u64,
}

/// Repeats a call that a signal interrupted.
fn uninterrupted<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}

/// Writes all: a short write is continued.
fn write_all(file: BorrowedFd<'_>, mut content: &[u8], mut at: i64) -> Result<(), Fault> {
    while !content.is_empty() {
        match uninterrupted(|| pwrite(file, content, at)).map_err(Fault::call("write"))? {
            0 => return Err(Fault::Call { call: "write", error: Errno::ENOSPC }),
            written => {
                content = &content[written..];
                at += written as i64;
            }
        }
    }
    Ok(())
}

impl FileOps {
    pub(crate) fn new(shared: Arc<Shared>, seed: u64, slots: usize, memory_bytes: u64) -> Self {
        let own = if shared.settings.is_strict { usize::try_from(memory_bytes).unwrap_or(0) } else { 0 };
        // Zeroed memory takes no page before it is touched.
        let memory = vec![0; own.max(shared.compiled.io_bytes_max) + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self {
            rng: Rng::with_seed(seed),
            open: OpenFiles::new(slots),
            start,
            memory,
            path: PathBuffer::default(),
            rotors: vec![0; shared.trees.len()],
            outstanding: Arc::default(),
            begin_ns: 0,
            to_ns: u64::MAX,
            shared,
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

    fn begin(&mut self) {
        self.begin_ns = monotonic_ns();
    }

    fn tree_of(planned: &Planned) -> Result<usize, Fault> {
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
    fn opened(&mut self, planned: &Planned) -> Result<(), Fault> {
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

    fn file(&self, fd: usize) -> Result<&OpenFile, Fault> {
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

    /// The size of one read or write: as given, or that of the file.
    fn io_bytes(&mut self, planned: &Planned, file_bytes: u64) -> usize {
        let drawn = planned.io_bytes.as_ref().map_or(0, |bytes| bytes.draw(&mut self.rng));
        let bytes = if drawn == 0 { file_bytes } else { drawn };
        usize::try_from(bytes).unwrap_or(usize::MAX).clamp(1, self.shared.compiled.io_bytes_max)
    }

    /// Where in the thread's memory the next read or write is: filebench takes another place each time.
    fn place(&mut self, bytes: usize) -> usize {
        let room = (self.memory.len() - ALIGNMENT).saturating_sub(bytes) / bytes.max(1);
        match self.shared.settings.is_strict && room > 0 {
            true => self.start + self.rng.usize(0..=room) * bytes,
            false => self.start,
        }
    }

    fn read_whole(&mut self, planned: &Planned) -> Bytes {
        self.opened(planned)?;
        let open = self.file(planned.fd)?;
        let file_bytes = self.shared.trees[open.tree].size(open.slot);
        let bytes = self.io_bytes(planned, file_bytes);
        let is_strict = self.shared.settings.is_strict;
        self.begin();
        let mut all = 0u64;
        loop {
            let place = self.place(bytes);
            let open = self.open.get(planned.fd).ok_or(Fault::Skipped)?;
            let memory = &mut self.memory[place..place + bytes];
            let read = uninterrupted(|| pread(open.fd(), memory, all as i64)).map_err(Fault::call("read"))?;
            all += read as u64;
            // A short read is the end of the file; filebench asks once more.
            if read == 0 || (read < bytes && !is_strict) {
                return Ok(all);
            }
            if self.is_past_end() {
                return Err(Fault::Over);
            }
        }
    }

    fn read(&mut self, planned: &Planned) -> Bytes {
        self.opened(planned)?;
        let (bytes, at) = self.extent(planned, Kind::Read)?;
        self.begin();
        let place = self.place(bytes);
        let open = self.open.get_mut(planned.fd).ok_or(Fault::Skipped)?;
        let memory = &mut self.memory[place..place + bytes];
        let mut read = uninterrupted(|| pread(open.fd(), memory, at as i64)).map_err(Fault::call("read"))?;
        if !planned.is_random {
            open.position = at + read as u64;
            if read == 0 && at > 0 {
                // The end: from the beginning again.
                read = uninterrupted(|| pread(open.fd(), memory, 0)).map_err(Fault::call("read"))?;
                open.position = read as u64;
            }
        }
        Ok(read as u64)
    }

    /// Size and offset of the next read or write of an open file.
    fn extent(&mut self, planned: &Planned, kind: Kind) -> Result<(usize, u64), Fault> {
        let open = self.file(planned.fd)?;
        let (file_bytes, position) = (self.shared.trees[open.tree].size(open.slot), open.position);
        let working_set = planned.working_set.as_ref().map_or(0, |bytes| bytes.draw(&mut self.rng));
        let span = if working_set == 0 { file_bytes } else { working_set };
        let bytes = self.io_bytes(planned, span);
        if planned.is_random {
            let places = span.saturating_sub(bytes as u64) / bytes as u64;
            return Ok((bytes, self.rng.u64(0..=places) * bytes as u64));
        }
        // filebench writes on and on, until the disk is full.
        let is_at_end = span > 0 && position.saturating_add(bytes as u64) > span.max(bytes as u64);
        let at =
            if kind != Kind::Read && is_at_end && !self.shared.settings.is_strict { 0 } else { position };
        Ok((bytes, at))
    }

    /// What a write takes its bytes from.
    fn content(&self, place: usize, bytes: usize) -> &[u8] {
        match self.shared.settings.is_strict {
            true => &self.memory[place..place + bytes],
            false => self.shared.content.bytes(bytes),
        }
    }

    fn write(&mut self, planned: &Planned, kind: Kind) -> Bytes {
        self.opened(planned)?;
        let (bytes, at) = self.extent(planned, kind)?;
        let place = self.place(bytes);
        self.begin();
        if kind == Kind::AioWrite {
            let file = self.file(planned.fd)?.duplicate()?;
            let Some(aio) = &self.shared.aio else { return Err(Fault::Skipped) };
            let handed_over = aio.write(file, &self.shared.content, bytes, at, &self.outstanding);
            handed_over.map_err(Fault::call("write"))?;
        } else {
            let open = self.file(planned.fd)?;
            write_all(open.fd(), self.content(place, bytes), at as i64)?;
        }
        if !planned.is_random
            && let Some(open) = self.open.get_mut(planned.fd)
        {
            open.position = at + bytes as u64;
        }
        Ok(bytes as u64)
    }

    fn write_whole(&mut self, planned: &Planned) -> Bytes {
        self.opened(planned)?;
        let source = self.open.get(planned.source_fd.unwrap_or(planned.fd));
        let source = source.or(self.open.get(planned.fd)).ok_or(Fault::Skipped)?;
        let size = self.shared.trees[source.tree].size(source.slot);
        let bytes = self.io_bytes(planned, size).min(usize::try_from(size).unwrap_or(usize::MAX));
        let is_strict = self.shared.settings.is_strict;
        self.begin();
        let begin = self.file(planned.fd)?.position;
        let mut done = 0;
        while done < size {
            // filebench writes whole pieces, and so more than the file's size.
            let left = usize::try_from(size - done).unwrap_or(usize::MAX);
            let piece = if is_strict { bytes } else { bytes.min(left) };
            let place = self.place(piece);
            let open = self.file(planned.fd)?;
            write_all(open.fd(), self.content(place, piece), (begin + done) as i64)?;
            done += piece as u64;
            if done < size && self.is_past_end() {
                return Err(Fault::Over);
            }
        }
        if let Some(open) = self.open.get_mut(planned.fd) {
            open.position = begin + done;
        }
        Ok(done)
    }

    fn append(&mut self, planned: &Planned, kind: Kind) -> Bytes {
        self.opened(planned)?;
        let mut bytes = self.io_bytes(planned, 1);
        if kind == Kind::AppendFileRandom {
            bytes = self.rng.usize(0..bytes);
        }
        self.begin();
        if bytes == 0 {
            return Ok(0);
        }
        let place = self.place(bytes);
        let open = self.file(planned.fd)?;
        let end = lseek(open.fd(), 0, Whence::SeekEnd).map_err(Fault::call("seek"))?;
        write_all(open.fd(), self.content(place, bytes), end)?;
        Ok(bytes as u64)
    }

    fn wait_for_writes(&mut self) -> Bytes {
        self.begin();
        match self.outstanding.clone().wait_for_half(|| self.left()) {
            Ok(true) => Ok(0),
            Ok(false) => Err(Fault::Over),
            Err(error) => Err(Fault::Call { call: "write", error }),
        }
    }

    fn sync(&mut self, planned: &Planned) -> Bytes {
        self.opened(planned)?;
        self.begin();
        fsync(self.file(planned.fd)?.fd()).map(|()| 0).map_err(Fault::call("fsync"))
    }

    fn sync_set(&mut self, planned: &Planned) -> Bytes {
        let tree = Self::tree_of(planned)?;
        self.begin();
        for open in self.open.all().filter(|open| open.tree == tree) {
            fsync(open.fd()).map_err(Fault::call("fsync"))?;
        }
        Ok(0)
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
