//! A small HTTP client: one connection for each request, every header as the test says.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

pub struct HttpAnswer {
    pub status: u16,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    reader: BufReader<TcpStream>,
    is_chunked: bool,
}

/// Sends a request; the body is read later.
pub fn http_request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> HttpAnswer {
    let mut stream = TcpStream::connect(address).unwrap_or_else(|error| panic!("{address}: {error}"));
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut head =
        format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        head += &format!("Host: {address}\r\n");
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    // An answer may come before all was sent.
    let _ = stream.write_all(format!("{head}\r\n{body}").as_bytes());
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).expect("a status line");
    let status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
    let status = status.unwrap_or_else(|| panic!("{method} {path}: no status in {line:?}"));
    let mut found = BTreeMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line).expect("a header");
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        found.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let is_chunked = found.get("transfer-encoding").is_some_and(|coding| coding == "chunked");
    HttpAnswer { status, headers: found, reader, is_chunked }
}

impl HttpAnswer {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// The next piece of the body; empty at its end.
    fn piece(&mut self) -> Vec<u8> {
        if !self.is_chunked {
            let mut bytes = Vec::new();
            self.reader.read_to_end(&mut bytes).expect("a body");
            return bytes;
        }
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("a chunk's length");
        let length = usize::from_str_radix(line.trim(), 16).unwrap_or(0);
        let mut bytes = vec![0; length + 2];
        if self.reader.read_exact(&mut bytes).is_err() {
            return Vec::new();
        }
        bytes.truncate(length);
        bytes
    }

    pub fn text(&mut self) -> String {
        let mut all = Vec::new();
        loop {
            let piece = self.piece();
            if piece.is_empty() {
                return String::from_utf8(all).expect("UTF-8");
            }
            all.extend(piece);
        }
    }

    pub fn json(&mut self) -> Value {
        let text = self.text();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Reads server-sent events (name, id, data) up to the last that is wanted, or until none follows.
    pub fn events(&mut self, is_last: impl Fn(&str, &Value) -> bool) -> Vec<(String, String, Value)> {
        let (mut all, mut text) = (Vec::new(), String::new());
        loop {
            let piece = self.piece();
            if piece.is_empty() {
                return all;
            }
            text += std::str::from_utf8(&piece).expect("whole events");
            while let Some(end) = text.find("\n\n") {
                let event: String = text.drain(..end + 2).collect();
                let field = |name: &str| {
                    event.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned()
                };
                let (name, data) = (field("event: "), field("data: "));
                // A comment.
                if name.is_empty() {
                    continue;
                }
                let data: Value = serde_json::from_str(&data).expect("JSON");
                let ends = is_last(&name, &data);
                all.push((name, field("id: "), data));
                if ends {
                    return all;
                }
            }
        }
    }
}
