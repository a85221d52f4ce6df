//! Pictures of timed calls: an HTML page, and a trace for Perfetto.

use std::path::Path;

use observe::timeline::pftrace;
use observe::timeline::session::Watched;

use crate::atomic_file::write_atomically;
use crate::exit::Failure;
use crate::output;

pub struct Pictures<'a> {
    pub html: Option<&'a Path>,
    pub pftrace: Option<&'a Path>,
    pub is_quiet: bool,
}

impl Pictures<'_> {
    pub fn are_wanted(&self) -> bool {
        self.html.is_some() || self.pftrace.is_some()
    }

    /// Rejects a missing folder before anything is measured.
    pub fn check(&self) -> Result<(), Failure> {
        [self.html, self.pftrace].into_iter().flatten().try_for_each(check_folder)
    }

    /// Writes both files, even if the first one fails.
    pub fn write(&self, watched: &Watched) -> Result<(), Failure> {
        let Some(picture) = &watched.picture else { return Ok(()) };
        let write = |path: &Path, bytes: &[u8]| {
            write_atomically(path, bytes).map_err(Failure::of_named)?;
            if !self.is_quiet {
                output::say(&format!("wrote {} ({:.1} MB)", path.display(), bytes.len() as f64 / 1e6));
            }
            Ok(())
        };
        let page = |path| write(path, report::timeline::page(&watched.times, picture).as_bytes());
        let trace = |path| write(path, &pftrace::encode(picture));
        self.html.map(page).into_iter().chain(self.pftrace.map(trace)).collect()
    }
}

fn check_folder(path: &Path) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder.is_none_or(Path::is_dir) && !path.is_dir() {
        true => Ok(()),
        false => Err(Failure::usage(format!("cannot write {}: there is no such folder", path.display()))),
    }
}
