//! Pictures of timed calls, an HTML page and a trace for Perfetto, and `--calls` of the measuring commands:
//! parts time their own system calls, and those of this process can be drawn.

use std::path::{Path, PathBuf};

use clap::Args;
use observe::timeline::session::Watched;
use observe::timeline::{pftrace, self_trace};
use serde_json::json;
use workload::calls;
use workload::settings::Settings;

use crate::args::WorkloadArgs;
use crate::atomic_file::write_atomically;
use crate::exit::{Code, Failure, Outcome};
use crate::output;

/// Most spans that a part keeps for the picture, of 40 bytes each.
const SPANS_MAX: usize = 2_000_000;

/// Arguments for timing kagiri's own system calls.
#[derive(Args)]
pub struct CallArgs {
    /// As --calls, and write a timeline of this host's calls as an HTML page that works offline
    #[arg(long, value_name = "FILE")]
    calls_html: Option<PathBuf>,
    /// As --calls, and write this host's calls as a trace for Perfetto
    #[arg(long, value_name = "FILE")]
    calls_pftrace: Option<PathBuf>,
}

impl CallArgs {
    /// Turns on `calls` where a picture is asked for.
    pub fn want<S: Settings>(&self, settings: &mut WorkloadArgs<S>) {
        if self.calls_html.is_some() || self.calls_pftrace.is_some() {
            settings.set("calls", json!(true));
        }
    }

    /// Runs `measure` and writes the pictures of its calls.
    pub fn draw(&self, target: &str, is_quiet: bool, measure: impl FnOnce() -> Outcome) -> Outcome {
        let pictures =
            Pictures { html: self.calls_html.as_deref(), pftrace: self.calls_pftrace.as_deref(), is_quiet };
        if !pictures.are_wanted() {
            return measure();
        }
        pictures.check()?;
        calls::keep(SPANS_MAX);
        let measured = measure();
        let written = match self_trace::watched(target, &calls::take_kept()) {
            Some(watched) => pictures.write(&watched),
            None => Err(Failure::runtime("no calls were timed in this process, so there is no picture")),
        };
        match (measured, written) {
            (Ok(Code::Measured), Err(failure)) => Err(failure),
            // The result of the measurement is more important.
            (Ok(code), Err(failure)) => {
                output::error_line(&failure.to_string());
                Ok(code)
            }
            (measured, _) => measured,
        }
    }
}

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
