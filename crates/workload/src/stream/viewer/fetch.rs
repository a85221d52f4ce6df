//! Small downloads with a deadline, before the players begin: where the content is, and its index.

mod error;
mod reach;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use base::part::HostContext;
use sys::clock::Deadline;

use super::http::{self, Head, HeadReader, HttpError};
use super::url::Url;
pub use error::FetchError;
pub use reach::Until;
use reach::{connect, resolve};

/// A body that stands still for so long will not come.
const IDLE: Duration = Duration::from_secs(5);
/// Redirects that are followed.
const HOPS_MAX: usize = 5;

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

/// Find content: follow redirects, see how long it is and whether parts of it can be asked for. Wherever that leads, the
/// host's owner is asked before anything is sent there.
///
/// # Errors
/// [`FetchError`]. Never takes longer than `within`, and ends soon after the run is to end.
pub fn locate(text: &str, within: Duration, host: &HostContext) -> Result<Located, FetchError> {
    let deadline = Deadline::after(within);
    let mut url = Url::parse(text)?;
    let mut seen = vec![url.clone()];
    loop {
        // One byte: the answer tells the whole length, and whether the server knows ranges.
        let until = Until::new(&url, deadline, within, host);
        let addresses = resolve(&url, &until, &*host.permit)?;
        let answer = request(&url, &addresses, 0, Some(0), until)?;
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

/// Ask one of these addresses for bytes `from..=last` (the end, if `None`) of `url`, and read the answer's head. Sending
/// there must have been permitted.
///
/// # Errors
/// [`FetchError`]: no connection, no HTTP, too late.
pub fn request(
    url: &Url,
    addresses: &[SocketAddr],
    from: u64,
    last: Option<u64>,
    until: Until,
) -> Result<Answer, FetchError> {
    let (mut socket, address) = connect(addresses, &until)?;
    let broken = |got_bytes, why: std::io::Error| FetchError::Broken {
        url: url.to_string(),
        got_bytes,
        why: why.to_string(),
    };
    socket.write_all(&http::get(url, from, last)).map_err(|e| broken(0, e))?;
    let mut reader = HeadReader::default();
    let mut piece = [0; 4096];
    loop {
        socket.set_read_timeout(Some(until.wait("answer")?)).map_err(|e| broken(0, e))?;
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

impl Body {
    /// Read the rest into memory, at most `bytes_max`.
    ///
    /// # Errors
    /// [`FetchError`]: longer than that, broken, early end, too late.
    pub fn read_all(mut self, bytes_max: u64, advice: &'static str) -> Result<Vec<u8>, FetchError> {
        if self.expected_bytes > bytes_max {
            let (url, bytes) = (self.until.url().to_owned(), self.expected_bytes);
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
            url: self.until.url().to_owned(),
            got_bytes: self.got_bytes,
            why: error.to_string(),
        })
    }

    fn stands_still(&self) -> FetchError {
        let url = self.until.url().to_owned();
        FetchError::Deadline { url, what: "further byte", allowed_s: IDLE.as_secs_f64() }
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
        let idle = Deadline::after(IDLE);
        while n == 0 {
            let wait = match self.until.wait("rest of the answer") {
                Ok(_) if idle.passed() => return Err(self.fail(self.stands_still())),
                Ok(wait) => wait,
                Err(late) => return Err(self.fail(late)),
            };
            self.socket.set_read_timeout(Some(wait))?;
            n = match self.socket.read(&mut buffer[..room]) {
                Ok(0) => {
                    let (got_bytes, expected_bytes) = (self.got_bytes, self.expected_bytes);
                    let url = self.until.url().to_owned();
                    return Err(self.fail(FetchError::Early { url, got_bytes, expected_bytes }));
                }
                Ok(n) => n,
                Err(e) if is_wait(&e) => 0,
                Err(e) => {
                    let (url, got_bytes) = (self.until.url().to_owned(), self.got_bytes);
                    return Err(self.fail(FetchError::Broken { url, got_bytes, why: e.to_string() }));
                }
            };
        }
        self.got_bytes += n as u64;
        Ok(n)
    }
}
