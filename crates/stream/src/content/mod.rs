//! The content that all players of a trial share, cached per process across trials.

pub mod start_offsets;
pub mod timeline;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base::part::{HostContext, PartError};
use mpegts::{ContentError, ContentIndex, load_index, scan};
use sys::clock::Deadline;

use crate::http::connect::FetchDeadline;
use crate::http::fetch::{self, ContentLocation};
use crate::http::fetch_error::FetchError;
use timeline::{Frame, Gop, Timeline, TimelineError};

/// Largest index that is fetched; it would cover days of content.
const INDEX_BYTES_MAX: u64 = 64 << 20;
/// Cached contents; the oldest is dropped first.
const CACHED_MAX: usize = 16;

/// URL, `ETag` and length.
type CacheKey = (String, Option<String>, u64);

static CACHE: Mutex<Vec<(CacheKey, Arc<Content>)>> = Mutex::new(Vec::new());

/// Why content cannot be played. Every message names the URL.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("{url}: {source}")]
    Content { url: String, source: ContentError },
    #[error("{url}: {source}")]
    Timeline { url: String, source: TimelineError },
}

impl From<LoadError> for PartError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Fetch(error) => error.into(),
            other => Self::new(other),
        }
    }
}

/// A content as players need it.
#[derive(Debug, PartialEq)]
pub struct Content {
    pub timeline: Timeline,
    pub video_pid: u16,
    /// There was no index: the content was read once to make one.
    pub made_by_reading: bool,
}

/// How much may be read to make an index where there is none.
#[derive(Debug, Clone, Copy)]
pub struct IndexLimits {
    pub index: Duration,
    pub reading: Duration,
    pub content_bytes_max: u64,
}

impl Default for IndexLimits {
    fn default() -> Self {
        let (index, reading) = (Duration::from_secs(10), Duration::from_secs(600));
        Self { index, reading, content_bytes_max: 64 << 30 }
    }
}

impl Content {
    /// Errors: [`TimelineError`] for an index that cannot be played.
    pub fn new(index: &ContentIndex, made_by_reading: bool) -> Result<Self, TimelineError> {
        let frames = (0..index.frame_count()).filter_map(|frame| {
            Some(Frame { end_bytes: index.end_offset(frame)?, due_ns: index.dts_ns(frame)? })
        });
        let gops = index.gops().map(|gop| Gop {
            start_bytes: gop.start_offset,
            first_frame: gop.first_frame,
            crc32c: Some(gop.crc32c),
        });
        let timeline = Timeline::new(frames.collect(), gops.collect(), index.total_bytes())?;
        Ok(Self { timeline, video_pid: index.video_pid(), made_by_reading })
    }

    /// The content at `location`: from the cache, else with the index beside the local file `path`, else with
    /// the server's index (`.kgi` behind the content's name), else by reading the content once, with
    /// progress to `host`. An index that is missing, damaged or of another length is ignored.
    pub fn load(
        location: &ContentLocation,
        path: Option<&Path>,
        limits: IndexLimits,
        host: &HostContext,
    ) -> Result<Arc<Self>, LoadError> {
        let url = location.url.to_string();
        let key: CacheKey = (url.clone(), location.etag.clone(), location.total_bytes);
        let cache = || CACHE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, content)) = cache().iter().find(|(other, _)| *other == key) {
            return Ok(Arc::clone(content));
        }
        let matches_length = |index: &ContentIndex| index.total_bytes() == location.total_bytes;
        let index = match path.and_then(|path| load_index(path).ok()).filter(matches_length) {
            Some(local) => Some(local),
            None => fetch_index(location, limits.index, host)?.filter(matches_length),
        };
        let made_by_reading = index.is_none();
        let index = match index {
            Some(index) => index,
            None => index_by_reading(location, limits, host)?,
        };
        let content = Self::new(&index, made_by_reading);
        let content = Arc::new(content.map_err(|source| LoadError::Timeline { url, source })?);
        let mut cache = cache();
        if cache.len() == CACHED_MAX {
            cache.remove(0);
        }
        cache.push((key, Arc::clone(&content)));
        Ok(content)
    }
}

fn fetch_index(
    location: &ContentLocation,
    within: Duration,
    host: &HostContext,
) -> Result<Option<ContentIndex>, FetchError> {
    let url = location.url.index();
    let deadline = FetchDeadline::new(&url, Deadline::after(within), within, host);
    let response = fetch::request(&url, &[location.address], 0, None, deadline)?;
    if !matches!(response.head.status, 200 | 206) || response.head.body_bytes().is_err() {
        return Ok(None);
    }
    let bytes = response.body.read_all(INDEX_BYTES_MAX, "make it again with 'kagiri content index'")?;
    Ok(ContentIndex::read(&bytes).ok())
}

fn index_by_reading(
    location: &ContentLocation,
    limits: IndexLimits,
    host: &HostContext,
) -> Result<ContentIndex, LoadError> {
    let (url, total) = (location.url.to_string(), location.total_bytes);
    if total > limits.content_bytes_max {
        let advice = "make an index beside it with 'kagiri content index'";
        let bytes_max = limits.content_bytes_max;
        return Err(FetchError::TooLarge { url, bytes: total, bytes_max, advice }.into());
    }
    // The server sends at its full rate, however few players there will be.
    host.permit.rate(u64::MAX).map_err(|refusal| {
        let why = "the content has no index, and reading it to make one has no rate limit";
        let message = format!("{url}: {why}; make one beside it with 'kagiri content index': {refusal}");
        FetchError::Refused(PartError { message, ..refusal })
    })?;
    let deadline = FetchDeadline::new(&location.url, Deadline::after(limits.reading), limits.reading, host);
    let response = fetch::request(&location.url, &[location.address], 0, None, deadline)?;
    let checked = response.head.body_from(0, total);
    checked.map_err(|source| FetchError::Http { url: url.clone(), source })?;
    let mut body = response.body;
    let mut tenths = 0;
    let index = scan(&mut body, Some(total), &mut |progress| {
        let done = progress.bytes_done;
        if done * 10 >= total * tenths {
            let percent = done * 100 / total.max(1);
            host.say(format!("the content has no index: reading it once, {percent} % of {total} bytes"));
            tenths = done * 10 / total.max(1) + 1;
        }
        if host.stop_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    index.map_err(|error| match error {
        ContentError::Io { source, .. } => body.fetch_error(source).into(),
        source => LoadError::Content { url, source },
    })
}
