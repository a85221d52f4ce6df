//! An existing server. On this host its processes are found by the listening port; elsewhere its load is
//! unknown, and only the players' host is sampled.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use base::part::{PartError, Watch};
use sys::proc::Listening;

use super::OriginEndpoint;
use super::sampling_target::{self, ServerHost};
use crate::http::fetch;
use crate::http::fetch_error::FetchError;
use crate::settings::StreamSettings;

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn endpoint(
    settings: &StreamSettings,
    url: &str,
    server_host: &ServerHost<'_>,
) -> Result<OriginEndpoint, PartError> {
    let located = fetch::locate(url, RESPONSE_TIMEOUT, server_host.host).map_err(|error| match error {
        FetchError::Url(error) => PartError::usage(error),
        error => error.into(),
    })?;
    let watch = sampling_target_at(settings, located.address, server_host);
    Ok(OriginEndpoint { content_url: url.to_owned(), content_path: None, stored_path: None, watch })
}

/// What to sample for a server at `address`.
fn sampling_target_at(settings: &StreamSettings, address: SocketAddr, server_host: &ServerHost<'_>) -> Watch {
    if !is_own(address.ip()) {
        return sampling_target::for_remote(settings, address);
    }
    let listening = Listening { port: address.port(), address: Some(address.ip()), namespace_of: None };
    // Processes that this user may not see are missing; the run adds a doubt.
    let pids = listening.pids(Path::new("/")).unwrap_or_default();
    let pids = pids.into_iter().filter_map(|pid| u32::try_from(pid).ok()).collect();
    sampling_target::for_local(settings, address.port(), pids, server_host)
}

/// Whether an address is this host's: loopback, or a socket can be bound to it.
fn is_own(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::outcome::{Ceiling, Resource};
    use base::part::HostContext;
    use serde_json::json;
    use sys::clock::Deadline;

    fn settings() -> StreamSettings {
        StreamSettings::read(json!({ "ceiling": { "network": "1Gbit/s" } })).unwrap()
    }

    fn host() -> HostContext {
        let said = Ceiling { value: 50.0, source: "the owner".into() };
        let ceilings = [(Resource::Cpu, said.clone()), (Resource::Disk, said)].into();
        let here = HostContext::here("".into(), "".into(), "".into());
        HostContext { address: Some("127.0.0.1".parse().unwrap()), ceilings, ..here }
    }

    #[test]
    fn remote_server_has_players_host_sampled() {
        let host = host();
        let server_host = ServerHost { host: &host, players_elsewhere: false };
        // Reserved for documentation (RFC 5737): nothing is sent.
        let watch = sampling_target_at(&settings(), "192.0.2.7:8080".parse().unwrap(), &server_host);
        assert_eq!(watch.elsewhere.as_deref(), Some("192.0.2.7:8080"));
        assert_eq!((watch.pids.len(), watch.tcp_port), (0, None));
        assert_eq!(watch.own_pids, [std::process::id()], "the players are no neighbours");
        assert_eq!(watch.ceilings[&Resource::Network].value, 1e9);
        assert!(!watch.ceilings.contains_key(&Resource::Cpu), "this host's cores are not the server's");
    }

    /// The target of this process's own server at `address`. A child that another test forks holds the socket
    /// until it executes its program, so this repeats until none does.
    fn own_target(address: SocketAddr, server_host: &ServerHost<'_>) -> Watch {
        let deadline = Deadline::after(Duration::from_secs(20));
        loop {
            let watch = sampling_target_at(&settings(), address, server_host);
            if watch.pids == [std::process::id()] || deadline.passed() {
                return watch;
            }
        }
    }

    #[test]
    fn local_server_is_found_by_its_port() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, host) = (listener.local_addr().unwrap(), host());
        let near = own_target(address, &ServerHost { host: &host, players_elsewhere: false });
        assert_eq!((near.elsewhere, near.tcp_port), (None, None), "loopback is no network to wait for");
        assert_eq!((near.pids, near.network_device), (vec![std::process::id()], None));
        assert_eq!(near.ceilings[&Resource::Cpu].source, "the owner", "there is less than all cores");
        let far =
            sampling_target_at(&settings(), address, &ServerHost { host: &host, players_elsewhere: true });
        assert_eq!((far.tcp_port, far.network_device.as_deref()), (Some(address.port()), Some("lo")));
    }
}
