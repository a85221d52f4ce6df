//! Makes the directories and files of a set, or brings those of an earlier trial back to the same state.

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, PosixFadviseAdvice, openat, posix_fadvise};
use nix::sys::stat::{Mode, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, ftruncate, unlinkat};
use wml::Fileset;

use super::layout::Layout;
use super::set_path::SetPath;
use super::{FileTree, PathBuffer};

/// Files that a thread takes at once.
const BATCH: usize = 64;
const THREADS_MAX: usize = 16;
/// Directories may not fit even if the files do.
const HEADROOM_PERCENT: u64 = 2;

#[derive(Debug, thiserror::Error)]
pub enum PopulateError {
    #[error("{call} {path}: {error}{}", advice(*error))]
    Call { call: &'static str, path: String, error: Errno },
    #[error(
        "{path}: the files of {set} need {needed_mib} MiB, and the file system has {free_mib} MiB free; use \
         fewer or smaller files (--set), or another directory"
    )]
    Space { path: String, set: String, needed_mib: u64, free_mib: u64 },
    #[error("stopped while files were made")]
    Stopped,
}

fn advice(error: Errno) -> &'static str {
    match error {
        Errno::ENOSPC | Errno::EDQUOT => "; use fewer or smaller files (--set), or another directory",
        Errno::EROFS => "; mount it for writing, or use another directory",
        Errno::EACCES | Errno::EPERM => "; use a directory that you may write to",
        Errno::EMFILE => "; raise the limit of open files (ulimit -n)",
        _ => "",
    }
}

/// How the files of a trial are made.
pub struct Filling<'a> {
    /// The folder of all sets.
    pub folder: &'a Path,
    /// The same, open: whatever takes its name is not written to.
    pub opened: BorrowedFd<'a>,
    pub seed: u64,
    /// What files are filled with.
    pub content: &'a [u8],
    pub open_dirs: usize,
    /// Whether the page cache forgets the files afterwards.
    pub is_cold: bool,
    pub stop: &'a Arc<AtomicBool>,
}

/// What was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Population {
    pub dirs: u64,
    pub files: u64,
    pub bytes: u64,
}

fn failed(call: &'static str, path: &Path) -> impl FnOnce(Errno) -> PopulateError + use<> {
    let path = path.display().to_string();
    move |error| PopulateError::Call { call, path, error }
}

impl FileTree {
    /// Makes the directories and the files that exist at the beginning of a run.
    pub fn populate(set: &Fileset, filling: &Filling<'_>) -> Result<(Self, Population), PopulateError> {
        let layout = Layout::new(set, filling.seed);
        let at = SetPath::new(set, filling.folder, filling.opened);
        let path = &at.path;
        std::fs::create_dir_all(&at.place).map_err(|error| {
            let error = Errno::from_raw(error.raw_os_error().unwrap_or(0));
            failed("create directory", path)(error)
        })?;
        let wanted = |at: usize| layout.exists[at];
        let files = layout.files.len();
        let bytes: u64 = (0..files).filter(|at| wanted(*at)).map(|at| layout.sizes[at]).sum();
        enough_space(set, &at, bytes)?;
        make_dirs(&layout, &at, filling)?;
        let exists = layout.exists.clone();
        let (open_dirs, dirs) = (filling.open_dirs, layout.dirs.len() as u64);
        let tree = Self::new(set, &at, layout, open_dirs).map_err(failed("open directory", path))?;
        make_leaf_dirs(&tree, &exists[files..])?;
        make_files(&tree, &exists[..files], filling)?;
        let made = exists[..files].iter().filter(|exists| **exists).count() as u64;
        Ok((tree, Population { dirs, files: made, bytes }))
    }
}

fn enough_space(set: &Fileset, at: &SetPath, bytes: u64) -> Result<(), PopulateError> {
    // Unknown space is found out by the writes themselves.
    let Ok(space) = sys::disk::space(&at.place) else { return Ok(()) };
    let needed = bytes + bytes / 100 * HEADROOM_PERCENT;
    // File systems without a size of their own say 0.
    if space.total_bytes == 0 || needed <= space.available_bytes {
        return Ok(());
    }
    // An earlier trial may have made them already.
    let is_there = std::fs::read_dir(&at.place).is_ok_and(|mut entries| entries.next().is_some());
    if is_there {
        return Ok(());
    }
    Err(PopulateError::Space {
        path: at.path.display().to_string(),
        set: set.name.clone(),
        needed_mib: needed >> 20,
        free_mib: space.available_bytes >> 20,
    })
}

fn make_dirs(layout: &Layout, at: &SetPath, filling: &Filling<'_>) -> Result<(), PopulateError> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let root = nix::fcntl::open(&at.place, flags, Mode::empty()).map_err(failed("open", &at.path))?;
    let mut paths: Vec<String> = Vec::with_capacity(layout.dirs.len());
    for dir in &layout.dirs {
        let own = match dir.parent {
            None => String::new(),
            Some(0) => format!("{:08}", dir.serial),
            Some(parent) => format!("{}/{:08}", paths[parent as usize], dir.serial),
        };
        if !own.is_empty() {
            match mkdirat(&root, own.as_str(), Mode::from_bits_truncate(0o777)) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(error) => return Err(failed("create directory", &at.path.join(&own))(error)),
            }
        }
        paths.push(own);
        if filling.stop.load(Ordering::Relaxed) {
            return Err(PopulateError::Stopped);
        }
    }
    Ok(())
}

fn make_leaf_dirs(tree: &FileTree, exists: &[bool]) -> Result<(), PopulateError> {
    let mut buffer = PathBuffer::default();
    for (slot, exists) in (0u32..).zip(exists) {
        let (dir, name) = tree.leaf_dir(slot, &mut buffer);
        let made = match exists {
            true => mkdirat(dir, name, Mode::from_bits_truncate(0o777)),
            false => unlinkat(dir, name, UnlinkatFlags::RemoveDir),
        };
        match made {
            Ok(()) | Err(Errno::EEXIST | Errno::ENOENT) => {}
            Err(error) => return Err(failed("create directory", &tree.path)(error)),
        }
        if *exists {
            tree.leaf_dirs.set_existing(slot);
        }
    }
    Ok(())
}

/// Makes the files by several threads, in random order: the order of creation decides where a disk has them.
fn make_files(tree: &FileTree, exists: &[bool], filling: &Filling<'_>) -> Result<(), PopulateError> {
    let mut order: Vec<u32> = (0..exists.len() as u32).collect();
    fastrand::Rng::with_seed(filling.seed).shuffle(&mut order);
    let cpus = sys::thread::online_cpus().map_or(1, |cpus| cpus.len());
    let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || {
        let mut buffer = PathBuffer::default();
        loop {
            let from = next.fetch_add(BATCH, Ordering::Relaxed);
            let Some(batch) =
                order.get(from..order.len().min(from + BATCH)).filter(|batch| !batch.is_empty())
            else {
                return Ok(());
            };
            for slot in batch {
                if filling.stop.load(Ordering::Relaxed) {
                    return Err(PopulateError::Stopped);
                }
                if is_over.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let made = match exists[*slot as usize] {
                    true => make_file(tree, *slot, filling, &mut buffer),
                    false => remove_file(tree, *slot, &mut buffer),
                };
                if made.is_err() {
                    is_over.store(true, Ordering::Relaxed);
                }
                made?;
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..(2 * cpus).min(THREADS_MAX)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Err(PopulateError::Stopped)))
    })
}

fn remove_file(tree: &FileTree, slot: u32, buffer: &mut PathBuffer) -> Result<(), PopulateError> {
    let (dir, name) = tree.file(slot, buffer);
    match unlinkat(dir, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(error) => Err(failed("remove", &tree.file_path(slot))(error)),
    }
}

fn make_file(
    tree: &FileTree,
    slot: u32,
    filling: &Filling<'_>,
    buffer: &mut PathBuffer,
) -> Result<(), PopulateError> {
    let wrong = |call| failed(call, &tree.file_path(slot));
    let size = tree.size(slot);
    let (dir, name) = tree.file(slot, buffer);
    // What an earlier trial left is whole or longer: flowops only append to files, or make them anew.
    let present = match fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => Some(stat.st_size as u64),
        Err(Errno::ENOENT) => None,
        Err(error) => return Err(wrong("look at")(error)),
    };
    if present != Some(size) || filling.is_cold {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_CLOEXEC;
        let file = openat(dir, name, flags, Mode::from_bits_truncate(0o666)).map_err(wrong("create"))?;
        let file = File::from(file);
        let from = match present {
            Some(longer) if longer > size => {
                ftruncate(&file, size as i64).map_err(wrong("truncate"))?;
                size
            }
            shorter => shorter.unwrap_or(0),
        };
        write_from(&file, from, size, filling).map_err(|error| match error {
            None => PopulateError::Stopped,
            Some(error) => wrong("write")(error),
        })?;
        if filling.is_cold {
            // Only clean pages can be dropped.
            file.sync_data()
                .map_err(|error| wrong("sync")(Errno::from_raw(error.raw_os_error().unwrap_or(0))))?;
            let _ = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        }
    }
    tree.slots.set_existing(slot);
    Ok(())
}

/// Fills a file up to `size`. Errors: `None` if it was stopped.
fn write_from(file: &File, mut at: u64, size: u64, filling: &Filling<'_>) -> Result<(), Option<Errno>> {
    while at < size {
        if filling.stop.load(Ordering::Relaxed) {
            return Err(None);
        }
        let bytes = filling.content.len().min(usize::try_from(size - at).unwrap_or(usize::MAX));
        match file.write_at(&filling.content[..bytes], at) {
            Ok(0) => return Err(Some(Errno::ENOSPC)),
            Ok(written) => at += written as u64,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Some(Errno::from_raw(error.raw_os_error().unwrap_or(0)))),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::super::set_path::below;
    use super::*;

    fn set(text: &str) -> Fileset {
        let commands = wml::syntax::parse("a.f", text).unwrap();
        let nothing = |_: &str| None;
        let evaluation = wml::Evaluation { presets: Vec::new(), overrides: Vec::new(), load: &nothing };
        wml::Program::evaluate("a.f", &commands, &evaluation).unwrap().filesets.remove(0)
    }

    fn populate(set: &Fileset, folder: &Path, seed: u64) -> Result<(FileTree, Population), PopulateError> {
        let opened = File::open(folder).unwrap();
        let filling = Filling {
            folder,
            opened: opened.as_fd(),
            seed,
            content: &[7; 4096],
            open_dirs: 100,
            is_cold: false,
            stop: &Arc::default(),
        };
        FileTree::populate(set, &filling)
    }

    /// Number and bytes of the files below a directory, by its own listing.
    fn found(path: &Path) -> (u64, u64) {
        let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
        entries.fold((0, 0), |(files, bytes), entry| match entry.file_type().unwrap().is_dir() {
            true => {
                let below = found(&entry.path());
                (files + below.0, bytes + below.1)
            }
            false => (files + 1, bytes + entry.metadata().unwrap().len()),
        })
    }

    #[test]
    fn population_is_what_a_listing_finds_and_is_restored() {
        let folder = tempfile::tempdir().unwrap();
        let set =
            set("define fileset name=a,size=randvar(type=gamma,mean=9k),entries=200,dirwidth=5,prealloc=80");
        let (tree, made) = populate(&set, folder.path(), 9).unwrap();
        assert_eq!(found(folder.path()), (made.files, made.bytes));
        assert_eq!(tree.slots.existing(), made.files);
        // As after a trial: one is gone, one is longer, one is new.
        let existing: Vec<u32> = (0..200).filter(|slot| tree.file_path(*slot).exists()).collect();
        let missing = (0..200).find(|slot| !tree.file_path(*slot).exists()).unwrap();
        std::fs::remove_file(tree.file_path(existing[0])).unwrap();
        std::fs::write(tree.file_path(existing[1]), vec![1; 100_000]).unwrap();
        std::fs::write(tree.file_path(missing), "new").unwrap();
        let (again, restored) = populate(&set, folder.path(), 9).unwrap();
        assert_eq!((restored, found(folder.path())), (made, (made.files, made.bytes)));
        assert_eq!(again.slots.existing(), made.files);
    }

    #[test]
    fn files_are_made_in_the_open_folder_and_not_in_what_took_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let [folder, moved, other] = ["folder", "moved", "other"].map(|name| dir.path().join(name));
        std::fs::create_dir(&folder).unwrap();
        std::fs::create_dir(&other).unwrap();
        let opened = File::open(&folder).unwrap();
        std::fs::rename(&folder, &moved).unwrap();
        std::os::unix::fs::symlink(&other, &folder).unwrap();
        let stop = Arc::default();
        let filling = Filling {
            folder: &folder,
            opened: opened.as_fd(),
            seed: 1,
            content: &[7; 4096],
            open_dirs: 100,
            is_cold: false,
            stop: &stop,
        };
        let set = set("define fileset name=a,size=4k,entries=10,prealloc");
        FileTree::populate(&set, &filling).unwrap();
        assert_eq!((found(&moved), found(&other)), ((10, 40960), (0, 0)));
    }

    #[test]
    fn absolute_path_stays_below_the_folder() {
        let folder = Path::new("/data/own");
        for (text, path) in [
            ("define fileset name=a,path=\"/etc\"", "/data/own/etc/a"),
            ("define fileset name=a,path=\"../../x\"", "/data/own/x/a"),
            ("define fileset name=a,path=\"/data/own\"", "/data/own/a"),
            ("define file name=a,path=\"/data/own\"", "/data/own"),
            ("define fileset name=\"../b\"", "/data/own/b"),
        ] {
            assert_eq!(below(folder, &set(text)), Path::new(path), "{text}");
        }
    }

    #[test]
    fn files_larger_than_the_file_system_are_refused_before_they_are_made() {
        let folder = tempfile::tempdir().unwrap();
        let set = set("define fileset name=big,size=900000g,entries=3,prealloc");
        let error = populate(&set, folder.path(), 1).unwrap_err().to_string();
        assert!(error.contains("MiB free; use fewer or smaller files"), "{error}");
        assert_eq!(found(folder.path()), (0, 0));
    }

    #[test]
    fn stop_ends_the_making_of_files() {
        let folder = tempfile::tempdir().unwrap();
        let opened = File::open(folder.path()).unwrap();
        let filling = Filling {
            folder: folder.path(),
            opened: opened.as_fd(),
            seed: 1,
            content: &[7; 4096],
            open_dirs: 0,
            is_cold: false,
            stop: &Arc::new(AtomicBool::new(true)),
        };
        let set = set("define fileset name=a,size=4k,entries=1000,prealloc");
        assert!(matches!(FileTree::populate(&set, &filling), Err(PopulateError::Stopped)));
    }
}
