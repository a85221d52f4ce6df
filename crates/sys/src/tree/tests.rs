use super::*;
use crate::held_folder::{HeldFolder, Removal};

fn held(above: &Path, name: &str) -> HeldFolder {
    HeldFolder::open(open_above(above).unwrap(), OsStr::new(name)).unwrap()
}

#[test]
fn tree_is_removed_and_what_links_point_at_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let (tree, other) = (folder.path().join("tree"), folder.path().join("other"));
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("kept"), "x").unwrap();
    for number in 0..40 {
        let dir = tree.join(format!("a{}/b{}/c{number}", number % 3, number % 5));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("file"), "x").unwrap();
    }
    std::os::unix::fs::symlink(&other, tree.join("link")).unwrap();
    let (removed, above) = (AtomicU64::new(0), open_above(folder.path()).unwrap());
    remove_at(above.as_fd(), OsStr::new("tree"), &removed).unwrap();
    // The files, their directories, 15 and 3 above them, the link, and the tree itself.
    assert_eq!(removed.into_inner(), 40 + 40 + 15 + 3 + 1 + 1);
    assert!(!tree.exists() && other.join("kept").exists());
    remove_at(above.as_fd(), OsStr::new("tree"), &AtomicU64::new(0)).unwrap();
    std::os::unix::fs::symlink(&other, &tree).unwrap();
    remove_at(above.as_fd(), OsStr::new("tree"), &AtomicU64::new(0)).unwrap();
    assert!(tree.symlink_metadata().is_err() && other.join("kept").exists());
}

#[test]
fn renamed_folder_is_emptied_where_it_is_and_what_took_its_name_stays() {
    for is_link in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (mine, other, moved) =
            (dir.path().join("mine"), dir.path().join("other"), dir.path().join("moved"));
        for folder in [&mine, &other] {
            std::fs::create_dir_all(folder.join("sub")).unwrap();
            std::fs::write(folder.join("sub/file"), "x").unwrap();
            std::fs::write(folder.join("mark"), "x").unwrap();
        }
        let folder = held(dir.path(), "mine");
        std::fs::rename(&mine, &moved).unwrap();
        match is_link {
            true => std::os::unix::fs::symlink(&other, &mine).unwrap(),
            false => std::fs::rename(&other, &mine).unwrap(),
        }
        let removal = folder.remove("mark", None, &AtomicU64::new(0)).unwrap();
        assert_eq!(removal, Removal::Moved(moved.canonicalize().unwrap()));
        assert!(mine.join("sub/file").exists() && mine.join("mark").exists());
        assert_eq!(folder.count().unwrap(), 1, "the mark alone is left");
    }
}

#[test]
fn folder_removed_by_somebody_else_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("mine")).unwrap();
    let folder = held(dir.path(), "mine");
    assert!(!is_removed(folder.as_fd()));
    std::fs::remove_dir(dir.path().join("mine")).unwrap();
    assert!(is_removed(folder.as_fd()));
    assert_eq!(folder.remove("mark", None, &AtomicU64::new(0)).unwrap(), Removal::Gone);
}
