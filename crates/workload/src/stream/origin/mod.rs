//! The server under test: one that is already there, or one made for the measurement with its content, disk, CPU
//! quota and link.

pub mod cache;
mod film;
mod process;
mod remote;
mod stand;
mod watch;

use base::part::{Endpoints, HostContext, Part, PartError, PartSpec, Progress};
use serde_json::{Value, json};
use sys::journal::Journal;

use super::settings::StreamSettings;
use process::Serving;
use stand::Stand;

/// The part `stream.server`.
struct Origin {
    settings: StreamSettings,
    made: Option<Made>,
}

/// What was made for the measurement. The fields are dropped in their order: first the server, then what it stands
/// on.
struct Made {
    serving: Serving,
    stand: Stand,
}

/// Make the part from the settings of `stream`.
///
/// # Errors
/// Settings that are refused.
pub fn build(spec: &PartSpec) -> Result<Box<dyn Part>, PartError> {
    let settings = StreamSettings::read(spec.settings.clone()).map_err(PartError::usage)?;
    Ok(Box::new(Origin { settings, made: None }))
}

impl Part for Origin {
    fn prepare(&mut self, _: &Endpoints, host: &HostContext) -> Result<Value, PartError> {
        if let Some(url) = self.settings.url.clone() {
            return remote::endpoint(&self.settings, &url);
        }
        let journal = Journal::open(&host.journal_dir).map_err(PartError::new)?;
        let stand = Stand::make(&self.settings, &journal, host)?;
        let film = film::provide(&self.settings, stand.content_dir(), host)?;
        let serving = Serving::start(&self.settings, &stand, &film, &journal, host)?;
        let watch = watch::of_made(&self.settings, &stand, &serving, &film);
        let endpoint = json!({
            "content_url": serving.content_url(),
            "content_path": film,
            "watch": watch,
        });
        self.made = Some(Made { serving, stand });
        Ok(endpoint)
    }

    fn start(&mut self, _: u64) -> Result<(), PartError> {
        Ok(())
    }

    fn progress(&mut self) -> Progress {
        match self.made.as_mut().and_then(|made| made.serving.died()) {
            Some(why) => Progress::Failed(PartError::new(why)),
            None => Progress::Running { done: None },
        }
    }

    fn stop(&mut self) -> Result<Value, PartError> {
        if let Some(made) = self.made.take() {
            made.serving.stop();
            made.stand.remove().map_err(PartError::new)?;
        }
        Ok(Value::Null)
    }
}
