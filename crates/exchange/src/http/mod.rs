//! HTTP as a client speaks it: where a URL is, a request's head (RFC 9112, RFC 9113), the end of a response
//! of HTTP/1.1, and the client's side of TLS.

mod response;
pub(crate) mod tls;

pub(crate) use response::{Fed, ResponseParser};

/// Where a URL is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub is_tls: bool,
    /// As the Host field has it: host, and the port if the URL has one.
    pub authority: String,
    /// `HOST:PORT` to connect to.
    pub address: String,
    /// Path and query.
    pub path: String,
}

impl Target {
    /// Reads `http://HOST[:PORT][/PATH]`, or the same with `https`. The error is a sentence.
    pub fn parse(url: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("'{url}' {why}; write http://HOST[:PORT]/PATH");
        let (is_tls, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            (None, None) => return Err(wrong("is not an http:// or https:// URL")),
        };
        let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err(wrong("has a user name, which is not supported"));
        }
        let is_visible = |byte: u8| (0x21..0x7f).contains(&byte);
        if authority.is_empty() || !rest.bytes().all(is_visible) {
            return Err(wrong("has no host, or characters that are not allowed"));
        }
        let port = authority.rsplit_once(':').filter(|(host, _)| !host.ends_with(':') && !is_open(host));
        let address = match port {
            Some((host, port)) if host.is_empty() || port.parse::<u16>().is_err() => {
                return Err(wrong("has no valid host and port"));
            }
            Some(_) => authority.to_owned(),
            None => format!("{authority}:{}", if is_tls { 443 } else { 80 }),
        };
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { is_tls, authority: authority.to_owned(), address, path })
    }

    /// The host alone, without the brackets of an IPv6 address.
    pub(crate) fn host(&self) -> &str {
        let host = self.address.rsplit_once(':').map_or(&*self.address, |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }
}

/// Whether a colon after this text is within the brackets of an IPv6 address.
fn is_open(host: &str) -> bool {
    host.starts_with('[') && !host.ends_with(']')
}

/// A request, complete but for the length of its body.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Request line and fields, without `Content-Length` and the empty line.
    head: Vec<u8>,
    pub(crate) is_head: bool,
    pub(crate) has_body: bool,
    /// The same for HTTP/2; the reason if it cannot be sent by it.
    v2: Result<http::Request<()>, String>,
}

impl Request {
    /// `fields`: further header fields, each as `Name: value`.
    pub(crate) fn new(
        target: &Target,
        method: Option<&str>,
        fields: &[String],
        has_body: bool,
        keeps_alive: bool,
    ) -> Self {
        let method = method.unwrap_or(if has_body { "POST" } else { "GET" });
        let mut head = format!("{method} {} HTTP/1.1\r\nHost: {}\r\n", target.path, target.authority);
        let given = |name: &str| {
            let mut names = fields.iter().filter_map(|field| field.split_once(':'));
            names.any(|(one, _)| one.eq_ignore_ascii_case(name))
        };
        let agent = concat!("User-Agent: kagiri/", env!("CARGO_PKG_VERSION"));
        let mut usual = vec![("user-agent", agent), ("accept", "Accept: */*")];
        usual.extend(has_body.then_some(("content-type", "Content-Type: application/octet-stream")));
        usual.retain(|(name, _)| !given(name));
        let all: Vec<&str> =
            usual.iter().map(|(_, field)| *field).chain(fields.iter().map(|field| field.trim())).collect();
        for field in &all {
            head += field;
            head += "\r\n";
        }
        if !keeps_alive {
            head += "Connection: close\r\n";
        }
        let v2 = v2(target, method, &all);
        Self { head: head.into_bytes(), is_head: method.eq_ignore_ascii_case("head"), has_body, v2 }
    }

    /// The head of a request of HTTP/2 with so large a body; the reason if there is none.
    pub(crate) fn v2(&self, body_bytes: u64) -> Result<http::Request<()>, String> {
        let mut request = self.v2.clone()?;
        if self.has_body {
            request.headers_mut().insert(http::header::CONTENT_LENGTH, body_bytes.into());
        }
        Ok(request)
    }

    /// Writes the head of a request with so large a body.
    pub(crate) fn write_head(&self, body_bytes: u64, head: &mut Vec<u8>) {
        use std::io::Write;
        head.clear();
        head.extend_from_slice(&self.head);
        if self.has_body {
            // Writing to memory does not fail.
            let _ = write!(head, "Content-Length: {body_bytes}\r\n");
        }
        head.extend_from_slice(b"\r\n");
    }
}

/// The head of a request of HTTP/2 with these fields. Host becomes `:authority` (RFC 9113, section 8.3.1);
/// fields of a connection have no place in it (section 8.2.2).
fn v2(target: &Target, method: &str, fields: &[&str]) -> Result<http::Request<()>, String> {
    const CONNECTION_HEADERS: [&str; 5] =
        ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];
    let mut authority = target.authority.as_str();
    let mut request = http::Request::builder().method(method).version(http::Version::HTTP_2);
    for field in fields {
        let (name, value) = field.split_once(':').unwrap_or((field, ""));
        let lower = name.to_ascii_lowercase();
        if CONNECTION_HEADERS.contains(&lower.as_str()) {
            return Err(format!("HTTP/2 has no header field '{name}'"));
        }
        match lower.as_str() {
            "host" => authority = value.trim(),
            _ => request = request.header(lower, value.trim()),
        }
    }
    let scheme = if target.is_tls { "https" } else { "http" };
    let request = request.uri(format!("{scheme}://{authority}{}", target.path)).body(());
    request.map_err(|error| format!("HTTP/2 cannot send the request: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_gives_address_and_path() {
        for (url, authority, address, path) in [
            ("http://nas", "nas", "nas:80", "/"),
            ("https://nas/x", "nas", "nas:443", "/x"),
            ("https://[::1]", "[::1]", "[::1]:443", "/"),
            ("http://nas:8080/a/b?c=d#e", "nas:8080", "nas:8080", "/a/b?c=d"),
            ("http://[::1]/x", "[::1]", "[::1]:80", "/x"),
            ("http://[::1]:99?q", "[::1]:99", "[::1]:99", "/?q"),
        ] {
            let target = Target::parse(url).unwrap();
            assert_eq!(target.is_tls, url.starts_with("https"));
            assert!(!target.host().contains(['[', ']']), "{}", target.host());
            assert_eq!((&*target.authority, &*target.address, &*target.path), (authority, address, path));
        }
        for wrong in ["ftp://nas/", "http://", "http:///x", "http://nas:port/", "http://a b/", "http://u@h/"]
        {
            assert!(Target::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn request_has_the_given_fields_once() {
        let fields = ["User-Agent: mine", "X-A: b"].map(str::to_owned);
        let target = Target::parse("http://nas/up").unwrap();
        let mut head = Vec::new();
        Request::new(&target, None, &fields, true, false).write_head(1000, &mut head);
        let text = String::from_utf8(head).unwrap();
        assert!(text.starts_with("POST /up HTTP/1.1\r\nHost: nas\r\n"), "{text}");
        assert_eq!(text.matches("User-Agent").count(), 1, "{text}");
        assert!(text.contains("X-A: b\r\nConnection: close\r\nContent-Length: 1000\r\n\r\n"), "{text}");
    }

    #[test]
    fn request_of_http2_has_the_given_host_and_no_field_of_a_connection() {
        let target = Target::parse("https://nas/up?x").unwrap();
        let of = |field: &str| Request::new(&target, None, &[field.to_owned()], true, true).v2(7);
        let request = of("Host: other:99").unwrap();
        assert_eq!(request.uri(), "https://other:99/up?x");
        assert_eq!(request.method(), http::Method::POST);
        assert_eq!(request.headers()["content-length"], "7");
        assert!(!request.headers().contains_key("host"), "{request:?}");
        assert!(of("Connection: close").unwrap_err().contains("'Connection'"));
    }
}
