//! What the host's owner is asked before a server is made.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use base::part::{HostContext, PartError};

use crate::stream::content;
use crate::stream::settings::{ServerKind, StreamSettings};

/// Before anything is made.
///
/// # Errors
/// The refusal.
pub fn to_make(settings: &StreamSettings, address: IpAddr, host: &HostContext) -> Result<(), PartError> {
    let permit = &host.permit;
    match &settings.content.path {
        Some(given) => {
            // Not the file alone: a server serves the directory that it lies in.
            let file = given.canonicalize().unwrap_or_else(|_| given.clone());
            permit.directory(file.parent().unwrap_or(&file))?;
        }
        None => permit.directory(&host.data_dir.join("content"))?,
    }
    if settings.server.kind == ServerKind::Nginx {
        permit.program("nginx")?;
    }
    // The port is not known yet; it is a free one.
    permit.peer(SocketAddr::from((address, 0)))?;
    if settings.content.path.is_none() {
        permit.rate(rate_max(settings, settings.bitrate.bit_per_s()))?;
    }
    Ok(())
}

/// Before it is served: content that was given has its own rate.
///
/// # Errors
/// The refusal.
pub fn to_send(settings: &StreamSettings, film: &Path, host: &HostContext) -> Result<(), PartError> {
    let Some(index) = settings.content.path.as_ref().and_then(|_| content::load_index(film).ok()) else {
        return Ok(());
    };
    host.permit.rate(rate_max(settings, index.rate_bit_per_s()))
}

/// What the largest load of the search would receive.
fn rate_max(settings: &StreamSettings, stream_bit_per_s: u64) -> u64 {
    settings.streams.unwrap_or(settings.max).saturating_mul(stream_bit_per_s)
}
