//! Writes files atomically.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;

/// Mode of a new file before the umask, as in open(2).
const NEW_FILE_MODE: u32 = 0o666;

/// Writes a file completely or not at all, so that a full disk leaves no half report. Special files such as
/// `/dev/null` or pipes are written directly.
/// Errors: The file cannot be written; an existing file is unchanged.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let written = match fs::metadata(path) {
        Ok(found) if !found.is_file() => fs::OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|mut it| it.write_all(bytes).and_then(|()| it.flush())),
        // Replace the target of a symbolic link, not the link.
        Ok(found) => path.canonicalize().and_then(|file| replace(&file, bytes, Some(found.permissions()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => replace(path, bytes, None),
        Err(error) => Err(error),
    };
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Writes a temporary file beside `path` and renames it, with the permissions of the replaced file.
fn replace(path: &Path, bytes: &[u8], kept: Option<Permissions>) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // Opened here: the umask applies, and errors do not name it. By default, only the owner could read it.
    let open =
        |file: &Path| fs::OpenOptions::new().write(true).create_new(true).mode(NEW_FILE_MODE).open(file);
    let mut beside = tempfile::Builder::new().prefix(".kagiri-").suffix(".part").make_in(folder, open)?;
    beside.write_all(bytes)?;
    if let Some(kept) = kept {
        beside.as_file().set_permissions(kept)?;
    }
    beside.persist(path).map(drop).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn errors_name_the_file_and_not_its_temporary_neighbour() {
        let error = write_atomically(Path::new("/nosuch/x.html"), b"text").unwrap_err();
        assert_eq!(
            format!("{error:#}"),
            "cannot write /nosuch/x.html: No such file or directory (os error 2)"
        );
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn files_that_differ_in_their_suffix_do_not_collide() {
        let folder = tempfile::tempdir().unwrap();
        let named = |name: &str| folder.path().join(name);
        // A file of the user's that has the name which an ending in its place would give.
        fs::write(named("a.part"), "the user's").unwrap();
        let all = ["a.html", "a.json", "a.csv", "a"];
        std::thread::scope(|scope| {
            for name in all {
                let path = named(name);
                scope.spawn(move || {
                    for _ in 0..200 {
                        write_atomically(&path, name.repeat(5000).as_bytes()).unwrap();
                    }
                });
            }
        });
        for name in all {
            assert_eq!(fs::read_to_string(named(name)).unwrap(), name.repeat(5000));
        }
        assert_eq!(fs::read_to_string(named("a.part")).unwrap(), "the user's");
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            all.len() + 1,
            "nothing is left beside them"
        );
    }

    #[test]
    fn new_file_has_umask_permissions_and_replaced_file_keeps_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let (usual, ours) = (folder.path().join("usual"), folder.path().join("ours"));
        fs::write(&usual, "").unwrap();
        write_atomically(&ours, b"").unwrap();
        assert_eq!(mode(&ours), mode(&usual), "as the umask says");
        for kept in [0o600, 0o640, 0o664] {
            fs::set_permissions(&ours, Permissions::from_mode(kept)).unwrap();
            write_atomically(&ours, b"again").unwrap();
            assert_eq!(mode(&ours), kept, "as it was before");
        }
    }

    #[test]
    fn special_files_are_written_directly() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        write_atomically(&link, b"new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&target).unwrap(), "new");
        let null = folder.path().join("null");
        std::os::unix::fs::symlink("/dev/null", &null).unwrap();
        write_atomically(&null, b"away").unwrap();
        assert!(fs::symlink_metadata(&null).unwrap().is_symlink());
        assert!(write_atomically(folder.path(), b"").is_err(), "a folder is no file");
        assert!(write_atomically(&folder.path().join("missing/file"), b"").is_err());
    }
}
