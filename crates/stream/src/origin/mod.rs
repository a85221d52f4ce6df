//! The server under test: an existing one, or one launched for the measurement with its content.

pub mod cache;
mod content;
mod existing_server;
mod made;
mod permissions;
mod pooled;
mod sampling_target;
mod server_process;

use std::path::PathBuf;

use base::part::{HostContext, PartError, Progress, Watch};
use serde::{Deserialize, Serialize};
use sys::cgroup::ExistingGroup;
use sys::journal::Journal;
use workload::part::{self, Part, Peers};

use super::settings::StreamSettings;
use server_process::{ServerLauncher, ServerProcess};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OriginTask {
    #[serde(deserialize_with = "part::settings")]
    pub stream: StreamSettings,
    /// Players connect from other hosts, through a network device of this one.
    pub players_elsewhere: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OriginEndpoint {
    pub content_url: String,
    /// The content's file on the server's host, with its index beside it, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_path: Option<PathBuf>,
    /// The file on the server's host that holds the content's bytes, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_path: Option<PathBuf>,
    pub watch: Watch,
}

pub struct Origin {
    settings: StreamSettings,
    players_elsewhere: bool,
    server: Option<ServerProcess>,
}

impl Part for Origin {
    const KIND: &'static str = "stream.server";
    type Task = OriginTask;
    type Endpoint = OriginEndpoint;
    type Report = ();

    fn new(task: OriginTask) -> Result<Self, PartError> {
        Ok(Self { settings: task.stream, players_elsewhere: task.players_elsewhere, server: None })
    }

    fn prepare(&mut self, _: &Peers<'_>, host: &HostContext) -> Result<OriginEndpoint, PartError> {
        let server_host = sampling_target::ServerHost { host, players_elsewhere: self.players_elsewhere };
        if let Some(url) = self.settings.url.clone() {
            return existing_server::endpoint(&self.settings, &url, &server_host);
        }
        let by_host_address = self.players_elsewhere || host.address.is_some();
        let address = part::server_address(host, by_host_address, "players", "server")?;
        permissions::check_create(&self.settings, address, host)?;
        let journal = Journal::open(&host.journal_dir).map_err(PartError::new)?;
        let group = host.program_group.as_deref().map(ExistingGroup::find).transpose();
        let group = group.map_err(PartError::new)?;
        let content = content::provide(&self.settings, host)?;
        permissions::check_rate(&self.settings, &content.path, host)?;
        let launcher = ServerLauncher {
            settings: &self.settings,
            address,
            group: group.as_ref(),
            journal: &journal,
            host,
        };
        let server = launcher.launch(&content.path)?;
        let cgroup_cpu = group.as_ref().and_then(ExistingGroup::cpu_folder);
        let watch = sampling_target::for_launched(
            &self.settings,
            &server,
            cgroup_cpu,
            &content.stored_path,
            &server_host,
        );
        let endpoint = OriginEndpoint {
            content_url: server.content_url(),
            content_path: content.is_file().then_some(content.path),
            stored_path: Some(content.stored_path),
            watch,
        };
        self.server = Some(server);
        Ok(endpoint)
    }

    fn progress(&mut self) -> Progress {
        match self.server.as_mut().and_then(ServerProcess::exit_error) {
            Some(why) => Progress::Failed(PartError::new(why)),
            None => Progress::Running { done: None },
        }
    }

    fn stop(&mut self) -> Result<(), PartError> {
        if let Some(server) = self.server.take() {
            server.stop();
        }
        Ok(())
    }
}
