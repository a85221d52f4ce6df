//! The group of players as a part of a run: kind `stream.viewers`.

use std::sync::Arc;
use std::time::Duration;

use base::part::{Endpoints, HostContext, Part, PartError, PartSpec, Progress};
use serde_json::{Value, json};

use super::collect;
use super::config::ViewerSettings;
use super::fetch::{self, Located};
use super::film::Film;
use super::group::Group;
use super::link::Source;
use super::shelf::{self, Bounds};
use super::worker::{SLOT_NS, SLOTS};
use crate::stream::SERVER;

/// A server that has not answered by then is not there.
const LOCATE_WITHIN: Duration = Duration::from_secs(5);
/// Open files besides the players' sockets.
const FILES_BESIDES: u64 = 64;

/// The players of one trial.
#[derive(Debug)]
pub struct Viewers {
    settings: ViewerSettings,
    bounds: Bounds,
    prepared: Option<Prepared>,
    group: Option<Group>,
}

#[derive(Debug)]
struct Prepared {
    located: Located,
    film: Arc<Film>,
}

/// Make the part from its settings ([`ViewerSettings`]), acquiring nothing yet.
///
/// # Errors
/// A usage error that names the key at fault.
pub fn build(spec: &PartSpec) -> Result<Box<dyn Part>, PartError> {
    let settings = ViewerSettings::read(&spec.settings)?;
    Ok(Box::new(Viewers { settings, bounds: Bounds::default(), prepared: None, group: None }))
}

impl Viewers {
    fn url(&self, peers: &Endpoints) -> Result<String, PartError> {
        let of_peer = || {
            let server = peers.get(SERVER)?;
            server["content_url"].as_str().or(server["url"].as_str()).map(str::to_owned)
        };
        self.settings.url.clone().or_else(of_peer).ok_or_else(|| {
            PartError::usage(
                "the players do not know what to play: give a URL, such as http://nas:8080/film.ts",
            )
        })
    }

    fn raise_file_limit(&self) -> Result<(), PartError> {
        let wanted = self.settings.streams + FILES_BESIDES;
        let granted = sys::thread::raise_file_limit(wanted).map_err(PartError::new)?;
        if granted >= wanted {
            return Ok(());
        }
        let streams = self.settings.streams;
        Err(PartError::new(format!(
            "{streams} streams need {wanted} open files and only {granted} are allowed; \
             raise the limit (ulimit -n {wanted}) or run as root"
        )))
    }
}

impl Part for Viewers {
    fn prepare(&mut self, peers: &Endpoints, host: &HostContext) -> Result<Value, PartError> {
        self.raise_file_limit()?;
        let located = fetch::locate(&self.url(peers)?, LOCATE_WITHIN, host)?;
        let path = self.settings.content_path.as_deref();
        path.map_or(Ok(()), |path| host.permit.directory(path))?;
        let film = shelf::film(&located, path, self.bounds, host)?;
        host.permit.rate((film.timeline.mean_bit_per_s() * self.settings.streams as f64) as u64)?;
        if !located.ranges && film.timeline.base_bytes() > 0 {
            return Err(PartError::new(format!(
                "{}: the server knows no ranges and the content begins with bytes that no player can use; \
                 serve it from a server that knows ranges",
                located.url
            )));
        }
        let facts = json!({
            "content_url": located.url.to_string(),
            "server_address": located.address.to_string(),
            "content_s": film.timeline.lap_ns() as f64 / 1e9,
            "content_bytes": located.total_bytes,
            "content_bit_per_s": film.timeline.mean_bit_per_s(),
            "pid": std::process::id(),
        });
        self.prepared = Some(Prepared { located, film });
        Ok(facts)
    }

    fn start(&mut self, at_monotonic_ns: u64) -> Result<(), PartError> {
        let Prepared { located, film } =
            self.prepared.as_ref().ok_or_else(|| PartError::new("the players were started unprepared"))?;
        if sys::clock::monotonic_ns() > at_monotonic_ns {
            return Err(PartError::new("the moment at which the players were to start has passed"));
        }
        let source = Source {
            url: located.url.clone(),
            address: located.address,
            receive_buffer_bytes: self.settings.receive_buffer.bytes().max(two_turns_bytes(film)),
        };
        let (settings, film) = (self.settings.clone(), Arc::clone(film));
        let group = Group::start(settings, source, film, located.ranges, at_monotonic_ns);
        self.group = Some(group.map_err(PartError::new)?);
        Ok(())
    }

    fn progress(&mut self) -> Progress {
        match &self.group {
            Some(group) if group.is_finished() => Progress::Finished,
            Some(group) => Progress::Running { done: Some(group.done()) },
            None => Progress::Running { done: Some(0.0) },
        }
    }

    fn stop(&mut self) -> Result<Value, PartError> {
        let (Some(group), Some(prepared)) = (self.group.take(), &self.prepared) else {
            return Err(PartError::new("the players were not started, so there is no report"));
        };
        let record = group.finish().map_err(PartError::new)?;
        let report = collect::report(&record, prepared.located.ranges);
        // Of a part of the players the others' reports say more.
        if !self.settings.is_part() {
            report.something_measured()?;
        }
        serde_json::to_value(report).map_err(PartError::new)
    }
}

/// What a stream receives in two turns. A queue in the kernel that holds less would itself be the limit: it is
/// emptied once a turn, and both rich scenes and the filling of the buffer need more than the mean rate.
fn two_turns_bytes(film: &Film) -> u64 {
    let turn_s = (SLOTS * SLOT_NS) as f64 / 1e9;
    (film.timeline.mean_bit_per_s() / 8.0 * 2.0 * turn_s) as u64
}
