//! The client's side of HTTP/1.1 (RFC 9110, RFC 9112): ranged GET requests, incremental parsing of response
//! heads.

pub mod connect;
pub mod fetch;
pub mod fetch_error;
pub mod url;

use url::Url;

pub const HEAD_BYTES_MAX: usize = 32 * 1024;
const HEADERS_MAX: usize = 128;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    #[error(
        "the server does not speak HTTP: its response begins with \"{begins}\"; check the address and port"
    )]
    NotHttp { begins: String },
    #[error(
        "the server's response has a head of more than {HEAD_BYTES_MAX} bytes; check the address and port"
    )]
    HeadTooLong,
    #[error("the server's header '{name}: {value}' is malformed; check the server")]
    BadHeader { name: &'static str, value: String },
    #[error("the server answered {status} {reason}; {advice}")]
    Status { status: u16, reason: String, advice: &'static str },
    #[error(
        "the server sends the content without its length ({how}); \
         serve it as a file, so that a truncated response is detected"
    )]
    NoLength { how: &'static str },
    /// `total` is the length of the content by its index.
    #[error("requested bytes from {first} of {total}, the server sent {sent}; has the content changed?")]
    WrongRange { first: u64, total: u64, sent: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    pub status: u16,
    pub reason: String,
    pub length: Option<u64>,
    /// `Content-Range`: first and last byte, and the whole length unless it is `*`.
    pub range: Option<(u64, u64, Option<u64>)>,
    pub location: Option<String>,
    pub etag: Option<String>,
    pub chunked: bool,
    pub keep_alive: bool,
}

/// The request for bytes `from..=last`, or to the end.
pub fn get(url: &Url, from: u64, last: Option<u64>) -> Vec<u8> {
    let last = last.map_or(String::new(), |last| last.to_string());
    format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: kagiri/{}\r\nAccept: */*\r\nAccept-Encoding: identity\r\n\
         Range: bytes={from}-{last}\r\n\r\n",
        url.target(),
        url.authority(),
        env!("CARGO_PKG_VERSION"),
    )
    .into_bytes()
}

/// Parses a head from pieces of any size.
#[derive(Debug, Default)]
pub struct HeadReader {
    buffer: Vec<u8>,
}

impl HeadReader {
    /// Take the next bytes. Once the head is complete, return it and how many of *these* bytes belong to it;
    /// the rest is body. Interim responses (1xx) are skipped.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Option<(Head, usize)>, HttpError> {
        let before = self.buffer.len();
        // The end of the head may lie within these bytes, so the bound is checked after parsing.
        self.buffer.extend_from_slice(&bytes[..bytes.len().min(HEAD_BYTES_MAX + 1)]);
        let mut skipped = 0;
        loop {
            let Some((head, head_bytes)) = parse(&self.buffer[skipped..])? else {
                if self.buffer.len() > HEAD_BYTES_MAX {
                    return Err(HttpError::HeadTooLong);
                }
                return Ok(None);
            };
            skipped += head_bytes;
            if skipped > HEAD_BYTES_MAX {
                return Err(HttpError::HeadTooLong);
            }
            if head.status / 100 != 1 {
                self.buffer.clear();
                return Ok(Some((head, skipped.saturating_sub(before))));
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }
}

fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, HttpError> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(bytes) {
        Ok(httparse::Status::Complete(head_bytes)) => Ok(Some((head_of(&response, bytes)?, head_bytes))),
        Ok(httparse::Status::Partial) => Ok(None),
        Err(httparse::Error::TooManyHeaders) => Err(HttpError::HeadTooLong),
        Err(_) => Err(HttpError::NotHttp { begins: printable(bytes) }),
    }
}

fn printable(bytes: &[u8]) -> String {
    bytes.iter().take(24).map(|&b| if (b' '..0x7f).contains(&b) { b as char } else { '.' }).collect()
}

fn head_of(response: &httparse::Response<'_, '_>, bytes: &[u8]) -> Result<Head, HttpError> {
    let not_http = || HttpError::NotHttp { begins: printable(bytes) };
    let mut head = Head {
        status: response.code.ok_or_else(not_http)?,
        reason: response.reason.unwrap_or("").chars().take(60).collect(),
        length: None,
        range: None,
        location: None,
        etag: None,
        chunked: false,
        keep_alive: response.version == Some(1),
    };
    for header in response.headers.iter() {
        let value = String::from_utf8_lossy(header.value).trim().to_owned();
        let bad = |name, value: &str| HttpError::BadHeader { name, value: value.chars().take(60).collect() };
        match header.name.to_ascii_lowercase().as_str() {
            "content-length" => {
                let digits = value.bytes().all(|b| b.is_ascii_digit());
                let length = value.parse().ok().filter(|_| digits);
                let length: u64 = length.ok_or_else(|| bad("Content-Length", &value))?;
                if head.length.is_some_and(|other| other != length) {
                    return Err(bad("Content-Length", &value));
                }
                head.length = Some(length);
            }
            "content-range" if head.status == 206 => {
                head.range = Some(content_range(&value).ok_or_else(|| bad("Content-Range", &value))?);
            }
            "location" => head.location = Some(value),
            "etag" => head.etag = Some(value),
            "transfer-encoding" => head.chunked = !value.eq_ignore_ascii_case("identity"),
            "connection" => {
                for option in value.split(',').map(str::trim) {
                    if option.eq_ignore_ascii_case("close") {
                        head.keep_alive = false;
                    } else if option.eq_ignore_ascii_case("keep-alive") {
                        head.keep_alive = true;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(head)
}

/// `bytes 0-99/1000` or `bytes 0-99/*` (RFC 9110, section 14.4).
fn content_range(value: &str) -> Option<(u64, u64, Option<u64>)> {
    let (range, total) = value.strip_prefix("bytes")?.trim_start().split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    let total = match total.trim() {
        "*" => None,
        number => Some(number.parse().ok()?),
    };
    (first <= last && total.is_none_or(|total| last < total)).then_some((first, last, total))
}

impl Head {
    pub fn redirect(&self) -> Option<&str> {
        matches!(self.status, 301 | 302 | 303 | 307 | 308).then_some(self.location.as_deref()).flatten()
    }

    /// The length of the body.
    /// Errors: [`HttpError::Status`] unless the status is 200 or 206; [`HttpError::NoLength`].
    pub fn body_bytes(&self) -> Result<u64, HttpError> {
        let advice = match self.status {
            200 | 206 => "",
            301..=308 => "give the address that it redirects to",
            401 | 403 | 407 => "make the file readable without a login, or choose another",
            404 | 410 => "check the path; 'kagiri content make' makes content to serve",
            416 => "the file is shorter than the request: is it empty, or has it changed?",
            429 => "the server limits requests: lift the limit for this host",
            500.. => "check the server's error log",
            _ => "check the address",
        };
        if !matches!(self.status, 200 | 206) {
            return Err(HttpError::Status { status: self.status, reason: self.reason.clone(), advice });
        }
        if self.chunked {
            return Err(HttpError::NoLength { how: "chunked" });
        }
        self.length.ok_or(HttpError::NoLength { how: "until the connection closes" })
    }

    /// Check the response to a request for bytes `first` to the end of `total`, and return the length of the
    /// body.
    ///
    /// A 200 (no ranges supported) is accepted for a request from byte 0 only: skipping the bytes before
    /// `first` would load the server with bytes that no viewer plays.
    /// Errors: As [`Head::body_bytes`], and [`HttpError::WrongRange`].
    pub fn body_from(&self, first: u64, total: u64) -> Result<u64, HttpError> {
        let bytes = self.body_bytes()?;
        let wrong = |sent: String| HttpError::WrongRange { first, total, sent };
        match (self.status, self.range) {
            (206, None) => Err(wrong("a part without Content-Range".into())),
            (206, Some((from, last, whole))) => {
                let is_requested = from == first
                    && last.checked_add(1) == Some(total)
                    && whole.is_none_or(|whole| whole == total);
                let whole = whole.map_or("*".to_owned(), |whole| whole.to_string());
                if !is_requested {
                    return Err(wrong(format!("bytes {from} to {last} of {whole}")));
                }
                if bytes != total - first {
                    return Err(wrong(format!("bytes {from} to {last} in a body of {bytes}")));
                }
                Ok(bytes)
            }
            _ if first == 0 && bytes == total => Ok(bytes),
            _ => Err(wrong(format!("the whole of {bytes} bytes"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Head {
        HeadReader::default().feed(text.as_bytes()).unwrap().unwrap().0
    }

    #[test]
    fn range_that_ends_at_u64_max_is_rejected() {
        let text = "HTTP/1.1 206 Partial\r\nContent-Length: 10\r\n\
                    Content-Range: bytes 0-18446744073709551615/*\r\n\r\n";
        let refused = head(text).body_from(0, 10).unwrap_err();
        assert!(matches!(refused, HttpError::WrongRange { first: 0, total: 10, .. }), "{refused}");
    }
}
