//! The prefix of kagiri's own below the one under test, for as long as a variant is measured: kind
//! `files.prefix`.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::part::{HostContext, PartError, Say, Watch};
use serde::{Deserialize, Serialize};
use sys::journal::{EntryId, Journal, Undo};
use tokio::runtime::Builder;
use workload::part::{Part, Peers};

use super::address::Address;
use super::client::{Access, Client};
use super::keys::own_name;
use super::leftover::{how_to_remove, remove};

/// Names that are tried.
const NAMES_MAX: u32 = 16;
/// Deadline of the first request: it finds a server that does not answer.
const FIRST: Duration = Duration::from_secs(5);
/// While the server asks for fewer requests, the first one is tried again.
const TRY_FOR: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PrefixTask {
    pub under: Address,
    pub allows_http: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PrefixEndpoint {
    pub own: Address,
    /// One of the addresses of the server; `None` for Amazon's.
    pub server: Option<SocketAddr>,
    pub watch: Watch,
}

/// Dropping it deletes the objects below the prefix.
pub struct PrefixPart {
    task: PrefixTask,
    owned: Option<Owned>,
}

struct Owned {
    client: Client,
    own: Address,
    journal: Journal,
    entry: EntryId,
    say: Say,
    stop: Arc<AtomicBool>,
}

impl Part for PrefixPart {
    const KIND: &'static str = "files.prefix";
    type Task = PrefixTask;
    type Endpoint = PrefixEndpoint;
    type Report = ();

    fn new(task: PrefixTask) -> Result<Self, PartError> {
        Ok(Self { task, owned: None })
    }

    fn prepare(&mut self, _: &Peers<'_>, host: &HostContext) -> Result<PrefixEndpoint, PartError> {
        let under = &self.task.under;
        let access = Access {
            endpoint: None,
            keys: None,
            allows_http: self.task.allows_http,
            within: FIRST,
            connections: 64,
        };
        let client = Client::connect(&under.bucket, &access).map_err(|why| failed(under, &why))?;
        let server = permit(&client, host)?;
        let own = unused(&client, under)?;
        let journal = Journal::open(&host.journal_dir).map_err(PartError::new)?;
        let endpoint = Some(client.endpoint().to_owned()).filter(|endpoint| endpoint.starts_with("http"));
        let (bucket, prefix) = (own.bucket.clone(), own.prefix.clone());
        let entry =
            journal.record(Undo::DeleteObjects { bucket, prefix, endpoint }).map_err(PartError::new)?;
        let mut watch = workload::watch::this_program(host, None, 0);
        let device = server.and_then(|server| sys::proc::interface_to(server).ok());
        watch.network_device = device.filter(|device| device != "lo");
        watch.elsewhere = Some(client.endpoint().to_owned());
        let (say, stop) = (host.say.clone(), host.stop.clone());
        self.owned = Some(Owned { client, own: own.clone(), journal, entry, say, stop });
        Ok(PrefixEndpoint { own, server, watch })
    }

    fn stop(&mut self) -> Result<(), PartError> {
        self.remove().map_err(PartError::new)
    }
}

fn failed(under: &Address, why: &str) -> PartError {
    PartError::new(format!("{under}: {why}"))
}

/// The server's address, if the host's owner lets it send requests there.
pub(crate) fn permit(client: &Client, host: &HostContext) -> Result<Option<SocketAddr>, PartError> {
    let Some((scheme, rest)) = client.endpoint().split_once("://") else { return Ok(None) };
    let authority = rest.split('/').next().unwrap_or(rest);
    let port = if scheme == "https" { 443 } else { 80 };
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let authority = if has_port { authority.to_owned() } else { format!("{authority}:{port}") };
    let addresses = authority.to_socket_addrs().map_err(|error| {
        PartError::new(format!("AWS_ENDPOINT_URL: the name in {} is unknown: {error}", client.endpoint()))
    })?;
    let addresses: Vec<SocketAddr> = addresses.collect();
    addresses.iter().try_for_each(|address| host.permit.peer(*address))?;
    Ok(addresses.into_iter().next())
}

/// A prefix below which there is nothing. The listing also shows whether the server accepts the credentials.
fn unused(client: &Client, under: &Address) -> Result<Address, PartError> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(PartError::new)?;
    let until = Instant::now() + TRY_FOR;
    for _ in 0..NAMES_MAX {
        // Another host can have a process of this number.
        let own = under.below(&own_name(std::process::id(), fastrand::u32(..)));
        let page = loop {
            match runtime.block_on(client.list(&format!("{}/", own.prefix), 1, None)) {
                Ok(page) => break page,
                Err(failure) if failure.is_slow_down && Instant::now() < until => std::thread::sleep(PAUSE),
                Err(failure) => {
                    let what = format!("{under} on {}", client.endpoint());
                    return Err(PartError::new(failure.sentence(&what)));
                }
            }
        };
        if page.objects.is_empty() {
            return Ok(own);
        }
    }
    Err(failed(under, "every prefix that was tried has objects already; give another prefix"))
}

impl PrefixPart {
    /// Errors: objects of ours are left, why, and how to remove them.
    fn remove(&mut self) -> Result<(), String> {
        let Some(owned) = self.owned.take() else { return Ok(()) };
        // A run that was stopped puts back what it changed; a stop during that ends it.
        let never = AtomicBool::new(false);
        let stop = if owned.stop.load(Ordering::Relaxed) { &never } else { &*owned.stop };
        // What is left stays in the journal.
        let removed = remove(&owned.client, &owned.own, stop);
        let removed = removed.map_err(|why| format!("{why}; {}", how_to_remove(&owned.own)))?;
        // The objects are gone even if that cannot be written down.
        let _ = owned.journal.done(owned.entry);
        if removed.foreign > 0 {
            let (count, own) = (removed.foreign, &owned.own);
            (owned.say)(&format!("left alone: {count} objects below {own}/ that kagiri did not make"));
        }
        Ok(())
    }
}

impl Drop for PrefixPart {
    fn drop(&mut self) {
        let say = self.owned.as_ref().map(|owned| owned.say.clone());
        if let Some((say, why)) = say.zip(self.remove().err()) {
            say(&why);
        }
    }
}
