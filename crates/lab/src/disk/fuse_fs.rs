//! The FUSE file system (linux/fuse.h) with the disk's file.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use sys::clock::monotonic_ns;

use super::Counters;
use super::delay_queue::{DelayQueue, DelayedReply};
use super::mechanism::Direction;
use super::service_time::ServiceTime;

/// Largest request, as of block devices.
const REQUEST_BYTES: u32 = 1 << 20;
/// Background requests of the kernel: more than the queue of a loop device.
const BACKGROUND: u16 = 256;
/// Limit of the overhead, which a quiet machine needs. An overhead measured on a busy machine must not make
/// the disk faster than its model on a quiet one.
pub(super) const OVERHEAD_NS_MAX: u64 = 25_000;
/// Attributes never change by themselves.
const KEPT: Duration = Duration::from_secs(3600);

pub(super) const IMAGE: &str = "disk.img";
pub(super) const STATS: &str = "stats";
/// `1` while access times are modelled, else `0`.
pub(super) const PACE: &str = "pace";
/// Overhead of an access in ns: the way to the server and back.
pub(super) const OVERHEAD: &str = "way_ns";

const FILES: [(INodeNo, &str); 4] =
    [(INodeNo(2), IMAGE), (INodeNo(3), STATS), (INodeNo(4), PACE), (INodeNo(5), OVERHEAD)];

#[derive(Debug)]
pub(super) struct FuseDisk {
    backing: File,
    size: u64,
    head: Mutex<ServiceTime>,
    delay_queue: Arc<DelayQueue>,
    overhead_ns: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

impl FuseDisk {
    pub(super) fn new(backing: File, size: u64, head: ServiceTime, delay_queue: Arc<DelayQueue>) -> Self {
        let [overhead_ns, reads, writes, flushes, read_bytes, written_bytes] =
            [const { AtomicU64::new(0) }; 6];
        let head = Mutex::new(head);
        Self {
            backing,
            size,
            head,
            delay_queue,
            overhead_ns,
            reads,
            writes,
            flushes,
            read_bytes,
            written_bytes,
        }
    }

    fn due_ns(&self, bytes: u64, access: impl FnOnce(&mut ServiceTime, u64) -> u64) -> u64 {
        if !self.delay_queue.paced() {
            return 0;
        }
        // Reads the clock under the lock, because the model needs arrivals in order. A host measures from
        // request to response, so the overhead of both directions is subtracted from the arrival.
        let overhead_ns = self.overhead_ns.load(Ordering::Relaxed) + self.delay_queue.copy_ns(bytes);
        let mut head = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        access(&mut head, monotonic_ns().saturating_sub(overhead_ns))
    }

    fn counters(&self) -> Counters {
        let effort = self.head.lock().unwrap_or_else(PoisonError::into_inner).effort();
        let lateness = self.delay_queue.lateness();
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            reads: of(&self.reads),
            writes: of(&self.writes),
            flushes: of(&self.flushes),
            read_bytes: of(&self.read_bytes),
            written_bytes: of(&self.written_bytes),
            waiting: lateness.waiting,
            seeks: effort.seeks,
            hits: effort.hits,
            busy_ns: effort.busy_ns,
            late_ns_mean: lateness.late_ns_mean,
            late_ns_max: lateness.late_ns_max,
            paced: self.delay_queue.paced(),
        }
    }

    fn text(&self, inode: INodeNo) -> String {
        match inode {
            INodeNo(3) => serde_json::to_string(&self.counters()).unwrap_or_default() + "\n",
            INodeNo(4) => format!("{}\n", u8::from(self.delay_queue.paced())),
            _ => format!("{}\n", self.overhead_ns.load(Ordering::Relaxed)),
        }
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match inode {
            INodeNo(1) => (FileType::Directory, 0o500, 0),
            INodeNo(2) => (FileType::RegularFile, 0o600, self.size),
            INodeNo(3) => (FileType::RegularFile, 0o400, 0),
            INodeNo(4 | 5) => (FileType::RegularFile, 0o600, 0),
            _ => return None,
        };
        let at: SystemTime = UNIX_EPOCH;
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: at,
            mtime: at,
            ctime: at,
            crtime: at,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    fn read_image(&self, offset: u64, size: u32, reply: ReplyData) {
        let length = u64::from(size).min(self.size.saturating_sub(offset));
        let due_ns = self.due_ns(0, |head, now| head.access(now, Direction::Read, offset, length));
        // Reads the bytes while the disk rotates.
        let mut bytes = self.delay_queue.buffer(length as usize);
        match self.backing.read_exact_at(&mut bytes, offset) {
            Ok(()) => {
                self.reads.fetch_add(1, Ordering::Relaxed);
                self.read_bytes.fetch_add(length, Ordering::Relaxed);
                self.delay_queue.reply_at(due_ns, DelayedReply::Read(reply, bytes));
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn write_image(&self, offset: u64, data: &[u8], reply: ReplyWrite) {
        let length = data.len() as u64;
        if offset.checked_add(length).is_none_or(|end| end > self.size) {
            return reply.error(Errno::ENOSPC);
        }
        let due_ns = self.due_ns(length, |head, now| head.access(now, Direction::Write, offset, length));
        let begin_ns = monotonic_ns();
        match self.backing.write_all_at(data, offset) {
            Ok(()) => {
                self.delay_queue.record_copy(length, monotonic_ns() - begin_ns);
                self.writes.fetch_add(1, Ordering::Relaxed);
                self.written_bytes.fetch_add(length, Ordering::Relaxed);
                self.delay_queue.reply_at(due_ns, DelayedReply::Written(reply, data.len() as u32));
            }
            Err(error) => reply.error(error.into()),
        }
    }
}

impl Filesystem for FuseDisk {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Older kernels support less and send more, smaller requests.
        let _ = config.set_max_write(REQUEST_BYTES);
        let _ = config.set_max_readahead(REQUEST_BYTES);
        let _ = config.set_max_background(BACKGROUND);
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = FILES.iter().find(|(_, known)| parent == INodeNo::ROOT && name == *known);
        match found.and_then(|(inode, _)| self.attributes(*inode)) {
            Some(attributes) => reply.entry(&KEPT, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&KEPT, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // Small files are truncated before a write; the disk keeps its size.
        let shortens = size.is_some_and(|size| inode == INodeNo(2) && size != self.size);
        match self.attributes(inode) {
            Some(_) if mode.is_some() || uid.is_some() || gid.is_some() || shortens => {
                reply.error(Errno::EPERM);
            }
            Some(attributes) => reply.attr(&KEPT, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Bypasses the page cache, which would hide the disk.
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(inode.0), flags);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if inode == INodeNo(2) {
            return self.read_image(offset, size, reply);
        }
        let text = self.text(inode);
        let rest = usize::try_from(offset).ok().and_then(|from| text.as_bytes().get(from..)).unwrap_or(&[]);
        reply.data(&rest[..rest.len().min(size as usize)]);
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if inode == INodeNo(2) {
            return self.write_image(offset, data, reply);
        }
        let number = std::str::from_utf8(data).ok().and_then(|text| text.trim().parse::<u64>().ok());
        match (inode, number) {
            (INodeNo(4), Some(paced @ 0..=1)) => self.delay_queue.set_paced(paced == 1),
            (INodeNo(5), Some(overhead_ns @ 0..=OVERHEAD_NS_MAX)) => {
                self.overhead_ns.store(overhead_ns, Ordering::Relaxed)
            }
            _ => return reply.error(Errno::EINVAL),
        }
        reply.written(data.len() as u32);
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        if inode != INodeNo(2) {
            return reply.ok();
        }
        self.flushes.fetch_add(1, Ordering::Relaxed);
        // The bytes are in the backing file. They need not be on this machine's disk, because a modelled
        // disk does not outlive the machine.
        let due_ns = self.due_ns(0, ServiceTime::flush);
        self.delay_queue.reply_at(due_ns, DelayedReply::Flushed(reply));
    }

    fn readdir(&self, _: &Request, _: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        for (index, (inode, name)) in (0u64..).zip(FILES).skip(usize::try_from(offset).unwrap_or(usize::MAX))
        {
            if reply.add(inode, index + 1, FileType::RegularFile, name) {
                break;
            }
        }
        reply.ok();
    }
}
