//! The content of a launched server: given, reused from an earlier run, or made.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use base::format::quantity;
use base::part::{HostContext, PartError};

use super::made::is_index_of;
use super::pooled;
use crate::settings::{ServerKind, StreamSettings};
use mpegts::{self, ContentSpec, RateMode};

/// The same content everywhere, so that results compare.
const SEED: u64 = 1;

/// Content that a server can serve.
#[derive(Debug)]
pub struct Provided {
    /// In the served directory.
    pub path: PathBuf,
    /// The file that holds its bytes: the same, or the segments of a pool.
    pub stored_path: PathBuf,
}

impl Provided {
    fn file(path: PathBuf) -> Self {
        Self { stored_path: path.clone(), path }
    }

    /// A file with an index beside it.
    pub fn is_file(&self) -> bool {
        self.path == self.stored_path
    }
}

/// Content as the settings want it. What is made goes into the pool of its directory if there is one that the
/// server can serve from.
pub fn provide(settings: &StreamSettings, host: &HostContext) -> Result<Provided, PartError> {
    if let Some(given) = &settings.content.path {
        // Canonical: the server needs the directory.
        let file = given.canonicalize().unwrap_or_else(|_| given.clone());
        return indexed(file, host).map(Provided::file);
    }
    let dir = host.data_dir.join("content");
    let pool = match settings.server.kind {
        ServerKind::Embedded => pooled::open(&dir)?,
        ServerKind::Nginx => None,
    };
    let Some(pool) = pool else { return make(settings, &dir, host).map(Provided::file) };
    let (spec, path) = (spec(settings), dir.join(name(settings)));
    let stored_path = pooled::provide(&pool, &path, &spec, host, &mut |_| continue_unless_stopped(host))?;
    Ok(Provided { path, stored_path })
}

/// Index given content unless its index exists.
fn indexed(file: PathBuf, host: &HostContext) -> Result<PathBuf, PartError> {
    if mpegts::load_index(&file).is_err() {
        host.say(format!("indexing {}", file.display()));
        mpegts::index_file(&file, &mut |_| continue_unless_stopped(host))
            .map_err(|error| PartError { usage: error.is_usage(), message: error.about(&file) })?;
    }
    Ok(file)
}

/// Make content unless it exists.
fn make(settings: &StreamSettings, dir: &Path, host: &HostContext) -> Result<PathBuf, PartError> {
    let spec = spec(settings);
    let file = dir.join(name(settings));
    if is_made(&file, &spec) {
        return Ok(file);
    }
    std::fs::create_dir_all(dir)
        .map_err(|error| PartError::new(format!("cannot make the directory {}: {error}", dir.display())))?;
    // Remove leftovers of interrupted runs, also of other settings.
    mpegts::clear_parts(dir);
    let size = quantity(Some(spec.total_bytes() as f64), "B");
    host.say(format!("making {size} of content: {}", file.display()));
    mpegts::make_file(&spec, &file, &mut |_| continue_unless_stopped(host))
        .map_err(|error| PartError::new(error.about(&file)))?;
    Ok(file)
}

fn continue_unless_stopped(host: &HostContext) -> ControlFlow<()> {
    if host.stop_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Names all that its content depends on.
fn name(settings: &StreamSettings) -> String {
    let spec = spec(settings);
    let mode = if settings.content.cbr { "cbr" } else { "vbr" };
    let (codec, rate_kbit_per_s) = (spec.codec.word(), spec.rate_bit_per_s / 1000);
    format!("{codec}-{rate_kbit_per_s}k-{mode}-{:.0}s.ts", spec.duration_s)
}

fn spec(settings: &StreamSettings) -> ContentSpec {
    ContentSpec {
        codec: settings.content.codec,
        rate_bit_per_s: settings.bitrate.bit_per_s(),
        duration_s: settings.content.duration.s(),
        mode: if settings.content.cbr { RateMode::Cbr } else { RateMode::Vbr },
        seed: SEED,
        ..ContentSpec::default()
    }
}

/// Whether the file is complete and was made to `spec`.
fn is_made(file: &Path, spec: &ContentSpec) -> bool {
    mpegts::load_index(file).is_ok_and(|index| is_index_of(&index, spec))
}
