//! The server under test: one that is already there, or one made for the measurement with its content.

mod ask;
pub mod cache;
mod film;
mod process;
mod remote;
mod watch;

use std::net::{IpAddr, Ipv4Addr};

use base::part::{Endpoints, HostContext, Part, PartError, PartSpec, Progress};
use serde_json::{Value, json};
use sys::cgroup::ExistingGroup;
use sys::journal::Journal;

use super::settings::StreamSettings;
use process::{Serving, Start};

/// The part `stream.server`.
struct Origin {
    settings: StreamSettings,
    /// Players connect from other hosts, so that what they receive goes through a device of this one.
    players_elsewhere: bool,
    made: Option<Serving>,
}

/// Make the part from its [`settings`].
///
/// # Errors
/// Settings that are refused.
pub fn build(spec: &PartSpec) -> Result<Box<dyn Part>, PartError> {
    let settings = StreamSettings::read(spec.settings["stream"].clone()).map_err(PartError::usage)?;
    let players_elsewhere = spec.settings["players_elsewhere"].as_bool().unwrap_or(false);
    Ok(Box::new(Origin { settings, players_elsewhere, made: None }))
}

/// The settings of the part, from those of `stream` and where the players are.
pub fn settings(stream: &Value, players_elsewhere: bool) -> Value {
    json!({ "stream": stream, "players_elsewhere": players_elsewhere })
}

impl Origin {
    /// Where the server listens.
    fn address(&self, host: &HostContext) -> Result<IpAddr, PartError> {
        match (host.address, self.players_elsewhere) {
            (Some(address), _) => Ok(address),
            (None, false) => Ok(Ipv4Addr::LOCALHOST.into()),
            (None, true) => Err(PartError::new(
                "the players are on other hosts, and it is not known at which address they reach this one; \
                 run an agent here with --address, and place the server on it",
            )),
        }
    }
}

impl Part for Origin {
    fn prepare(&mut self, _: &Endpoints, host: &HostContext) -> Result<Value, PartError> {
        let reach = watch::Reach { host, players_elsewhere: self.players_elsewhere };
        if let Some(url) = self.settings.url.clone() {
            return remote::endpoint(&self.settings, &url, &reach);
        }
        let address = self.address(host)?;
        ask::to_make(&self.settings, address, host)?;
        let journal = Journal::open(&host.journal_dir).map_err(PartError::new)?;
        let group = host.program_group.as_deref().map(ExistingGroup::find).transpose();
        let group = group.map_err(PartError::new)?;
        let film = film::provide(&self.settings, host)?;
        ask::to_send(&self.settings, &film, host)?;
        let start =
            Start { settings: &self.settings, address, group: group.as_ref(), journal: &journal, host };
        let serving = start.serving(&film)?;
        let cgroup_cpu = group.as_ref().and_then(ExistingGroup::cpu_folder);
        let watch = watch::of_made(&self.settings, &serving, cgroup_cpu, &film, &reach);
        let endpoint = json!({
            "content_url": serving.content_url(),
            "content_path": film,
            "watch": watch,
        });
        self.made = Some(serving);
        Ok(endpoint)
    }

    fn start(&mut self, _: u64) -> Result<(), PartError> {
        Ok(())
    }

    fn progress(&mut self) -> Progress {
        match self.made.as_mut().and_then(Serving::died) {
            Some(why) => Progress::Failed(PartError::new(why)),
            None => Progress::Running { done: None },
        }
    }

    fn stop(&mut self) -> Result<Value, PartError> {
        if let Some(serving) = self.made.take() {
            serving.stop();
        }
        Ok(Value::Null)
    }
}
