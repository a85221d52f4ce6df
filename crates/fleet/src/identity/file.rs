//! Files with and beside secrets.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::IdentityError;

const BYTES_MAX: u64 = 16 << 20;

pub(super) fn failed(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> IdentityError {
    move |source| IdentityError::File { what, path: path.to_owned(), source }
}

/// Writes a new file that only its owner can read.
pub(super) fn write_new(path: &Path, text: &str) -> Result<(), IdentityError> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(failed("write", path))
}

/// Appends to a file that only its owner can read.
pub(super) fn append(path: &Path, text: &str) -> Result<(), IdentityError> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed("write", path))
}

/// Flushes the file system to disk: once, instead of for every file.
pub(super) fn sync(dir: &Path) -> Result<(), IdentityError> {
    let file = File::open(dir).map_err(failed("open", dir))?;
    nix::unistd::syncfs(&file).map_err(|error| failed("write to disk", dir)(error.into()))
}

pub(super) fn replace(path: &Path, text: &str) -> Result<(), IdentityError> {
    let next = path.with_extension("next");
    match std::fs::remove_file(&next) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(failed("replace", &next)(error));
        }
        _ => write_new(&next, text)?,
    }
    std::fs::rename(&next, path).map_err(failed("write", path))
}

/// Makes a folder, and its parents, that only the owner can enter. An existing one stays unchanged.
pub(super) fn make_dir(path: &Path) -> Result<(), IdentityError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("make the folder", path))
}

pub(super) fn read(path: &Path) -> Result<String, IdentityError> {
    read_open(File::open(path).map_err(failed("read", path))?, path)
}

/// Reads a file that only its owner can read, or also its group if root owns it (as service managers and
/// container platforms provide secrets).
pub(super) fn read_secret(path: &Path) -> Result<String, IdentityError> {
    let file = File::open(path).map_err(failed("read", path))?;
    let metadata = file.metadata().map_err(failed("read", path))?;
    let allowed = if metadata.uid() == 0 { 0o740 } else { 0o700 };
    let mode = metadata.mode() & 0o777;
    if mode & !allowed != 0 {
        let problem = format!(
            "others can read or write it (mode {mode:04o}), so it may have leaked; run 'chmod 600 {0}', \
             and replace it if it was copied over a network or lay on a shared disk",
            path.display()
        );
        return Err(IdentityError::invalid(path, problem));
    }
    read_open(file, path)
}

fn read_open(file: File, path: &Path) -> Result<String, IdentityError> {
    let mut text = String::new();
    file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(failed("read", path))?;
    match text.len() as u64 > BYTES_MAX {
        true => Err(IdentityError::invalid(path, "it is too long for credentials")),
        false => Ok(text),
    }
}
