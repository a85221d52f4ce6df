//! The server of a transfer as a part of a run: kind `transfer.server`.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use base::part::{Endpoints, HostContext, Part, PartError, PartSpec, Progress};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Server, ServerSettings};
use crate::transfer::client::part::rate_max;
use crate::transfer::flow::{Direction, probe};
use crate::transfer::native::{NativeServer, NativeSettings};
use crate::transfer::settings::TransferSettings;
use crate::watch;

/// What the part is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServerPartSettings {
    /// The transfer.
    pub transfer: TransferSettings,
    /// Whether some clients are on other hosts.
    pub clients_elsewhere: bool,
}

struct ServerPart {
    settings: ServerPartSettings,
    server: Option<Server>,
    natives: Option<Arc<NativeServer>>,
}

/// Make the part from its settings ([`ServerPartSettings`]), acquiring nothing yet.
///
/// # Errors
/// A usage error that names the key at fault.
pub fn build(spec: &PartSpec) -> Result<Box<dyn Part>, PartError> {
    let settings = serde_json::from_value(spec.settings.clone()).map_err(PartError::usage)?;
    Ok(Box::new(ServerPart { settings, server: None, natives: None }))
}

impl ServerPart {
    /// Where the server listens.
    fn address(&self, host: &HostContext) -> Result<IpAddr, PartError> {
        match (host.address, self.settings.clients_elsewhere) {
            (_, false) => Ok(Ipv4Addr::LOCALHOST.into()),
            (Some(address), true) => Ok(address),
            (None, true) => Err(PartError::new(
                "the clients are on other hosts, and it is not known at which address they reach this one; \
                 run an agent here with --address, and place the server on it",
            )),
        }
    }
}

impl Part for ServerPart {
    fn prepare(&mut self, _: &Endpoints, host: &HostContext) -> Result<Value, PartError> {
        let address = self.address(host)?;
        host.permit.peer((address, 0).into())?;
        if self.settings.transfer.direction != Direction::Up || self.settings.transfer.requests.is_some() {
            host.permit.rate(rate_max(&self.settings.transfer))?;
        }
        if self.settings.transfer.leaves_engine_open() && self.settings.transfer.direction != Direction::Up {
            // Where there is no loopback to try them over, the usual one does.
            let _ = probe::run();
        }
        // Only the clients of this run know it.
        let key = random_key();
        let natives = NativeSettings { key: Some(key.clone()), ..NativeSettings::default() };
        let natives = Arc::new(NativeServer::new(natives));
        let settings = ServerSettings {
            natives: Some(natives.clone()),
            // Nobody else is served meanwhile.
            sessions_max: 0,
            ..ServerSettings::new((address, 0).into())
        };
        let server = Server::start(settings).map_err(PartError::new)?;
        let address = server.local_addr();
        let device = host.address.filter(|_| self.settings.clients_elsewhere);
        let device = device.and_then(|address| sys::proc::interface_with(address).ok());
        let watch = watch::this_program(host, device, address.port());
        (self.server, self.natives) = (Some(server), Some(natives));
        Ok(json!({ "address": address.to_string(), "key": key, "watch": watch, "pid": std::process::id() }))
    }

    fn start(&mut self, _: u64) -> Result<(), PartError> {
        Ok(())
    }

    fn progress(&mut self) -> Progress {
        // Each client reports what its session came to; nobody asks for what is kept of it here.
        self.natives.iter().for_each(|natives| drop(natives.take_ends()));
        Progress::Running { done: None }
    }

    fn stop(&mut self) -> Result<Value, PartError> {
        self.server = None;
        Ok(Value::Null)
    }
}

/// 128 bits that nobody can guess, in hexadecimal digits.
fn random_key() -> String {
    sys::random::letters::<32>(b"0123456789abcdef").map(char::from).iter().collect()
}
