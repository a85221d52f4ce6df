//! The pages.

use axum::extract::State;
use axum::response::{Html, IntoResponse, Response};
use http::{HeaderMap, Method, StatusCode, Uri, header};

use crate::app::Shared;
use crate::guard::is_protected;
use crate::pages::Page;

const INDEX: &str = "index.html";
/// Vite puts a hash of the content into the names of these files.
const HASHED: &str = "assets/";
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
