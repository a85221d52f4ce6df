//! A plain client of the content server, and ways to wait for things.

#![allow(dead_code, reason = "every test file uses another part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of tests fails as tests do")]

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use httpd::{AccessLog, Server, ServerConfig};

/// No test waits longer than this for anything.
pub const GUARD: Duration = Duration::from_secs(20);

pub fn start(root: &Path, change: impl FnOnce(&mut ServerConfig)) -> Server {
    let mut config = ServerConfig::loopback(root);
    change(&mut config);
    Server::start(config).expect("the server starts")
}

/// An access log that a test can read.
#[derive(Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    pub fn log(&self) -> Option<AccessLog> {
        Some(AccessLog::Writer(Box::new(self.clone())))
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).expect("the log is ASCII")
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let give_up = Instant::now() + GUARD;
    while !holds() {
        assert!(Instant::now() < give_up, "{what} did not happen within {GUARD:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (field, value) = line.split_once(": ")?;
            field.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a text")
    }
}

pub struct Client {
    pub stream: TcpStream,
    received: Vec<u8>,
}

impl Client {
    pub fn new(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).expect("a connection");
        stream.set_read_timeout(Some(GUARD)).unwrap();
        stream.set_write_timeout(Some(GUARD)).unwrap();
        Self { stream, received: Vec::new() }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the server reads");
    }

    /// Sends and takes a refusal to read as an answer.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    pub fn get(&mut self, path: &str, fields: &str) -> Reply {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n{fields}\r\n"));
        self.reply()
    }

    pub fn head(&mut self, path: &str, fields: &str) -> Reply {
        self.send(format!("HEAD {path} HTTP/1.1\r\nHost: test\r\n{fields}\r\n"));
        self.reply_to(true)
    }

    pub fn put(&mut self, path: &str, body: &[u8], fields: &str) -> Reply {
        self.send(format!(
            "PUT {path} HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n{fields}\r\n",
            body.len()
        ));
        self.try_send(body);
        self.reply()
    }

    pub fn reply(&mut self) -> Reply {
        self.reply_to(false)
    }

    fn reply_to(&mut self, head_only: bool) -> Reply {
        let end = loop {
            if let Some(at) = self.received.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(
                self.more() > 0,
                "closed before an answer; got {:?}",
                String::from_utf8_lossy(&self.received)
            );
        };
        let head = String::from_utf8(self.received.drain(..end).collect()).expect("an ASCII head");
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
        let mut reply = Reply { status, head, body: Vec::new() };
        if status == 100 {
            return reply;
        }
        let len: usize = reply.field("content-length").map_or(0, |v| v.parse().unwrap());
        if !head_only {
            while self.received.len() < len {
                assert!(self.more() > 0, "closed within the body, {} of {len} bytes", self.received.len());
            }
            reply.body = self.received.drain(..len).collect();
        }
        reply
    }

    fn more(&mut self) -> usize {
        let mut piece = vec![0; 1 << 16];
        let n = self.stream.read(&mut piece).expect("an answer or the end");
        self.received.extend_from_slice(&piece[..n]);
        n
    }

    /// Whether the server has closed, sending nothing more (a reset counts).
    pub fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        self.received.is_empty() && !matches!(self.stream.read(&mut byte), Ok(1))
    }

    /// Everything until the close, however it comes.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.received);
        let mut piece = vec![0; 1 << 16];
        while let Ok(n @ 1..) = self.stream.read(&mut piece) {
            all.extend_from_slice(&piece[..n]);
        }
        all
    }

    pub fn finish_sending(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}

/// Sends `raw` on a fresh connection and returns all that comes back.
pub fn exchange(addr: SocketAddr, raw: impl AsRef<[u8]>) -> String {
    let mut client = Client::new(addr);
    client.try_send(raw);
    client.finish_sending();
    String::from_utf8_lossy(&client.rest()).into_owned()
}

/// Status of the first answer in `raw`; 0 when there is none.
pub fn status(raw: &str) -> u16 {
    raw.strip_prefix("HTTP/1.1 ").and_then(|r| r.get(..3)).and_then(|s| s.parse().ok()).unwrap_or(0)
}

/// Bytes that differ everywhere, so that a shifted or torn body is noticed.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + (i >> 8) * 7 + (i >> 16) * 13) as u8).collect()
}

pub fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).expect("a directory");
    let mut all: Vec<_> = entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    all.sort();
    all
}

/// A directory with the file `f`.
pub fn root_with(content: &[u8]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), content).unwrap();
    dir
}

/// Whether a client that means well is served.
pub fn good(server: &Server) -> bool {
    Client::new(server.local_addr()).get("/f", "").status == 200
}
