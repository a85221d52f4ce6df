//! The server of a run: kind `exchange.server`.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use base::part::{HostContext, PartError, Progress, Watch};
use serde::{Deserialize, Serialize};
use workload::part::{self, Part, Peers};
use workload::watch;

use super::{Server, ServerReport, ServerSettings};
use crate::settings::{Class, ExchangeSettings, sum_bit_per_s};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServerTask {
    #[serde(deserialize_with = "part::settings")]
    pub settings: ExchangeSettings,
    /// Whether some that connect are on other hosts.
    pub others_elsewhere: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServerEndpoint {
    pub address: SocketAddr,
    /// What clients of this run present.
    pub key: u64,
    /// What a sampler watches on the server's host.
    pub watch: Watch,
}

pub struct ServerPart {
    task: ServerTask,
    server: Option<Server>,
}

impl Part for ServerPart {
    const KIND: &'static str = "exchange.server";
    type Task = ServerTask;
    type Endpoint = ServerEndpoint;
    type Report = ServerReport;

    fn new(task: ServerTask) -> Result<Self, PartError> {
        Ok(Self { task, server: None })
    }

    fn prepare(&mut self, _: &Peers<'_>, host: &HostContext) -> Result<ServerEndpoint, PartError> {
        let is_elsewhere = self.task.others_elsewhere;
        let address = part::server_address(host, is_elsewhere, "clients", "server")?;
        host.permit.peer((address, 0).into())?;
        // 0 means that everybody is let in.
        let key = u64::from_be_bytes(sys::random::bytes()).max(1);
        let settings = &self.task.settings;
        let ports: BTreeSet<u16> = settings.classes().iter().filter_map(|class| class.port).collect();
        for port in &ports {
            host.permit.peer((address, *port).into())?;
        }
        // With a URL, only the background comes here, which has no replies.
        if settings.url().is_none() {
            let classes = settings.classes_at(settings.load_plan().load_max);
            let rate = |class: &Class| Some(class.reply_bit_per_s()? * class.clients as f64);
            host.permit.rate(sum_bit_per_s(classes.iter().map(rate)))?;
        }
        let server = Server::start(&ServerSettings {
            more_ports: ports.into_iter().collect(),
            key,
            service_ns: settings.service.ns(),
            receive_buffer_bytes: settings.receive_buffer.map(|buffer| buffer.bytes()),
            ..ServerSettings::new((address, 0).into())
        });
        let server = server.map_err(PartError::new)?;
        let address = server.local_addr();
        let device = host.address.filter(|_| is_elsewhere);
        let device = device.and_then(|address| sys::proc::interface_with(address).ok());
        let watch = watch::this_program(host, device, address.port());
        self.server = Some(server);
        Ok(ServerEndpoint { address, key, watch })
    }

    fn progress(&mut self) -> Progress {
        match self.server.as_ref().is_some_and(Server::has_failed) {
            true => Progress::Failed(PartError::new("the server's event loop ended by an error")),
            false => Progress::Running { done: None },
        }
    }

    fn stop(&mut self) -> Result<ServerReport, PartError> {
        match self.server.take() {
            Some(server) => server.stop().map_err(PartError::new),
            None => Ok(ServerReport::default()),
        }
    }
}
