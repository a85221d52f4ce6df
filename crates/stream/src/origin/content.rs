//! The content of a launched server: given, reused from an earlier run, or made.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use base::format::quantity;
use base::part::{HostContext, PartError};

use crate::settings::StreamSettings;
use mpegts::{self, ContentSpec, RateMode};

/// The same content everywhere, so that results compare.
const SEED: u64 = 1;

/// The content's file, with its index beside it.
pub fn provide(settings: &StreamSettings, host: &HostContext) -> Result<PathBuf, PartError> {
    match &settings.content.path {
        // Canonical: the server needs the directory.
        Some(given) => indexed(given.canonicalize().unwrap_or_else(|_| given.clone()), host),
        None => make(settings, &host.data_dir.join("content"), host),
    }
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
    let mode = if settings.content.cbr { "cbr" } else { "vbr" };
    let codec = spec.codec.word();
    let rate_kbit_per_s = spec.rate_bit_per_s / 1000;
    let file = dir.join(format!("{codec}-{rate_kbit_per_s}k-{mode}-{:.0}s.ts", spec.duration_s));
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
    let Ok(index) = mpegts::load_index(file) else { return false };
    let size = std::fs::metadata(file).map(|facts| facts.len()).unwrap_or(0);
    let same = index.made().is_some_and(|made| {
        made.rate_bit_per_s == spec.rate_bit_per_s && made.mode == spec.mode && made.seed == spec.seed
    });
    same && index.codec() == spec.codec
        && size == index.total_bytes()
        && index.frame_count() as u32 == spec.frames()
}
