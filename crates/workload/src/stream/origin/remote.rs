//! A server that is already there. If it runs on this host it is found by its listening port; if not, its load is
//! absent, and only the players' host is watched.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use base::part::{PartError, Watch};
use serde_json::{Value, json};
use sys::proc::Listening;

use super::watch::{self, Reach};
use crate::stream::settings::StreamSettings;
use crate::stream::viewer::fetch::{self, FetchError};

/// How long the server may take to say what it has.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The endpoint of a server that is already there.
pub fn endpoint(settings: &StreamSettings, url: &str, reach: &Reach<'_>) -> Result<Value, PartError> {
    let located = fetch::locate(url, ANSWER_WITHIN, reach.host).map_err(|error| match error {
        FetchError::Url(error) => PartError::usage(error),
        error => error.into(),
    })?;
    let watch = watch_at(settings, located.address, reach);
    Ok(json!({ "content_url": url, "watch": watch }))
}

/// What to watch of a server at `address`.
fn watch_at(settings: &StreamSettings, address: SocketAddr, reach: &Reach<'_>) -> Watch {
    if !is_own(address.ip()) {
        return watch::of_elsewhere(settings, address);
    }
    let listening = Listening { port: address.port(), address: Some(address.ip()), namespace_of: None };
    // Processes that this user may not see are none to the sampler, and the run says so.
    let pids = listening.pids(Path::new("/")).unwrap_or_default();
    let pids = pids.into_iter().filter_map(|pid| u32::try_from(pid).ok()).collect();
    watch::of_found(settings, address.port(), pids, reach)
}

/// Whether an address is this host's: loopback, or one that a socket can be bound to.
fn is_own(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::outcome::{Ceiling, Resource};
    use base::part::HostContext;
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
    fn a_server_elsewhere_leaves_the_players_host_to_be_watched() {
        let host = host();
        let reach = Reach { host: &host, players_elsewhere: false };
        // Reserved for documentation (RFC 5737): no host has it, and nothing is sent.
        let watch = watch_at(&settings(), "192.0.2.7:8080".parse().unwrap(), &reach);
        assert_eq!(watch.elsewhere.as_deref(), Some("192.0.2.7:8080"));
        assert_eq!((watch.pids.len(), watch.tcp_port), (0, None));
        assert_eq!(watch.own_pids, [std::process::id()], "the players are no neighbours");
        assert_eq!(watch.ceilings[&Resource::Network].value, 1e9);
        assert!(!watch.ceilings.contains_key(&Resource::Cpu), "this host's cores are not the server's");
    }

    /// What is watched of this process's own server at `address`. A child that another test starts has its socket too
    /// until it runs its program, so it is looked at until none has.
    fn watch_own(address: SocketAddr, reach: &Reach<'_>) -> Watch {
        let deadline = Deadline::after(Duration::from_secs(20));
        loop {
            let watch = watch_at(&settings(), address, reach);
            if watch.pids == [std::process::id()] || deadline.passed() {
                return watch;
            }
        }
    }

    #[test]
    fn a_server_here_is_found_by_its_port() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, host) = (listener.local_addr().unwrap(), host());
        let near = watch_own(address, &Reach { host: &host, players_elsewhere: false });
        assert_eq!((near.elsewhere, near.tcp_port), (None, None), "loopback is no network to wait for");
        assert_eq!((near.pids, near.network_device), (vec![std::process::id()], None));
        assert_eq!(near.ceilings[&Resource::Cpu].source, "the owner", "there is less than all cores");
        let far = watch_at(&settings(), address, &Reach { host: &host, players_elsewhere: true });
        assert_eq!((far.tcp_port, far.network_device.as_deref()), (Some(address.port()), Some("lo")));
    }
}
