//! Content in the segment pool of the content's folder, where there is one: its place on the disk is then as
//! contiguous as on a new disk, whatever was recorded and deleted since.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use base::part::{HostContext, PartError};
use mpegts::ContentSpec;
use pool::{Pool, PoolError};

use super::made::is_index_of;

/// The pool in `dir`; `None`: there is none. Errors: It is damaged or in use.
pub fn open(dir: &Path) -> Result<Option<Pool>, PartError> {
    match Pool::open(&dir.join(pool::FOLDER)) {
        Ok(pool) => Ok(Some(pool)),
        Err(PoolError::Missing { .. }) => Ok(None),
        Err(error) => Err(PartError::new(error.to_string())),
    }
}

/// Makes the content of `path`, a name in the served directory, in that directory's pool unless it is there;
/// its index is a file beside the pool. Returns the file that holds its bytes.
pub fn provide(
    pool: &Pool,
    path: &Path,
    spec: &ContentSpec,
    host: &HostContext,
    on_progress: &mut mpegts::ProgressCallback<'_>,
) -> Result<PathBuf, PartError> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_made = pool.file(name).is_some_and(|file| {
        // Contents of almost the same rate and length have one name.
        mpegts::load_index_of(path, file.len_bytes()).is_ok_and(|index| is_index_of(&index, spec))
    });
    if !is_made {
        let size = base::format::quantity(Some(spec.total_bytes() as f64), "B");
        host.say(format!("making {size} of content in the pool {}", pool.folder().display()));
        let failed = |error: PoolError| PartError::new(error.to_string());
        let mut out = PoolWriter(pool.begin().map_err(failed)?);
        out.0.reserve(spec.total_bytes()).map_err(failed)?;
        // Before the content has its name, so that where the content is, its index is, too.
        mpegts::write_content(spec, &mut out, on_progress)
            .and_then(|index| mpegts::save_index(&index, path))
            .map_err(|error| PartError::new(error.about(path)))?;
        out.0.commit(name).map_err(failed)?;
    }
    Ok(pool.segments_path().to_path_buf())
}

struct PoolWriter(pool::Writer);

impl Write for PoolWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_all(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
