//! Checks of the host's policy before a server is launched.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use base::part::{HostContext, PartError};

use crate::settings::{ServerKind, StreamSettings};

/// Before anything is created.
pub fn check_create(settings: &StreamSettings, address: IpAddr, host: &HostContext) -> Result<(), PartError> {
    let permit = &host.permit;
    match &settings.content.path {
        Some(given) => {
            // The server serves the whole directory of the file.
            let file = given.canonicalize().unwrap_or_else(|_| given.clone());
            permit.directory(file.parent().unwrap_or(&file))?;
        }
        None => permit.directory(&host.data_dir.join("content"))?,
    }
    if settings.server.kind == ServerKind::Nginx {
        permit.program("nginx")?;
    }
    // The server takes a free port, not known yet.
    permit.peer(SocketAddr::from((address, 0)))?;
    if settings.content.path.is_none() {
        permit.rate(rate_max(settings, settings.bitrate.bit_per_s()))?;
    }
    Ok(())
}

/// May given content be sent at its own rate?
/// Errors: The refusal, or why the content's index cannot be read.
pub fn check_rate(settings: &StreamSettings, content: &Path, host: &HostContext) -> Result<(), PartError> {
    if settings.content.path.is_none() {
        return Ok(());
    }
    let index = mpegts::load_index(content).map_err(|error| PartError::new(error.about(content)))?;
    host.permit.rate(rate_max(settings, index.rate_bit_per_s()))
}

/// The rate of the largest load of the search.
fn rate_max(settings: &StreamSettings, stream_bit_per_s: u64) -> u64 {
    settings.streams.unwrap_or(settings.max).saturating_mul(stream_bit_per_s)
}
