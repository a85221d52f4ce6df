//! The flowops that move bytes, or wait until they are durable.

use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::sys::uio::{pread, pwrite};
use nix::unistd::{Whence, fsync, lseek};
use wml::Kind;

use super::aio::AioWrite;
use super::fault::Fault;
use super::file_ops::{Bytes, FileOps, uninterrupted};
use crate::engine::compile::Planned;

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
    /// The size of one read or write: as given, or that of the file.
    fn io_bytes(&mut self, planned: &Planned, file_bytes: u64) -> usize {
        let drawn = planned.io_bytes.as_ref().map_or(0, |bytes| bytes.draw(&mut self.rng));
        let bytes = if drawn == 0 { file_bytes } else { drawn };
        usize::try_from(bytes).unwrap_or(usize::MAX).clamp(1, self.shared.compiled.io_bytes_max)
    }

    /// Where in the thread's memory the next read or write is: filebench takes another place each time.
    fn place(&mut self, bytes: usize) -> usize {
        let room = self.memory.len().saturating_sub(bytes) / bytes.max(1);
        match self.shared.settings.is_strict && room > 0 {
            true => self.rng.usize(0..=room) * bytes,
            false => 0,
        }
    }

    pub(in crate::engine) fn read_whole(&mut self, planned: &Planned) -> Bytes {
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

    pub(in crate::engine) fn read(&mut self, planned: &Planned) -> Bytes {
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

    pub(in crate::engine) fn write(&mut self, planned: &Planned, kind: Kind) -> Bytes {
        self.opened(planned)?;
        let (bytes, at) = self.extent(planned, kind)?;
        let place = self.place(bytes);
        self.begin();
        if kind == Kind::AioWrite {
            let file = self.file(planned.fd)?.duplicate()?;
            let Some(aio) = &self.shared.aio else { return Err(Fault::Skipped) };
            let (content, outstanding) = (self.shared.content.clone(), self.outstanding.clone());
            let write = AioWrite { file, content, bytes, offset: at, row: planned.row, outstanding };
            aio.write(write).map_err(Fault::call("write"))?;
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

    pub(in crate::engine) fn write_whole(&mut self, planned: &Planned) -> Bytes {
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

    pub(in crate::engine) fn append(&mut self, planned: &Planned, kind: Kind) -> Bytes {
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

    pub(in crate::engine) fn wait_for_writes(&mut self) -> Bytes {
        self.begin();
        match self.outstanding.clone().wait_for_half(|| self.left()) {
            Ok(true) => Ok(0),
            Ok(false) => Err(Fault::Over),
            Err(error) => Err(Fault::Call { call: "write", error }),
        }
    }

    pub(in crate::engine) fn sync(&mut self, planned: &Planned) -> Bytes {
        self.opened(planned)?;
        self.begin();
        fsync(self.file(planned.fd)?.fd()).map(|()| 0).map_err(Fault::call("fsync"))
    }

    pub(in crate::engine) fn sync_set(&mut self, planned: &Planned) -> Bytes {
        let tree = Self::tree_of(planned)?;
        self.begin();
        for open in self.open.all().filter(|open| open.tree == tree) {
            fsync(open.fd()).map_err(Fault::call("fsync"))?;
        }
        Ok(0)
    }
}
