//! A set of files as it lies in the file system: its directories are open, its files have slots.

pub mod layout;
mod populate;
mod set_path;
pub mod slots;

use std::ffi::{CStr, CString, OsStr};
use std::fmt::Write as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use wml::Fileset;

use self::layout::{Layout, Place};
pub use self::populate::{Filling, PopulateError, Population};
use self::set_path::SetPath;
use self::slots::Slots;

/// Directories of a set that are kept open, so that a call need not walk the whole path.
pub const OPEN_DIRS_MAX: usize = 4096;

#[derive(Debug)]
struct Dir {
    /// Relative to the root.
    path: CString,
    fd: Option<OwnedFd>,
}

#[derive(Debug)]
pub struct FileTree {
    pub name: String,
    /// Its directory.
    pub path: PathBuf,
    root: OwnedFd,
    dirs: Vec<Dir>,
    files: Vec<Place>,
    leaf_places: Vec<Place>,
    sizes: Vec<u64>,
    /// Name of the only file, if the set is one file.
    single: Option<CString>,
    pub slots: Slots,
    /// Directories that flowops make and remove.
    pub leaf_dirs: Slots,
    /// The next directory that is listed.
    pub list_rotor: AtomicU32,
    pub is_read_only: bool,
    pub is_write_only: bool,
}

/// Memory for the path of a call.
#[derive(Debug, Default)]
pub struct PathBuffer(Vec<u8>);

impl PathBuffer {
    /// `dir/00000012`, or the name alone.
    fn build(&mut self, dir: Option<&CStr>, serial: u32) -> &CStr {
        self.0.clear();
        if let Some(dir) = dir {
            self.0.extend_from_slice(dir.to_bytes());
            self.0.push(b'/');
        }
        let mut digits = [b'0'; 10];
        let (mut rest, mut at) = (serial, digits.len());
        while rest > 0 {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self.0.extend_from_slice(&digits[at.min(2)..]);
        self.0.push(0);
        CStr::from_bytes_with_nul(&self.0).unwrap_or(c"")
    }
}

impl FileTree {
    fn at<'a>(&'a self, place: Place, buffer: &'a mut PathBuffer) -> (BorrowedFd<'a>, &'a CStr) {
        let dir = &self.dirs[place.dir as usize];
        match &dir.fd {
            Some(fd) => (fd.as_fd(), buffer.build(None, place.serial)),
            None => (self.root.as_fd(), buffer.build(Some(&dir.path), place.serial)),
        }
    }

    /// Where the file of a slot is: a directory and a path relative to it.
    #[inline]
    pub fn file<'a>(&'a self, slot: u32, buffer: &'a mut PathBuffer) -> (BorrowedFd<'a>, &'a CStr) {
        match &self.single {
            Some(name) => (self.root.as_fd(), name),
            None => self.at(self.files[slot as usize], buffer),
        }
    }

    pub fn leaf_dir<'a>(&'a self, slot: u32, buffer: &'a mut PathBuffer) -> (BorrowedFd<'a>, &'a CStr) {
        self.at(self.leaf_places[slot as usize], buffer)
    }

    /// The path of a file, for messages.
    pub fn file_path(&self, slot: u32) -> PathBuf {
        if let Some(name) = &self.single {
            return self.path.join(name.to_string_lossy().as_ref());
        }
        let place = self.files[slot as usize];
        self.dir_path(place.dir).join(format!("{:08}", place.serial))
    }

    pub fn dir_count(&self) -> u32 {
        self.dirs.len() as u32
    }

    pub fn dir_path(&self, dir: u32) -> PathBuf {
        self.path.join(self.dirs[dir as usize].path.to_string_lossy().as_ref())
    }

    /// The size that a file has when it is created as a whole.
    #[inline]
    pub fn size(&self, slot: u32) -> u64 {
        self.sizes[slot as usize]
    }

    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    fn new(set: &Fileset, at: &SetPath, layout: Layout, open_dirs: usize) -> nix::Result<Self> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = open(&at.place, flags, Mode::empty())?;
        let mut paths: Vec<String> = Vec::with_capacity(layout.dirs.len());
        for dir in &layout.dirs {
            let mut path = String::new();
            match dir.parent {
                None => path.push('.'),
                Some(0) => drop(write!(path, "{:08}", dir.serial)),
                Some(parent) => drop(write!(path, "{}/{:08}", paths[parent as usize], dir.serial)),
            }
            paths.push(path);
        }
        let mut holds_files = vec![false; paths.len()];
        layout.files.iter().for_each(|place| holds_files[place.dir as usize] = true);
        let are_open = holds_files.iter().filter(|holds| **holds).count() <= open_dirs;
        let dirs = paths.into_iter().zip(holds_files).map(|(path, holds_files)| {
            let path = CString::new(path).unwrap_or_default();
            let fd = match are_open && holds_files {
                true => Some(nix::fcntl::openat(&root, path.as_c_str(), flags, Mode::empty())?),
                false => None,
            };
            Ok(Dir { path, fd })
        });
        let dirs = dirs.collect::<nix::Result<Vec<Dir>>>()?;
        let (slots, leaf_dirs) =
            (Slots::new(layout.files.len() as u32), Slots::new(layout.leaf_dirs.len() as u32));
        Ok(Self {
            name: set.name.clone(),
            path: at.path.clone(),
            root,
            dirs,
            files: layout.files,
            leaf_places: layout.leaf_dirs,
            sizes: layout.sizes,
            single: set.is_single.then(|| file_name(&set.name)),
            slots,
            leaf_dirs,
            list_rotor: AtomicU32::new(0),
            is_read_only: set.is_read_only,
            is_write_only: set.is_write_only,
        })
    }
}

/// Where a set is below the folder of all sets: its directory, or its only file.
pub(crate) fn own_path(set: &Fileset) -> PathBuf {
    let dir = set_path::below(Path::new(""), set);
    if set.is_single { dir.join(OsStr::from_bytes(file_name(&set.name).to_bytes())) } else { dir }
}

/// The last component of a name, so that it cannot lead out of the directory.
fn file_name(name: &str) -> CString {
    let name = Path::new(name).file_name().map(|name| name.to_string_lossy().into_owned());
    CString::new(name.unwrap_or_else(|| "file".to_owned())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_eight_digits_or_more() {
        let mut buffer = PathBuffer::default();
        for (serial, name) in [(1, "00000001"), (12_345_678, "12345678"), (u32::MAX, "4294967295")] {
            assert_eq!(buffer.build(None, serial).to_str(), Ok(name));
            assert_eq!(buffer.build(Some(c"a/b"), serial).to_str().unwrap(), format!("a/b/{name}"));
        }
    }
}
