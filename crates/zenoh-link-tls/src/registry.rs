//! Where zenoh and this program meet: streams that wait for zenoh, and zenoh's listeners.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use zenoh_link_commons::{LinkManagerUnicastTrait, LinkUnicast, LinkUnicastTrait, NewLinkChannelSender};
use zenoh_protocol::core::{EndPoint, Locator};
use zenoh_result::{ZResult, bail, zerror};

use crate::link::TlsLink;
use crate::{SecuredStream, TLS_LOCATOR_PREFIX};

#[derive(Default)]
struct Registry {
    offered: HashMap<String, SecuredStream>,
    listeners: HashMap<String, NewLinkChannelSender>,
}

fn registry() -> MutexGuard<'static, Registry> {
    static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Unique in this process.
fn unique(what: &str) -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("{what}-{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

fn endpoint(name: &str) -> String {
    format!("{TLS_LOCATOR_PREFIX}/{name}")
}

/// A stream that waits for zenoh to connect; dropped with the offer if it does not.
#[derive(Debug)]
pub struct Offer(String);

impl Offer {
    /// What zenoh connects to, once.
    pub fn endpoint(&self) -> String {
        endpoint(&self.0)
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        // Outside the lock: dropping a stream runs its guard.
        let unused = registry().offered.remove(&self.0);
        drop(unused);
    }
}

/// Offers a stream that was connected.
pub fn offer(stream: SecuredStream) -> Offer {
    let name = unique("link");
    registry().offered.insert(name.clone(), stream);
    Offer(name)
}

/// The name under which zenoh listens for streams that were accepted.
#[derive(Debug, Clone)]
pub struct Listener(String);

impl Default for Listener {
    fn default() -> Self {
        Self(unique("listener"))
    }
}

impl Listener {
    /// Where zenoh must listen.
    pub fn endpoint(&self) -> String {
        endpoint(&self.0)
    }
}

/// Hands an accepted stream to zenoh.
///
/// # Errors
/// zenoh does not listen there (any more), or the process has no descriptor left.
pub async fn deliver(listener: &Listener, stream: SecuredStream) -> io::Result<()> {
    let gone = || io::Error::from(io::ErrorKind::NotConnected);
    let sender = registry().listeners.get(&listener.0).cloned().ok_or_else(gone)?;
    let link = link(stream, &listener.0)?;
    sender.send_async(link).await.map_err(|_| gone())
}

fn link(stream: SecuredStream, source: &str) -> io::Result<LinkUnicast> {
    let locator = |name: &str| Locator::new(TLS_LOCATOR_PREFIX, name, "").map_err(io::Error::other);
    // zenoh takes links with the same two ends for the same link.
    let link = TlsLink::new(stream, locator(source)?, locator(&unique("peer"))?)?;
    let link: Arc<dyn LinkUnicastTrait> = Arc::new(link);
    Ok(LinkUnicast::from(link))
}

/// Takes streams for zenoh.
pub struct LinkManagerUnicastTls {
    sender: NewLinkChannelSender,
    listeners: Mutex<Vec<EndPoint>>,
}

impl LinkManagerUnicastTls {
    pub fn new(sender: NewLinkChannelSender) -> Self {
        Self { sender, listeners: Mutex::default() }
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<EndPoint>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl LinkManagerUnicastTrait for LinkManagerUnicastTls {
    async fn new_link(&self, endpoint: EndPoint) -> ZResult<LinkUnicast> {
        let name = endpoint.address().to_string();
        let Some(stream) = registry().offered.remove(&name) else {
            bail!("no stream waits at {endpoint}; it has ended, or was taken before");
        };
        link(stream, &name).map_err(|error| zerror!("cannot use the stream of {endpoint}: {error}").into())
    }

    async fn new_listener(&self, endpoint: EndPoint) -> ZResult<Locator> {
        registry().listeners.insert(endpoint.address().to_string(), self.sender.clone());
        let locator = endpoint.to_locator();
        self.listeners().push(endpoint);
        Ok(locator)
    }

    async fn del_listener(&self, endpoint: &EndPoint) -> ZResult<()> {
        registry().listeners.remove(endpoint.address().as_str());
        self.listeners().retain(|other| other != endpoint);
        Ok(())
    }

    async fn get_listeners(&self) -> Vec<EndPoint> {
        self.listeners().clone()
    }

    async fn get_locators(&self) -> Vec<Locator> {
        self.listeners().iter().map(EndPoint::to_locator).collect()
    }

    async fn get_locators_noloopback(&self) -> Vec<Locator> {
        self.get_locators().await
    }
}
