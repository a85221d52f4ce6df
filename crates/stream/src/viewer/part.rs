//! The group of players as a part of a run: kind `stream.viewers`.

use std::sync::Arc;
use std::time::Duration;

use base::part::{HostContext, PartError, Progress};
use serde::{Deserialize, Serialize};
use workload::part::{Part, Peers};

use super::connection::ContentSource;
use super::group::Group;
use super::part_settings::ViewerSettings;
use super::report_builder;
use super::shared::{SLOT_NS, SLOTS};
use crate::content::{Content, IndexLimits};
use crate::http::fetch::{self, ContentLocation};
use crate::report::ViewerReport;

/// A server that has not answered by then is not there.
const LOCATE_WITHIN: Duration = Duration::from_secs(5);
/// Open files besides the players' sockets.
const FILES_BESIDES: u64 = 64;

#[derive(Debug)]
pub struct Viewers {
    settings: ViewerSettings,
    limits: IndexLimits,
    prepared: Option<Prepared>,
    group: Option<Group>,
}

#[derive(Debug)]
struct Prepared {
    located: ContentLocation,
    content: Arc<Content>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ViewersEndpoint {
    /// The content's URL, after redirections.
    pub content_url: String,
    pub server_address: String,
    pub content_s: f64,
    pub content_bytes: u64,
    pub content_bit_per_s: f64,
    pub pid: u32,
}

impl Viewers {
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
    const KIND: &'static str = "stream.viewers";
    type Task = ViewerSettings;
    type Endpoint = ViewersEndpoint;
    type Report = ViewerReport;

    fn report_items(settings: &ViewerSettings) -> u64 {
        settings.streams
    }

    fn new(settings: ViewerSettings) -> Result<Self, PartError> {
        settings.check()?;
        Ok(Self { settings, limits: IndexLimits::default(), prepared: None, group: None })
    }

    fn prepare(&mut self, _: &Peers<'_>, host: &HostContext) -> Result<ViewersEndpoint, PartError> {
        self.raise_file_limit()?;
        let located = fetch::locate(&self.settings.url, LOCATE_WITHIN, host)?;
        let path = self.settings.content_path.as_deref();
        path.map_or(Ok(()), |path| host.permit.directory(path))?;
        let content = Content::load(&located, path, self.limits, host)?;
        host.permit.rate((content.timeline.mean_bit_per_s() * self.settings.streams as f64) as u64)?;
        if !located.ranges && content.timeline.base_bytes() > 0 {
            return Err(PartError::new(format!(
                "{}: the server knows no ranges and the content begins with bytes that no player can use; \
                 serve it from a server that knows ranges",
                located.url
            )));
        }
        let endpoint = ViewersEndpoint {
            content_url: located.url.to_string(),
            server_address: located.address.to_string(),
            content_s: content.timeline.lap_ns() as f64 / 1e9,
            content_bytes: located.total_bytes,
            content_bit_per_s: content.timeline.mean_bit_per_s(),
            pid: std::process::id(),
        };
        self.prepared = Some(Prepared { located, content });
        Ok(endpoint)
    }

    fn start(&mut self, at_monotonic_ns: u64) -> Result<(), PartError> {
        let Prepared { located, content } =
            self.prepared.as_ref().ok_or_else(|| PartError::new("the players were started unprepared"))?;
        if sys::clock::monotonic_ns() > at_monotonic_ns {
            return Err(PartError::new("the moment at which the players were to start has passed"));
        }
        let source = ContentSource {
            url: located.url.clone(),
            address: located.address,
            receive_buffer_bytes: self.settings.receive_buffer.bytes().max(two_turns_bytes(content)),
        };
        let (settings, content) = (self.settings.clone(), Arc::clone(content));
        let group = Group::start(settings, source, content, located.ranges, at_monotonic_ns);
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

    fn stop(&mut self) -> Result<ViewerReport, PartError> {
        let (Some(group), Some(prepared)) = (self.group.take(), &self.prepared) else {
            return Err(PartError::new("the players were not started, so there is no report"));
        };
        let record = group.finish().map_err(PartError::new)?;
        let report = report_builder::build(&record, prepared.located.ranges);
        // Of a part of the players the others' reports say more.
        if !self.settings.is_part() {
            report.check_measured()?;
        }
        Ok(report)
    }
}

/// What a stream receives in two turns. A queue in the kernel that holds less would itself be the limit: it
/// is emptied once a turn, and both rich scenes and the filling of the buffer need more than the mean rate.
fn two_turns_bytes(content: &Content) -> u64 {
    let turn_s = (SLOTS * SLOT_NS) as f64 / 1e9;
    (content.timeline.mean_bit_per_s() / 8.0 * 2.0 * turn_s) as u64
}
