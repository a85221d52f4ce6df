//! Small downloads with a deadline, before the players begin: where the content is, and its index.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::time::Duration;

use sys::clock::Deadline;

use super::http::{self, Head, HeadReader, HttpError};
use super::timeline::TimelineError;
use super::url::{Url, UrlError};
use crate::stream::content::ContentError;

/// A body that stands still for so long will not come.
const IDLE: Duration = Duration::from_secs(5);
/// Redirects that are followed.
const HOPS_MAX: usize = 5;

/// Why content cannot be played from an address. The message names the address.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The address is none.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The name leads nowhere.
    #[error("the host of {url} was not found ({why}); check the name")]
    Resolve {
        /// What was asked for.
        url: String,
        /// The resolver's words.
        why: String,
    },
    /// Nobody listens, or nobody is there.
    #[error("{url} cannot be reached at {address}: {why}; is the server running, and is this its port?")]
    Connect {
        /// What was asked for.
        url: String,
        /// At which address.
        address: SocketAddr,
        /// The kernel's words.
        why: String,
    },
    /// The connection broke.
    #[error(
        "{url}: the connection broke after {got_bytes} bytes of the answer: {why}; look into the server's log"
    )]
    Broken {
        /// What was asked for.
        url: String,
        /// How much had come.
        got_bytes: u64,
        /// The kernel's words.
        why: String,
    },
    /// The body was shorter than its length.
    #[error(
        "{url}: the server ended after {got_bytes} of {expected_bytes} bytes; \
         look into its log: the file may have been cut while it was served"
    )]
    Early {
        /// What was asked for.
        url: String,
        /// How much had come.
        got_bytes: u64,
        /// How much was announced.
        expected_bytes: u64,
    },
    /// No answer at all.
    #[error("{url}: the server closed the connection without an answer; check the address and port")]
    Empty {
        /// What was asked for.
        url: String,
    },
    /// Too slow.
    #[error("{url}: no {what} within {allowed_s:.0} s; check the server and the way to it")]
    Deadline {
        /// What was asked for.
        url: String,
        /// What was waited for.
        what: &'static str,
        /// How long.
        allowed_s: f64,
    },
    /// It leads in a circle, or too far.
    #[error(
        "{url} leads on more than {HOPS_MAX} times (last to {last}): a loop of redirects; check the server"
    )]
    Redirects {
        /// What was asked for.
        url: String,
        /// Where it led.
        last: String,
    },
    /// The answer makes no sense for a player.
    #[error("{url}: {source}")]
    Http {
        /// What was asked for.
        url: String,
        /// What is wrong.
        source: HttpError,
    },
    /// More than is read for this purpose.
    #[error("{url} has {bytes} bytes, more than the {bytes_max} that are read for it; {advice}")]
    TooLarge {
        /// What was asked for.
        url: String,
        /// How long it is.
        bytes: u64,
        /// How long it may be.
        bytes_max: u64,
        /// What to do.
        advice: &'static str,
    },
    /// The content is no film.
    #[error("{url}: {source}")]
    Content {
        /// What was asked for.
        url: String,
        /// What is wrong.
        source: ContentError,
    },
    /// The index is no index of a film.
    #[error("{url}: {source}")]
    Timeline {
        /// What was asked for.
        url: String,
        /// What is wrong.
        source: TimelineError,
    },
}

/// Where content really is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// Its address, redirects followed.
    pub url: Url,
    /// The server that answered there.
    pub address: SocketAddr,
    /// How long it is.
    pub total_bytes: u64,
    /// Which version of it.
    pub etag: Option<String>,
    /// Whether the server sends parts of it.
    pub ranges: bool,
}

/// An open answer: its head, and its body to be read.
#[derive(Debug)]
pub struct Answer {
    /// The head.
    pub head: Head,
    /// The server that answered.
    pub address: SocketAddr,
    /// The body.
    pub body: Body,
}

/// The body of an answer, read with a deadline. Ends early only with an error.
#[derive(Debug)]
pub struct Body {
    socket: TcpStream,
    ahead: Vec<u8>,
    ahead_at: usize,
    expected_bytes: u64,
    got_bytes: u64,
    until: Until,
    failed: Option<FetchError>,
}

/// A deadline that remembers what it allowed and for whom.
#[derive(Debug, Clone)]
struct Until {
    deadline: Deadline,
    allowed_s: f64,
    url: String,
}

impl Until {
    fn late(&self, what: &'static str) -> FetchError {
        FetchError::Deadline { url: self.url.clone(), what, allowed_s: self.allowed_s }
    }

    /// What is left, or the error that nothing is.
    fn left(&self, what: &'static str) -> Result<Duration, FetchError> {
        let left = self.deadline.left();
        if left.is_zero() { Err(self.late(what)) } else { Ok(left) }
    }
}

/// Find content: follow redirects, see how long it is and whether parts of it can be asked for.
///
/// # Errors
/// [`FetchError`]. Never takes longer than `within`.
pub fn locate(text: &str, within: Duration) -> Result<Located, FetchError> {
    let deadline = Deadline::after(within);
    let mut url = Url::parse(text)?;
    let mut seen = vec![url.clone()];
    loop {
        // One byte: the answer tells the whole length, and whether the server knows ranges.
        let answer = request(&url, 0, Some(0), deadline, within)?;
        let fail = |source| FetchError::Http { url: url.to_string(), source };
        if let Some(location) = answer.head.redirect() {
            let next = url.join(location)?;
            if seen.len() > HOPS_MAX || seen.contains(&next) {
                return Err(FetchError::Redirects { url: text.to_owned(), last: next.to_string() });
            }
            seen.push(next.clone());
            url = next;
            continue;
        }
        let bytes = answer.head.body_bytes().map_err(fail)?;
        let Answer { head, address, .. } = answer;
        let (total_bytes, ranges) = match head.range {
            Some((0, _, Some(total))) => (total, true),
            Some((first, last, total)) => {
                let total = total.map_or("*".to_owned(), |total| total.to_string());
                let got = format!("bytes {first} to {last} of {total}");
                return Err(fail(HttpError::WrongRange { asked: 0, total: bytes, got }));
            }
            None => (bytes, false),
        };
        return Ok(Located { url, address, total_bytes, etag: head.etag, ranges });
    }
}

/// Ask for bytes `from..=last` (the end, if `None`) of `url`, and read the answer's head.
///
/// # Errors
/// [`FetchError`]: no host, no connection, no HTTP, too late.
pub fn request(
    url: &Url,
    from: u64,
    last: Option<u64>,
    deadline: Deadline,
    allowed: Duration,
) -> Result<Answer, FetchError> {
    let until = Until { deadline, allowed_s: allowed.as_secs_f64(), url: url.to_string() };
    let (mut socket, address) = connect(url, &until)?;
    let broken = |got_bytes, why: std::io::Error| FetchError::Broken {
        url: url.to_string(),
        got_bytes,
        why: why.to_string(),
    };
    socket.write_all(&http::get(url, from, last)).map_err(|e| broken(0, e))?;
    let mut reader = HeadReader::default();
    let mut piece = [0; 4096];
    loop {
        socket.set_read_timeout(Some(until.left("answer")?)).map_err(|e| broken(0, e))?;
        let n = match socket.read(&mut piece) {
            Ok(0) if reader.is_empty() => return Err(FetchError::Empty { url: url.to_string() }),
            Ok(0) => return Err(broken(0, ErrorKind::UnexpectedEof.into())),
            Ok(n) => n,
            Err(e) if is_wait(&e) => continue,
            Err(e) => return Err(broken(0, e)),
        };
        let fail = |source| FetchError::Http { url: url.to_string(), source };
        if let Some((head, used)) = reader.feed(&piece[..n]).map_err(fail)? {
            let expected_bytes = head.length.unwrap_or(0);
            let ahead = piece[used..n].to_vec();
            let body = Body { socket, ahead, ahead_at: 0, expected_bytes, got_bytes: 0, until, failed: None };
            return Ok(Answer { head, address, body });
        }
    }
}

/// A wait that ended without anything: the deadline decides whether to go on.
fn is_wait(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// The addresses of a host. The resolver cannot be told a deadline, so it is asked on a thread of its own, which is
/// left behind when it takes too long.
fn resolve(url: &Url, until: &Until) -> Result<Vec<SocketAddr>, FetchError> {
    let (host, port) = (url.host().to_owned(), url.port());
    let (answer, answered) = mpsc::channel();
    let fail = |why: String| FetchError::Resolve { url: url.to_string(), why };
    std::thread::Builder::new()
        .name("resolve".into())
        .spawn(move || {
            let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
            // Nobody may be waiting any more.
            let _ = answer.send(found);
        })
        .map_err(|e| fail(e.to_string()))?;
    match answered.recv_timeout(until.left("address of the host")?) {
        Ok(Ok(addresses)) if !addresses.is_empty() => Ok(addresses),
        Ok(Ok(_)) => Err(fail("the name has no address".into())),
        Ok(Err(e)) => Err(fail(e.to_string())),
        Err(_) => Err(until.late("address of the host")),
    }
}

/// The first of the host's addresses that takes a connection; else the error of the first.
fn connect(url: &Url, until: &Until) -> Result<(TcpStream, SocketAddr), FetchError> {
    let mut first = None;
    for address in resolve(url, until)? {
        match TcpStream::connect_timeout(&address, until.left("connection")?) {
            Ok(socket) => return Ok((socket, address)),
            Err(e) if e.kind() == ErrorKind::TimedOut => return Err(until.late("connection")),
            Err(e) => {
                first.get_or_insert(FetchError::Connect {
                    url: url.to_string(),
                    address,
                    why: e.to_string(),
                });
            }
        }
    }
    // `resolve` gives at least one address.
    Err(first.unwrap_or_else(|| until.late("connection")))
}

impl Body {
    /// Read the rest into memory, at most `bytes_max`.
    ///
    /// # Errors
    /// [`FetchError`]: longer than that, broken, early end, too late.
    pub fn read_all(mut self, bytes_max: u64, advice: &'static str) -> Result<Vec<u8>, FetchError> {
        if self.expected_bytes > bytes_max {
            let (url, bytes) = (self.until.url, self.expected_bytes);
            return Err(FetchError::TooLarge { url, bytes, bytes_max, advice });
        }
        let mut all = Vec::new();
        match self.read_to_end(&mut all) {
            Ok(_) => Ok(all),
            Err(e) => Err(self.why(e)),
        }
    }

    /// The whole error behind one that went through [`Read`].
    pub fn why(&mut self, error: std::io::Error) -> FetchError {
        self.failed.take().unwrap_or_else(|| FetchError::Broken {
            url: self.until.url.clone(),
            got_bytes: self.got_bytes,
            why: error.to_string(),
        })
    }

    /// [`Read`] can only pass on an [`std::io::Error`]; the whole one is kept for [`Body::why`].
    fn fail(&mut self, error: FetchError) -> std::io::Error {
        let passed = std::io::Error::other(error.to_string());
        self.failed = Some(error);
        passed
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let left = usize::try_from(self.expected_bytes - self.got_bytes).unwrap_or(usize::MAX);
        let room = buffer.len().min(left);
        if room == 0 {
            return Ok(0);
        }
        let mut n = room.min(self.ahead.len() - self.ahead_at);
        if n > 0 {
            buffer[..n].copy_from_slice(&self.ahead[self.ahead_at..self.ahead_at + n]);
            self.ahead_at += n;
        }
        while n == 0 {
            let wait = match self.until.left("rest of the answer") {
                Ok(wait) => wait,
                Err(late) => return Err(self.fail(late)),
            };
            self.socket.set_read_timeout(Some(wait.min(IDLE)))?;
            n = match self.socket.read(&mut buffer[..room]) {
                Ok(0) => {
                    let (got_bytes, expected_bytes) = (self.got_bytes, self.expected_bytes);
                    let url = self.until.url.clone();
                    return Err(self.fail(FetchError::Early { url, got_bytes, expected_bytes }));
                }
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::Interrupted => 0,
                Err(e) if is_wait(&e) => {
                    self.until.allowed_s = wait.min(IDLE).as_secs_f64();
                    let late = self.until.late("further byte");
                    return Err(self.fail(late));
                }
                Err(e) => {
                    let (url, got_bytes) = (self.until.url.clone(), self.got_bytes);
                    return Err(self.fail(FetchError::Broken { url, got_bytes, why: e.to_string() }));
                }
            };
        }
        self.got_bytes += n as u64;
        Ok(n)
    }
}
