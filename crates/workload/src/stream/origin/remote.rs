//! A server that is already there. If it runs on this host it is found by its listening port; if not, its load is
//! simply absent.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use base::part::{PartError, Watch};
use serde_json::{Value, json};
use sys::proc::Listening;

use super::watch;
use crate::stream::settings::StreamSettings;
use crate::stream::viewer::fetch::{self, FetchError};

/// How long the server may take to say what it has.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The endpoint of a server that is already there.
pub fn endpoint(settings: &StreamSettings, url: &str) -> Result<Value, PartError> {
    let located = fetch::locate(url, ANSWER_WITHIN).map_err(|error| match error {
        FetchError::Url(error) => PartError::usage(error),
        error => PartError::new(error),
    })?;
    Ok(match watch_local(settings, located.address) {
        Some(watch) => json!({ "content_url": url, "watch": watch }),
        None => json!({ "content_url": url }),
    })
}

/// What to watch of a server that listens on this host; `None` for one elsewhere, or one whose processes this user
/// may not see.
fn watch_local(settings: &StreamSettings, address: SocketAddr) -> Option<Watch> {
    if !is_own(address.ip()) {
        return None;
    }
    let listening = Listening { port: address.port(), address: Some(address.ip()), namespace_of: None };
    let pids = listening.pids(Path::new("/")).ok()?;
    let pids: Vec<u32> = pids.into_iter().filter_map(|pid| u32::try_from(pid).ok()).collect();
    // This host is its own peer: whatever the address, the packets go over lo.
    (!pids.is_empty()).then(|| watch::of_found(settings, pids))
}

/// Whether an address is this host's: loopback, or one that a socket can be bound to.
fn is_own(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}
