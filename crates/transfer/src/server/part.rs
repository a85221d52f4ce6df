//! The server of a transfer as a part of a run: kind `transfer.server`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base::part::{HostContext, PartError, Progress, Watch};
use serde::{Deserialize, Serialize};

use super::{Server, ServerSettings};
use crate::flow::{Direction, probe};
use crate::native::{NativeServer, NativeSettings};
use crate::settings::TransferSettings;
use workload::part::{self, Part, Peers};
use workload::watch;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServerTask {
    pub transfer: TransferSettings,
    /// Whether some clients are on other hosts.
    pub clients_elsewhere: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServerEndpoint {
    pub address: SocketAddr,
    /// Clients of this run present this key.
    pub key: String,
    /// What a sampler watches on the server's host.
    pub watch: Watch,
    pub pid: u32,
}

pub struct ServerPart {
    task: ServerTask,
    server: Option<Server>,
    natives: Option<Arc<NativeServer>>,
}

impl Part for ServerPart {
    const KIND: &'static str = "transfer.server";
    type Task = ServerTask;
    type Endpoint = ServerEndpoint;
    type Report = ();

    fn new(task: ServerTask) -> Result<Self, PartError> {
        Ok(Self { task, server: None, natives: None })
    }

    fn prepare(&mut self, _: &Peers<'_>, host: &HostContext) -> Result<ServerEndpoint, PartError> {
        let address = part::server_address(host, self.task.clients_elsewhere, "clients", "server")?;
        host.permit.peer((address, 0).into())?;
        let transfer = &self.task.transfer;
        let answers = transfer.requests.is_some() || transfer.under_load.is_some();
        if transfer.direction != Direction::Up || answers {
            host.permit.rate(self.task.transfer.rate_max_bit_per_s())?;
        }
        if self.task.transfer.leaves_engine_open() && self.task.transfer.direction != Direction::Up {
            // Where there is no loopback to try them over, the usual one does.
            let _ = probe::run();
        }
        // Only the clients of this run know it.
        let key = random_key();
        // The clients of a run may prepare for long; others cannot open a session without the key.
        let start_within = Duration::from_secs(600);
        let natives = NativeSettings { key: Some(key.clone()), start_within, ..NativeSettings::default() };
        let natives = Arc::new(NativeServer::new(natives));
        let settings = ServerSettings {
            natives: Some(natives.clone()),
            // No other client is served meanwhile.
            sessions_max: 0,
            ..ServerSettings::new((address, 0).into())
        };
        let server = Server::start(settings).map_err(PartError::new)?;
        let address = server.local_addr();
        let device = host.address.filter(|_| self.task.clients_elsewhere);
        let device = device.and_then(|address| sys::proc::interface_with(address).ok());
        let watch = watch::this_program(host, device, address.port());
        (self.server, self.natives) = (Some(server), Some(natives));
        Ok(ServerEndpoint { address, key, watch, pid: std::process::id() })
    }

    fn progress(&mut self) -> Progress {
        // Each client reports its session; the results kept here are not needed.
        self.natives.iter().for_each(|natives| drop(natives.take_ends()));
        Progress::Running { done: None }
    }

    fn stop(&mut self) -> Result<(), PartError> {
        self.server = None;
        Ok(())
    }
}

/// 128 random bits in hexadecimal digits.
fn random_key() -> String {
    sys::random::letters::<32>(b"0123456789abcdef").map(char::from).iter().collect()
}
