//! Extents of files, against filefrag of e2fsprogs.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::common::as_root;
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::sys::statvfs::statvfs;
use sys::disk::{
    DiskImage, Extent, FileSystem, ImageSpec, extents, extents_of, free_pieces, merge_extents,
    set_extent_size_hint, start_writeback,
};

const BLOCK: u64 = 4096;

/// Extents as filefrag prints them, merged; `None`: it is not installed.
fn witness(file: &Path) -> Option<Vec<Extent>> {
    let output = Command::new("filefrag").args(["-v", "-s", "-b1024"]).arg(file).output().ok()?;
    let text = String::from_utf8(output.stdout).unwrap();
    let numbers = |line: &str| -> Vec<u64> {
        line.split([' ', ':', '.']).filter(|part| !part.is_empty()).map_while(|p| p.parse().ok()).collect()
    };
    let found = text.lines().filter_map(|line| match numbers(line)[..] {
        [_, logical, _, physical, _, len, ..] => Some(Extent {
            offset_bytes: logical << 10,
            disk_offset_bytes: Some(physical << 10),
            len_bytes: len << 10,
            unwritten: line.contains("unwritten"),
        }),
        _ => None,
    });
    Some(merge_extents(found))
}

#[test]
fn extents_on_ext4_are_those_of_filefrag() {
    let Some((folder, journal)) = as_root() else { return };
    let spec = ImageSpec {
        image: folder.path().join("disk.img"),
        size_bytes: 64 << 20,
        file_system: FileSystem::Ext4,
        target: folder.path().join("mounted"),
    };
    let disk = DiskImage::create(&journal, &spec).unwrap();
    let path = disk.target().join("f");
    let file = File::create_new(&path).unwrap();
    assert_eq!(extents(&path).unwrap(), Some(Vec::new()), "an empty file has none");
    file.write_all_at(&vec![7; 40 << 10], 0).unwrap();
    let dense = extents(&path).unwrap().unwrap();
    assert_eq!((dense.len(), dense[0].len_bytes), (1, 40 << 10), "what was not on the disk yet is put there");
    // Every other block: more extents than fit one call.
    let blocks = 600;
    for block in 0..blocks {
        file.write_all_at(&[block as u8; BLOCK as usize], (20 + 2 * block) * BLOCK).unwrap();
    }
    let found = extents(&path).unwrap().unwrap();
    assert_eq!(found.len() as u64, 1 + blocks);
    let sum: u64 = found.iter().map(|extent| extent.len_bytes).sum();
    assert_eq!(sum, (10 + blocks) * BLOCK, "holes are left out");
    assert!(found.iter().all(|extent| extent.disk_offset_bytes.is_some() && !extent.unwritten));
    match witness(&path) {
        Some(witness) => assert!(found == witness, "{} and {} extents", found.len(), witness.len()),
        None => features::skip("needs filefrag (e2fsprogs)"),
    }
    let part = extents_of(&file, 21 * BLOCK, 10 * BLOCK).unwrap().unwrap();
    let offsets: Vec<_> = part.iter().map(|extent| extent.offset_bytes / BLOCK).collect();
    assert_eq!(offsets, [22, 24, 26, 28, 30]);
    let mut inner = extents_of(&file, BLOCK, BLOCK).unwrap().unwrap();
    let inner = inner.pop().unwrap();
    assert_eq!((inner.offset_bytes, inner.len_bytes), (BLOCK, BLOCK));
    assert_eq!(inner.disk_offset_bytes, dense[0].disk_offset_bytes.map(|at| at + BLOCK));
}

#[test]
fn extents_in_memory_are_unknown_and_not_zero() {
    let memory = Path::new("/dev/shm");
    if !statfs(memory).is_ok_and(|found| found.filesystem_type() == TMPFS_MAGIC) {
        return features::skip("needs a tmpfs at /dev/shm");
    }
    let file = tempfile::NamedTempFile::new_in(memory).unwrap();
    std::fs::write(file.path(), [7; 100]).unwrap();
    assert_eq!(extents(file.path()).unwrap(), None);
}

#[test]
fn free_pieces_of_ext4_and_xfs_are_what_statfs_says_is_free() {
    for (file_system, size_bytes) in [(FileSystem::Ext4, 64 << 20), (FileSystem::Xfs, 300 << 20)] {
        let Some((folder, journal)) = as_root() else { return };
        let (image, target) = (folder.path().join("disk.img"), folder.path().join("mounted"));
        let spec = ImageSpec { image, size_bytes, file_system, target };
        let disk = DiskImage::create(&journal, &spec).unwrap();
        for name in ["a", "b", "c"] {
            std::fs::write(disk.target().join(name), vec![7; 1 << 20]).unwrap();
        }
        nix::unistd::syncfs(File::open(disk.target()).unwrap()).unwrap();
        let pieces = free_pieces(disk.target()).unwrap().expect("both know their free space");
        let stat = statvfs(disk.target()).unwrap();
        let free_bytes = stat.blocks_free() * stat.fragment_size();
        let sum: u64 = pieces.iter().sum();
        // xfs keeps some blocks for itself that are free on the disk.
        let kept_max = if file_system == FileSystem::Xfs { size_bytes / 10 } else { 0 };
        assert!((free_bytes..=free_bytes + kept_max).contains(&sum), "{file_system:?}: {sum}, {free_bytes}");
    }
}

#[test]
fn files_with_an_extent_size_hint_stay_in_one_piece_on_xfs() {
    let Some((folder, journal)) = as_root() else { return };
    let (image, target) = (folder.path().join("disk.img"), folder.path().join("mounted"));
    let spec = ImageSpec { image, size_bytes: 300 << 20, file_system: FileSystem::Xfs, target };
    let disk = DiskImage::create(&journal, &spec).unwrap();
    let pieces = |hint_bytes: Option<u32>| {
        let paths = ["a", "b"].map(|name| disk.target().join(format!("{name}-{hint_bytes:?}")));
        let files = paths.each_ref().map(|path| File::create_new(path).unwrap());
        for file in &files {
            if let Some(bytes) = hint_bytes {
                assert!(set_extent_size_hint(file, bytes).unwrap());
            }
        }
        for chunk in 0..64 {
            for file in &files {
                file.write_all_at(&[7; 64 << 10], chunk * (64 << 10)).unwrap();
                start_writeback(file, chunk * (64 << 10), 64 << 10).unwrap();
            }
        }
        paths.map(|path| extents(&path).unwrap().unwrap().len())
    };
    assert_eq!(pieces(Some(8 << 20)), [1, 1]);
    assert!(pieces(None).into_iter().sum::<usize>() > 2, "without the hint they are interleaved");
}
