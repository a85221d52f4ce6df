//! Small downloads with a deadline, before the players begin: the content's location and its index.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use base::part::HostContext;
use sys::clock::Deadline;

use super::connect::{FetchDeadline, connect, resolve};
use super::fetch_error::{FetchError, REDIRECTS_MAX};
use super::url::Url;
use super::{Head, HeadReader, HttpError};

/// Longest time without a byte of the body.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Where content is, after redirects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentLocation {
    pub url: Url,
    /// The server's address that took the connection.
    pub address: SocketAddr,
    pub total_bytes: u64,
    pub etag: Option<String>,
    pub ranges: bool,
}

#[derive(Debug)]
pub struct Response {
    pub head: Head,
    pub address: SocketAddr,
    pub body: Body,
}

/// The body of a response, read with a deadline. Ends early only with an error.
#[derive(Debug)]
pub struct Body {
    socket: TcpStream,
    /// Bytes that came with the head.
    buffered: Vec<u8>,
    buffered_used: usize,
    expected_bytes: u64,
    received_bytes: u64,
    deadline: FetchDeadline,
    error: Option<FetchError>,
}

/// Locate content: follow redirects, find its length and whether the server supports ranges. The host's
/// policy permits each address before anything is sent to it.
/// Errors: [`FetchError`], at the latest `within` after the call, and soon after the run is stopped.
pub fn locate(text: &str, within: Duration, host: &HostContext) -> Result<ContentLocation, FetchError> {
    let deadline = Deadline::after(within);
    let mut url = Url::parse(text)?;
    let mut seen = vec![url.clone()];
    loop {
        // The response to a request of one byte has the whole length, and shows whether ranges are supported.
        let fetch_deadline = FetchDeadline::new(&url, deadline, within, host);
        let addresses = resolve(&url, &fetch_deadline, &*host.permit)?;
        let response = request(&url, &addresses, 0, Some(0), fetch_deadline)?;
        let fail = |source| FetchError::Http { url: url.to_string(), source };
        if let Some(location) = response.head.redirect() {
            let next = url.join(location)?;
            if seen.len() > REDIRECTS_MAX || seen.contains(&next) {
                return Err(FetchError::Redirects { url: text.to_owned(), last: next.to_string() });
            }
            seen.push(next.clone());
            url = next;
            continue;
        }
        let bytes = response.head.body_bytes().map_err(fail)?;
        let Response { head, address, .. } = response;
        let (total_bytes, ranges) = match head.range {
            Some((0, _, Some(total))) => (total, true),
            Some((first, last, total)) => {
                let total = total.map_or("*".to_owned(), |total| total.to_string());
                let sent = format!("bytes {first} to {last} of {total}");
                return Err(fail(HttpError::WrongRange { first: 0, total: bytes, sent }));
            }
            None => (bytes, false),
        };
        return Ok(ContentLocation { url, address, total_bytes, etag: head.etag, ranges });
    }
}

/// Request bytes `from..=last` (to the end if `None`) of `url` from one of `addresses`, which must be
/// permitted, and read the head of the response.
pub fn request(
    url: &Url,
    addresses: &[SocketAddr],
    from: u64,
    last: Option<u64>,
    deadline: FetchDeadline,
) -> Result<Response, FetchError> {
    let (mut socket, address) = connect(addresses, &deadline)?;
    let broken = |received_bytes, why: std::io::Error| FetchError::Broken {
        url: url.to_string(),
        received_bytes,
        why: why.to_string(),
    };
    socket.write_all(&super::get(url, from, last)).map_err(|e| broken(0, e))?;
    let mut reader = HeadReader::default();
    let mut piece = [0; 4096];
    loop {
        socket.set_read_timeout(Some(deadline.next_wait("response")?)).map_err(|e| broken(0, e))?;
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
            let buffered = piece[used..n].to_vec();
            let body = Body {
                socket,
                buffered,
                buffered_used: 0,
                expected_bytes,
                received_bytes: 0,
                deadline,
                error: None,
            };
            return Ok(Response { head, address, body });
        }
    }
}

fn is_wait(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

impl Body {
    pub fn read_all(mut self, bytes_max: u64, advice: &'static str) -> Result<Vec<u8>, FetchError> {
        if self.expected_bytes > bytes_max {
            let (url, bytes) = (self.deadline.url().to_owned(), self.expected_bytes);
            return Err(FetchError::TooLarge { url, bytes, bytes_max, advice });
        }
        let mut all = Vec::new();
        match self.read_to_end(&mut all) {
            Ok(_) => Ok(all),
            Err(e) => Err(self.fetch_error(e)),
        }
    }

    /// The error behind one that [`Read`] returned.
    pub fn fetch_error(&mut self, error: std::io::Error) -> FetchError {
        self.error.take().unwrap_or_else(|| FetchError::Broken {
            url: self.deadline.url().to_owned(),
            received_bytes: self.received_bytes,
            why: error.to_string(),
        })
    }

    fn idle_error(&self) -> FetchError {
        let url = self.deadline.url().to_owned();
        FetchError::Timeout { url, what: "further byte", allowed_s: IDLE_TIMEOUT.as_secs_f64() }
    }

    /// [`Read`] can only return an [`std::io::Error`]; the whole error is kept for [`Body::fetch_error`].
    fn fail(&mut self, error: FetchError) -> std::io::Error {
        let io_error = std::io::Error::other(error.to_string());
        self.error = Some(error);
        io_error
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let left = usize::try_from(self.expected_bytes - self.received_bytes).unwrap_or(usize::MAX);
        let room = buffer.len().min(left);
        if room == 0 {
            return Ok(0);
        }
        let mut n = room.min(self.buffered.len() - self.buffered_used);
        if n > 0 {
            buffer[..n].copy_from_slice(&self.buffered[self.buffered_used..self.buffered_used + n]);
            self.buffered_used += n;
        }
        let idle = Deadline::after(IDLE_TIMEOUT);
        while n == 0 {
            let wait = match self.deadline.next_wait("rest of the response") {
                Ok(_) if idle.passed() => return Err(self.fail(self.idle_error())),
                Ok(wait) => wait,
                Err(error) => return Err(self.fail(error)),
            };
            self.socket.set_read_timeout(Some(wait))?;
            n = match self.socket.read(&mut buffer[..room]) {
                Ok(0) => {
                    let (received_bytes, expected_bytes) = (self.received_bytes, self.expected_bytes);
                    let url = self.deadline.url().to_owned();
                    return Err(self.fail(FetchError::Truncated { url, received_bytes, expected_bytes }));
                }
                Ok(n) => n,
                Err(e) if is_wait(&e) => 0,
                Err(e) => {
                    let (url, received_bytes) = (self.deadline.url().to_owned(), self.received_bytes);
                    return Err(self.fail(FetchError::Broken { url, received_bytes, why: e.to_string() }));
                }
            };
        }
        self.received_bytes += n as u64;
        Ok(n)
    }
}
