//! HTTP of the library `object_store`, guarded against what a server may do: no redirect is followed, answers
//! are bounded, and keys that kagiri cannot have made do not spoil a listing.

use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService,
};
use object_store::path::Path;
use object_store::{ClientConfigKey, ClientOptions};
use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;
use reqwest::header::LOCATION;
use reqwest::{Certificate, Method};

/// Most bytes of an answer other than an object: 1000 keys of 1024 bytes are a page of 2 MiB at most.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// As much of an error's text is read.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// Time to connect.
const CONNECT: Duration = Duration::from_secs(5);
const TARGET_CHARS_MAX: usize = 200;
/// Takes the place of a foreign key that the library refuses. It has no slash, so it is no key of kagiri's.
const FOREIGN: &[u8] = b"foreign";

/// An answer that is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("{status} redirect to {target}, which is not followed")]
    Redirect { status: u16, target: String },
    #[error("the answer is longer than {} MiB", ANSWER_BYTES_MAX >> 20)]
    TooLong,
}

/// Makes the clients of the library.
#[derive(Debug)]
pub(super) struct Guarded {
    /// Longest time of one request.
    pub within: Duration,
    /// Connections that are kept open.
    pub connections: usize,
    /// Authorities beside those of the system.
    pub authorities: Vec<Certificate>,
}

impl HttpConnector for Guarded {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let allows_http = options.get_config_value(&ClientConfigKey::AllowHttp);
        let builder = reqwest::Client::builder()
            .user_agent(concat!("kagiri/", env!("CARGO_PKG_VERSION")))
            .tls_certs_merge(self.authorities.iter().cloned())
            // A redirect would carry the signature and the session token to any host.
            .redirect(reqwest::redirect::Policy::none())
            .https_only(allows_http.as_deref() != Some("true"))
            .http1_only()
            .timeout(self.within)
            .connect_timeout(self.within.min(CONNECT))
            .pool_max_idle_per_host(self.connections);
        let client = builder.build();
        let client = client
            .map_err(|error| object_store::Error::Generic { store: "HTTP", source: Box::new(error) })?;
        Ok(HttpClient::new(Guard(client)))
    }
}

#[derive(Debug)]
struct Guard(reqwest::Client);

impl Guard {
    async fn ask(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let is_listing = request.uri().query().is_some_and(|query| query.contains("list-type="));
        let is_get = *request.method() == Method::GET;
        let answer = self.0.call(request).await?;
        let status = answer.status();
        if status.is_redirection() && status.as_u16() != 304 {
            let target = answer.headers().get(LOCATION).and_then(|target| target.to_str().ok());
            let target = target.unwrap_or("an unknown place").chars().take(TARGET_CHARS_MAX).collect();
            let refused = Refused::Redirect { status: status.as_u16(), target };
            return Err(HttpError::new(HttpErrorKind::Unknown, refused));
        }
        if status.is_success() && is_get && !is_listing {
            // An object is not kept, and its length is compared with what was written.
            return Ok(answer);
        }
        let (parts, body) = answer.into_parts();
        let body = if status.is_success() {
            let body = read(body, ANSWER_BYTES_MAX).await?;
            let body = body.ok_or_else(|| HttpError::new(HttpErrorKind::Decode, Refused::TooLong))?;
            if is_listing { without_odd_keys(body) } else { body }
        } else {
            read(body, ERROR_BYTES_MAX).await?.unwrap_or_default()
        };
        Ok(HttpResponse::from_parts(parts, body.into()))
    }
}

#[async_trait]
impl HttpService for Guard {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.ask(request).await
    }
}

/// A body whose length is bounded; nothing is kept of a longer one.
async fn read(body: HttpResponseBody, most: usize) -> Result<Option<Bytes>, HttpError> {
    let mut chunks = body.bytes_stream();
    let mut all = BytesMut::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        if all.len() + chunk.len() > most {
            return Ok(None);
        }
        all.extend_from_slice(&chunk);
    }
    Ok(Some(all.freeze()))
}

/// A page of a listing, in which a word stands for each key that the library would refuse the whole page
/// for. A page that cannot be read is left as it is: the library says what is wrong.
fn without_odd_keys(page: Bytes) -> Bytes {
    let Some(odd) = odd_keys(&page).filter(|odd| !odd.is_empty()) else { return page };
    let mut kept = BytesMut::with_capacity(page.len());
    let mut from = 0;
    for (begin, end) in odd {
        kept.extend_from_slice(&page[from..begin]);
        kept.extend_from_slice(FOREIGN);
        from = end;
    }
    kept.extend_from_slice(&page[from..]);
    kept.freeze()
}

/// Where those keys begin and end.
fn odd_keys(page: &[u8]) -> Option<Vec<(usize, usize)>> {
    let mut reader = Reader::from_reader(page);
    let mut odd = Vec::new();
    // Where the key under way begins, and its text so far.
    let mut key: Option<(usize, String)> = None;
    loop {
        let before = usize::try_from(reader.buffer_position()).ok()?;
        match reader.read_event().ok()? {
            Event::Eof => return Some(odd),
            Event::Start(tag) if tag.name().as_ref() == b"Key" => {
                key = Some((usize::try_from(reader.buffer_position()).ok()?, String::new()));
            }
            Event::End(tag) if tag.name().as_ref() == b"Key" => {
                let (begin, text) = key.take()?;
                if Path::parse(&text).is_err() {
                    odd.push((begin, before));
                }
            }
            Event::Text(text) => {
                if let Some((_, key)) = &mut key {
                    key.push_str(&text.decode().ok()?);
                }
            }
            Event::CData(text) => {
                if let Some((_, key)) = &mut key {
                    key.push_str(&text.decode().ok()?);
                }
            }
            Event::GeneralRef(reference) => {
                if let Some((_, key)) = &mut key {
                    match reference.resolve_char_ref().ok()? {
                        Some(char) => key.push(char),
                        None => key.push_str(resolve_predefined_entity(&reference.decode().ok()?)?),
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_that_the_library_refuses_are_replaced() {
        let page = |keys: &[&str]| {
            let keys = keys.iter().map(|key| format!("<Contents><Key>{key}</Key></Contents>"));
            Bytes::from(format!("<R><Name>a/../b</Name>{}</R>", keys.collect::<String>()))
        };
        let mixed =
            page(&["a/1", "a/../2", "a/&#27;[31m", "a/\u{1b}", "a/&amp;b", "a//3", "<![CDATA[a/./4]]>"]);
        let clean = page(&["a/1", "foreign", "foreign", "foreign", "a/&amp;b", "foreign", "foreign"]);
        assert_eq!(without_odd_keys(mixed), clean);
        for whole in [page(&["a/1", "a/2"]), Bytes::from_static(b"<R><Key>a/../b</R>"), Bytes::new()] {
            assert_eq!(without_odd_keys(whole.clone()), whole);
        }
    }
}
