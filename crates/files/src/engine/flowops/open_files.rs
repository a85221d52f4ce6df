//! The open files of a thread, by slot.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;

use super::fault::Fault;
use crate::tree::FileTree;

#[derive(Debug)]
pub(crate) struct OpenFile {
    file: OwnedFd,
    pub tree: usize,
    /// Its slot in the tree.
    pub slot: u32,
    /// Where the next sequential read or write begins.
    pub position: u64,
}

impl OpenFile {
    pub(crate) fn new(file: OwnedFd, tree: usize, slot: u32) -> Self {
        Self { file, tree, slot, position: 0 }
    }

    #[inline]
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn duplicate(&self) -> Result<OwnedFd, Fault> {
        let raw = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(0));
        self.file.try_clone().map_err(|error| Fault::Call { call: "dup", error: raw(error) })
    }
}

#[derive(Debug)]
pub(crate) struct OpenFiles(Vec<Option<OpenFile>>);

impl OpenFiles {
    pub(crate) fn new(slots: usize) -> Self {
        Self((0..slots).map(|_| None).collect())
    }

    #[inline]
    pub(crate) fn get(&self, fd: usize) -> Option<&OpenFile> {
        self.0.get(fd)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, fd: usize) -> Option<&mut OpenFile> {
        self.0.get_mut(fd)?.as_mut()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &OpenFile> {
        self.0.iter().flatten()
    }

    pub(crate) fn set(&mut self, fd: usize, file: OpenFile) {
        self.0[fd] = Some(file);
    }

    /// The file of a slot, which the caller closes; its use does not end by that.
    pub(crate) fn take(&mut self, fd: usize) -> Option<OpenFile> {
        self.0.get_mut(fd)?.take()
    }

    /// Closes a slot and ends the use of its file; close(2) can report that earlier writes failed.
    pub(crate) fn close(&mut self, fd: usize, trees: &[FileTree]) -> Result<(), Errno> {
        let Some(open) = self.take(fd) else { return Ok(()) };
        let closed = nix::unistd::close(open.file);
        trees[open.tree].slots.release(open.slot);
        closed
    }
}
