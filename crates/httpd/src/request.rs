//! Request heads: bytes of strangers in, a request or a refusal out.

use super::target::{self, BadTarget, Target};

/// Longest request line in bytes a refusal still quotes in the log.
const LINE_LOG_BYTES_MAX: usize = 2048;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    Put,
    Delete,
    /// Say what is allowed.
    Options,
}

/// How a request's content is framed (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No content announced.
    None,
    /// `Content-Length` bytes.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

/// The fields of conditional and range requests, as sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    pub range: Option<Vec<u8>>,
    pub if_range: Option<Vec<u8>>,
    pub if_match: Option<Vec<u8>>,
    pub if_none_match: Option<Vec<u8>>,
    pub if_modified_since: Option<Vec<u8>>,
    pub if_unmodified_since: Option<Vec<u8>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggedFields {
    /// The request line, or as much of it as came.
    pub line: Vec<u8>,
    pub referer: Option<Vec<u8>>,
    /// `User-Agent`.
    pub agent: Option<Vec<u8>>,
}

/// A request head that makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub method: Method,
    pub target: Target,
    /// Whether the connection stays open afterwards, as far as the client is concerned.
    pub keep_alive: bool,
    pub framing: Framing,
    /// Whether the client waits for `100 Continue`.
    pub expects_continue: bool,
    /// Whether `Accept` names JSON.
    pub wants_json: bool,
    /// Whether `Host` is a name with a dot, which others can point at this host; not one below `localhost`.
    pub host_is_domain: bool,
    pub conditions: Conditions,
    pub logged: LoggedFields,
}

/// A request that is answered with an error and the end of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    /// Why, for the answer and the log.
    pub reason: &'static str,
    pub logged: LoggedFields,
}

/// What the bytes received so far are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// Not a whole head yet.
    Incomplete,
    /// A head, and how many bytes it took.
    Complete(Box<Request>, usize),
    /// Not acceptable.
    Refused(Box<Refusal>),
}

/// Where the head ends in `buffer`, if it does: after the first empty line. `from` is how much was searched
/// before, so that a request that comes in drips is not read again and again.
pub fn head_end(buffer: &[u8], from: usize) -> Option<usize> {
    // An empty line is LF LF or LF CR LF; two bytes back to see one that straddles.
    let mut at = from.saturating_sub(2);
    while let Some(lf) = buffer.get(at..)?.iter().position(|&b| b == b'\n') {
        let rest = &buffer[at + lf + 1..];
        if rest.starts_with(b"\n") {
            return Some(at + lf + 2);
        }
        if rest.starts_with(b"\r\n") {
            return Some(at + lf + 3);
        }
        at += lf + 1;
    }
    None
}

/// Reads a request head from the start of `buffer` (which must not start with an empty line; see
/// [`leading_empty`]). Never panics and never looks beyond `buffer`.
pub fn parse(buffer: &[u8], headers_max: usize) -> Parsed {
    let mut headers = vec![httparse::EMPTY_HEADER; headers_max];
    let mut head = httparse::Request::new(&mut headers);
    let len = match head.parse(buffer) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return Parsed::Incomplete,
        Err(e) => {
            let (status, reason) = match e {
                httparse::Error::TooManyHeaders => (431, "too many header fields"),
                httparse::Error::Version => version_refusal(buffer),
                httparse::Error::HeaderName | httparse::Error::HeaderValue => (400, "malformed header field"),
                _ => (400, "malformed request"),
            };
            return refuse(status, reason, buffer);
        }
    };
    match interpret(&head, buffer) {
        Ok(request) => Parsed::Complete(Box::new(request), len),
        Err((status, reason)) => refuse(status, reason, buffer),
    }
}

pub fn refuse(status: u16, reason: &'static str, buffer: &[u8]) -> Parsed {
    let logged = LoggedFields { line: request_line(buffer), ..LoggedFields::default() };
    Parsed::Refused(Box::new(Refusal { status, reason, logged }))
}

/// The first line, shortened for the log.
pub fn request_line(buffer: &[u8]) -> Vec<u8> {
    let end = buffer.iter().position(|&b| b == b'\n').unwrap_or(buffer.len()).min(LINE_LOG_BYTES_MAX);
    buffer[..end].trim_ascii_end().to_vec()
}

/// How many bytes of empty lines lie before the request (RFC 9112, 2.2: skip at least one).
pub fn leading_empty(buffer: &[u8]) -> usize {
    buffer.iter().take_while(|&&b| b == b'\r' || b == b'\n').count()
}

/// HTTP/2 and later, and 0.9, are versions this server does not speak; anything else is no HTTP at all.
fn version_refusal(buffer: &[u8]) -> (u16, &'static str) {
    let line = request_line(buffer);
    let last = line.rsplit(|&b| b == b' ').next().unwrap_or_default();
    if last.starts_with(b"HTTP/") {
        (505, "only HTTP/1.0 and HTTP/1.1 are spoken")
    } else {
        (400, "malformed version")
    }
}

type Refused = (u16, &'static str);

fn interpret(head: &httparse::Request<'_, '_>, buffer: &[u8]) -> Result<Request, Refused> {
    let http_1_1 = head.version == Some(1);
    let fields = Fields::collect(head.headers)?;
    if http_1_1 && fields.hosts != 1 {
        return Err((400, "a request needs exactly one Host"));
    }
    let framing = fields.framing(http_1_1)?;
    let method = match head.method.unwrap_or_default() {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "PUT" => Method::Put,
        "DELETE" => Method::Delete,
        "OPTIONS" => Method::Options,
        "POST" | "PATCH" | "TRACE" | "CONNECT" => return Err((405, "method not allowed")),
        _ => return Err((501, "unknown method")),
    };
    let target = target::parse(head.path.unwrap_or_default()).map_err(|bad| match bad {
        BadTarget::Malformed(reason) => (400, reason),
        BadTarget::TooLong => (414, "the path is too long"),
    })?;
    Ok(Request {
        method,
        target,
        keep_alive: if http_1_1 { !fields.close } else { fields.keep_alive && !fields.close },
        framing,
        expects_continue: http_1_1 && fields.expects_continue,
        wants_json: fields.wants_json,
        host_is_domain: fields.host_is_domain,
        conditions: fields.conditions,
        logged: LoggedFields { line: request_line(buffer), referer: fields.referer, agent: fields.agent },
    })
}

/// The fields this server looks at.
#[derive(Default)]
struct Fields {
    hosts: usize,
    host_is_domain: bool,
    length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
    expects_continue: bool,
    wants_json: bool,
    conditions: Conditions,
    referer: Option<Vec<u8>>,
    agent: Option<Vec<u8>>,
}

impl Fields {
    fn collect(headers: &[httparse::Header<'_>]) -> Result<Self, Refused> {
        let mut fields = Self::default();
        for header in headers {
            let value = header.value.trim_ascii();
            let own = || Some(value.to_vec());
            match header.name.to_ascii_lowercase().as_str() {
                "host" => {
                    fields.hosts += 1;
                    fields.host_is_domain |= is_domain(value);
                }
                "content-length" => fields.content_length(value)?,
                "transfer-encoding" => fields.transfer_encoding(value)?,
                "connection" => {
                    fields.close |= lists(value, b"close");
                    fields.keep_alive |= lists(value, b"keep-alive");
                }
                "expect" if value.eq_ignore_ascii_case(b"100-continue") => fields.expects_continue = true,
                "expect" => return Err((417, "unknown expectation")),
                "accept" => fields.wants_json |= lists(value, b"application/json"),
                "range" => fields.conditions.range = own(),
                "if-range" => fields.conditions.if_range = own(),
                "if-match" => fields.conditions.if_match = own(),
                "if-none-match" => fields.conditions.if_none_match = own(),
                "if-modified-since" => fields.conditions.if_modified_since = own(),
                "if-unmodified-since" => fields.conditions.if_unmodified_since = own(),
                "referer" => fields.referer = own(),
                "user-agent" => fields.agent = own(),
                _ => {}
            }
        }
        Ok(fields)
    }

    /// Digits only, once: anything else is how requests are smuggled past a proxy (RFC 9112, 11.2).
    fn content_length(&mut self, value: &[u8]) -> Result<(), Refused> {
        if self.length.is_some() {
            return Err((400, "more than one Content-Length"));
        }
        if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
            return Err((400, "malformed Content-Length"));
        }
        let text = std::str::from_utf8(value).map_err(|_| (400, "malformed Content-Length"))?;
        self.length = Some(text.parse().map_err(|_| (413, "Content-Length beyond 64 bits"))?);
        Ok(())
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Refused> {
        if self.chunked {
            return Err((400, "more than one Transfer-Encoding"));
        }
        if !value.eq_ignore_ascii_case(b"chunked") {
            return Err((501, "only the chunked transfer coding is spoken"));
        }
        self.chunked = true;
        Ok(())
    }

    fn framing(&self, http_1_1: bool) -> Result<Framing, Refused> {
        match (self.chunked, self.length) {
            (true, Some(_)) => Err((400, "both Content-Length and Transfer-Encoding")),
            (true, None) if !http_1_1 => Err((400, "Transfer-Encoding in HTTP/1.0")),
            (true, None) => Ok(Framing::Chunked),
            (false, Some(length)) => Ok(Framing::Length(length)),
            (false, None) => Ok(Framing::None),
        }
    }
}

/// Whether `host` (with or without a port) is a name with a dot, no address and not below `localhost`.
fn is_domain(host: &[u8]) -> bool {
    // Of an IPv6 address, this is `[` and digits.
    let name = host.split(|&b| b == b':').next().unwrap_or_default();
    let mut labels = name.strip_suffix(b".").unwrap_or(name).rsplit(|&b| b == b'.');
    let last = labels.next().unwrap_or_default();
    // Whatever ends in digits is an IPv4 address (URL Standard, 3.5).
    let is_own = last.eq_ignore_ascii_case(b"localhost") || last.iter().all(u8::is_ascii_digit);
    !is_own && labels.next().is_some()
}

/// Whether a comma-separated list names `item`, whatever its parameters.
fn lists(value: &[u8], item: &[u8]) -> bool {
    value.split(|&b| b == b',').any(|part| {
        let name = part.split(|&b| b == b';').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(item)
    })
}
