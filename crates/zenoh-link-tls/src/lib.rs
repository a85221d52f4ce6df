//! zenoh's link for `tls/` endpoints, over TLS streams that this program opens and checks itself.
//!
//! zenoh's own crate of this name uses one TLS session from two tasks without a lock
//! (<https://github.com/eclipse-zenoh/zenoh/issues/2557>), which is undefined behaviour. This one replaces it
//! (`[patch.crates-io]`). It neither connects nor listens: zenoh takes each stream after its handshake, from
//! [`offer`] or [`deliver`], by a name that stands where an endpoint has its address. Reading and writing
//! share a lock around the TLS session (`tokio::io::split`).

mod link;
mod registry;
mod socket;

use std::any::Any;
use std::io;
use std::str::FromStr;

use async_trait::async_trait;
use tokio_rustls::TlsStream;
use zenoh_config::Config;
use zenoh_link_commons::{ConfigurationInspector, LocatorInspector};
use zenoh_protocol::core::{Locator, Metadata, Reliability};
use zenoh_result::ZResult;

pub use registry::{LinkManagerUnicastTls, Listener, Offer, deliver, offer};
pub use socket::Socket;

/// Name of the protocol in endpoints.
pub const TLS_LOCATOR_PREFIX: &str = "tls";

/// A stream after its handshake.
pub struct SecuredStream {
    pub stream: TlsStream<Socket>,
    /// The name in the other side's verified certificate, by which zenoh's access control knows it.
    pub peer: Option<String>,
    /// Dropped with the link.
    pub guard: Box<dyn Any + Send + Sync>,
    /// Called with each error in reading or writing.
    pub on_error: Box<dyn Fn(&io::Error) + Send + Sync>,
}

/// What zenoh asks about endpoints of this protocol.
#[derive(Default, Clone, Copy, Debug)]
pub struct TlsLocatorInspector;

#[async_trait]
impl LocatorInspector for TlsLocatorInspector {
    fn protocol(&self) -> &str {
        TLS_LOCATOR_PREFIX
    }

    async fn is_multicast(&self, _: &Locator) -> ZResult<bool> {
        Ok(false)
    }

    fn is_reliable(&self, locator: &Locator) -> ZResult<bool> {
        let said = locator.metadata().get(Metadata::RELIABILITY).map(Reliability::from_str).transpose()?;
        Ok(said.is_none_or(|reliability| reliability == Reliability::Reliable))
    }
}

/// Has nothing to configure: streams come with their settings.
#[derive(Default, Clone, Copy, Debug)]
pub struct TlsConfigurator;

impl ConfigurationInspector<Config> for TlsConfigurator {
    fn inspect_config(&self, _: &Config) -> ZResult<String> {
        Ok(String::new())
    }
}
