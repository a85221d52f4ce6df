//! The pages: those that this build has, or those of a folder.

use std::path::{Component, Path, PathBuf};

use axum::extract::State;
use axum::response::{Html, IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri, header};

use crate::app::Shared;
use crate::guard::is_protected;

include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// A file of `ui/dist`.
pub struct Embedded {
    name: &'static str,
    plain: &'static [u8],
    gzip: &'static [u8],
    etag: &'static str,
}

const INDEX: &str = "index.html";
/// Vite puts a hash of the content into the names of these files.
const HASHED: &str = "assets/";
const PAGE_BYTES_MAX: u64 = 16 << 20;

const MISSING: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>kagiri</title>\
    <h1>The console's pages are not built</h1><p>This kagiri was built without them; the API below \
    <a href=\"/api/v1/openapi.json\">/api/v1</a> works. To build the pages, install Node.js with npm, run \
    <code>make console</code> in kagiri's sources, and start the new <code>kagiri serve</code>.</p></html>";

const KINDS: [(&str, &str); 10] = [
    ("html", "text/html; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("json", "application/json"),
    ("svg", "image/svg+xml"),
    ("png", "image/png"),
    ("ico", "image/x-icon"),
    ("woff2", "font/woff2"),
    ("webmanifest", "application/manifest+json"),
    ("txt", "text/plain; charset=utf-8"),
];

pub struct Pages {
    folder: Option<PathBuf>,
}

/// A page to send.
struct Page {
    name: String,
    content: Bytes,
    is_gzip: bool,
    etag: Option<&'static str>,
}

impl Pages {
    pub fn new(folder: Option<PathBuf>) -> Self {
        Self { folder }
    }

    fn find(&self, name: &str, takes_gzip: bool) -> Option<Page> {
        if let Some(folder) = &self.folder {
            let relative = Path::new(name);
            if !relative.components().all(|part| matches!(part, Component::Normal(_))) {
                return None;
            }
            let text = read(&folder.join(relative))?;
            return Some(Page { name: name.to_owned(), content: text.into(), is_gzip: false, etag: None });
        }
        let found = EMBEDDED.iter().find(|page| page.name == name)?;
        let content = if takes_gzip { found.gzip } else { found.plain };
        Some(Page {
            name: name.to_owned(),
            content: Bytes::from_static(content),
            is_gzip: takes_gzip,
            etag: Some(found.etag),
        })
    }
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let found = std::fs::metadata(path).ok()?;
    (found.is_file() && found.len() <= PAGE_BYTES_MAX).then(|| std::fs::read(path).ok())?
}

/// Every path that is none of the API: a file of the pages, or a page that the script shows.
pub async fn page(State(app): State<Shared>, method: Method, uri: Uri, headers: HeaderMap) -> Response {
    if is_protected(uri.path()) || !matches!(method, Method::GET | Method::HEAD) {
        return StatusCode::NOT_FOUND.into_response();
    }
    let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    let takes_gzip = accepted.is_some_and(|text| text.split(',').any(|one| one.trim().starts_with("gzip")));
    let name = uri.path().trim_start_matches('/');
    let file = app.pages.find(name, takes_gzip).filter(|_| !name.is_empty());
    match file.or_else(|| app.pages.find(INDEX, takes_gzip).filter(|_| !name.starts_with(HASHED))) {
        Some(page) => sent(page, &headers),
        None if name.starts_with(HASHED) => (StatusCode::NOT_FOUND, "there is no such file").into_response(),
        None => Html(MISSING).into_response(),
    }
}

fn sent(page: Page, asked: &HeaderMap) -> Response {
    let ending = page.name.rsplit('.').next().unwrap_or_default();
    let kind =
        KINDS.iter().find(|(known, _)| *known == ending).map_or("application/octet-stream", |(_, kind)| kind);
    let cache = match page.name.starts_with(HASHED) && page.etag.is_some() {
        true => "private, max-age=31536000, immutable",
        false => "no-cache",
    };
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, http::HeaderValue::from_static(cache));
    headers.insert(header::VARY, http::HeaderValue::from_static("accept-encoding"));
    if let Some(etag) = page.etag {
        headers.insert(header::ETAG, http::HeaderValue::from_static(etag));
        if asked.get(header::IF_NONE_MATCH).is_some_and(|known| known == etag) {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
    }
    if page.is_gzip {
        headers.insert(header::CONTENT_ENCODING, http::HeaderValue::from_static("gzip"));
    }
    (headers, page.content).into_response()
}
