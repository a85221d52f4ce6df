//! Films by address: fetched once a process, however many trials play them.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base::part::{HostContext, PartError};
use sys::clock::Deadline;

use super::fetch::{self, FetchError, Located, Until};
use super::film::Film;
use crate::stream::content::{ContentIndex, load_index, scan};

/// An index longer than this is not fetched: it would be one of days of film.
const INDEX_BYTES_MAX: u64 = 64 << 20;
/// Films that are kept. More are never played by one process in turn.
const FILMS_MAX: usize = 16;

type Key = (String, Option<String>, u64);

static SHELF: Mutex<Vec<(Key, Arc<Film>)>> = Mutex::new(Vec::new());

/// How much may be read to make an index where there is none.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Time for the index.
    pub index: Duration,
    /// Time for reading the content.
    pub reading: Duration,
    /// Bytes of the content.
    pub content_bytes_max: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        let (index, reading) = (Duration::from_secs(10), Duration::from_secs(600));
        Self { index, reading, content_bytes_max: 64 << 30 }
    }
}

/// The film at an address: from the shelf, else from the index beside the file `path` where that is on this host,
/// else from the index beside the content at the server (`.kgi` behind its name), else by reading the content once;
/// the host is then told how far that is.
///
/// # Errors
/// [`FetchError`]; an index that is missing, damaged or of another content is none.
pub fn film(
    located: &Located,
    path: Option<&Path>,
    bounds: Bounds,
    host: &HostContext,
) -> Result<Arc<Film>, FetchError> {
    let url = located.url.to_string();
    let key: Key = (url.clone(), located.etag.clone(), located.total_bytes);
    let shelf = || SHELF.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, film)) = shelf().iter().find(|(other, _)| *other == key) {
        return Ok(Arc::clone(film));
    }
    let is_of_it = |index: &ContentIndex| index.total_bytes() == located.total_bytes;
    let index = match path.and_then(|path| load_index(path).ok()).filter(is_of_it) {
        // A server that is never asked cannot spoil what is known already.
        Some(beside) => Some(beside),
        None => fetch_index(located, bounds.index, host)?.filter(is_of_it),
    };
    let made_by_reading = index.is_none();
    let index = match index {
        Some(index) => index,
        None => read_content(located, bounds, host)?,
    };
    let film = Film::new(&index, made_by_reading);
    let film = Arc::new(film.map_err(|source| FetchError::Timeline { url, source })?);
    let mut shelf = shelf();
    if shelf.len() == FILMS_MAX {
        shelf.remove(0);
    }
    shelf.push((key, Arc::clone(&film)));
    Ok(film)
}

/// The index that the server has beside the content; `None` for one that is not there or not good.
fn fetch_index(
    located: &Located,
    within: Duration,
    host: &HostContext,
) -> Result<Option<ContentIndex>, FetchError> {
    let url = located.url.index();
    let until = Until::new(&url, Deadline::after(within), within, host);
    let answer = fetch::request(&url, &[located.address], 0, None, until)?;
    if !matches!(answer.head.status, 200 | 206) || answer.head.body_bytes().is_err() {
        return Ok(None);
    }
    let bytes = answer.body.read_all(INDEX_BYTES_MAX, "make it again with 'kagiri content index'")?;
    Ok(ContentIndex::read(&bytes).ok())
}

/// Read the content once and index it on the way.
fn read_content(located: &Located, bounds: Bounds, host: &HostContext) -> Result<ContentIndex, FetchError> {
    let (url, total) = (located.url.to_string(), located.total_bytes);
    if total > bounds.content_bytes_max {
        let advice = "make an index beside it with 'kagiri content index'";
        return Err(FetchError::TooLarge { url, bytes: total, bytes_max: bounds.content_bytes_max, advice });
    }
    // It comes as fast as the server sends it, however few players there will be.
    host.permit.rate(u64::MAX).map_err(|refusal| {
        let why = "the content has no index, and reading it for one knows no bound";
        let message = format!("{url}: {why}; make one beside it with 'kagiri content index': {refusal}");
        FetchError::Refused(PartError { message, ..refusal })
    })?;
    let until = Until::new(&located.url, Deadline::after(bounds.reading), bounds.reading, host);
    let answer = fetch::request(&located.url, &[located.address], 0, None, until)?;
    let checked = answer.head.body_from(0, total);
    checked.map_err(|source| FetchError::Http { url: url.clone(), source })?;
    let mut body = answer.body;
    let mut tenths = 0;
    let index = scan(&mut body, Some(total), &mut |at| {
        let done = at.bytes_done;
        if done * 10 >= total * tenths {
            let percent = done * 100 / total.max(1);
            host.say(format!("the content has no index: reading it once, {percent} % of {total} bytes"));
            tenths = done * 10 / total.max(1) + 1;
        }
        if host.stop_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    index.map_err(|error| match error {
        crate::stream::content::ContentError::Io { source, .. } => body.why(source),
        source => FetchError::Content { url, source },
    })
}
