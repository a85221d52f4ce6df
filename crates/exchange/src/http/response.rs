//! The end of a response: a state machine over bytes as they come (RFC 9112, section 6).

/// A longer head or line is no response of a server that is measured.
const HEAD_BYTES_MAX: usize = 64 << 10;
const FIELDS_MAX: usize = 100;

/// What bytes brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fed {
    /// All bytes were taken; more of the response follows.
    More,
    /// The response has ended with the byte before this one.
    Done { taken: usize, status: u16, keeps_alive: bool },
    /// The bytes are no response of HTTP/1.
    Wrong,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    Body(u64),
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    Trailer,
    UntilClose,
}

/// Finds the end of one response after another.
#[derive(Debug)]
pub(crate) struct ResponseParser {
    state: State,
    /// The head, or a line of the chunked coding, as far as it has come.
    text: Vec<u8>,
    status: u16,
    keeps_alive: bool,
    /// Responses to HEAD have no body.
    is_head: bool,
}

impl ResponseParser {
    pub(crate) fn new(is_head: bool) -> Self {
        Self { state: State::Head, text: Vec::new(), status: 0, keeps_alive: true, is_head }
    }

    /// Forgets what has come: a new connection.
    pub(crate) fn reset(&mut self) {
        self.state = State::Head;
        self.text.clear();
    }

    /// The status of a response that ends where its connection ends; `None`: it is not complete.
    pub(crate) fn closed(&self) -> Option<u16> {
        (self.state == State::UntilClose).then_some(self.status)
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Fed {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            match self.state {
                State::Body(0) => return self.done(at),
                _ if rest.is_empty() => return Fed::More,
                State::UntilClose => return Fed::More,
                State::Body(left) => {
                    let taken = left.min(rest.len() as u64);
                    self.state = State::Body(left - taken);
                    at += taken as usize;
                }
                State::Chunk(left) => {
                    let taken = left.min(rest.len() as u64);
                    self.state = if left == taken { State::ChunkEnd } else { State::Chunk(left - taken) };
                    at += taken as usize;
                }
                State::Head => match self.head(rest) {
                    Ok(Some(taken)) => at += taken,
                    Ok(None) => return Fed::More,
                    Err(()) => return Fed::Wrong,
                },
                State::ChunkSize | State::ChunkEnd | State::Trailer => match self.line(rest) {
                    Ok(Some(taken)) => {
                        at += taken;
                        if self.state == State::Body(0) {
                            return self.done(at);
                        }
                    }
                    Ok(None) => return Fed::More,
                    Err(()) => return Fed::Wrong,
                },
            }
        }
    }

    fn done(&mut self, taken: usize) -> Fed {
        self.reset();
        Fed::Done { taken, status: self.status, keeps_alive: self.keeps_alive }
    }

    /// Takes bytes of the head; how many of them belong to it, once it is complete.
    fn head(&mut self, bytes: &[u8]) -> Result<Option<usize>, ()> {
        let before = self.text.len();
        self.text.extend_from_slice(&bytes[..bytes.len().min(HEAD_BYTES_MAX.saturating_sub(before))]);
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut response = httparse::Response::new(&mut fields);
        let end = match response.parse(&self.text) {
            Ok(httparse::Status::Complete(end)) => end,
            Ok(httparse::Status::Partial) if self.text.len() < HEAD_BYTES_MAX => return Ok(None),
            _ => return Err(()),
        };
        let status = response.code.ok_or(())?;
        let mut keeps_alive = response.version == Some(1);
        let (mut length, mut is_chunked) = (None, false);
        for field in response.headers.iter() {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            let value = std::str::from_utf8(field.value).unwrap_or_default().trim();
            let has = |word: &str| value.split(',').any(|one| one.trim().eq_ignore_ascii_case(word));
            if is("content-length") {
                length = Some(value.parse::<u64>().map_err(drop)?);
            } else if is("transfer-encoding") {
                is_chunked = has("chunked");
            } else if is("connection") {
                keeps_alive = (keeps_alive || has("keep-alive")) && !has("close");
            }
        }
        self.text.clear();
        let taken = end - before;
        if status < 200 {
            // 100 Continue and the like: the response proper follows.
            return Ok(Some(taken));
        }
        (self.status, self.keeps_alive) = (status, keeps_alive);
        self.state = match length {
            _ if self.is_head || matches!(status, 204 | 304) => State::Body(0),
            _ if is_chunked => State::ChunkSize,
            Some(length) => State::Body(length),
            None => State::UntilClose,
        };
        Ok(Some(taken))
    }

    /// Takes bytes of a line of the chunked coding; how many of them belong to it, once it is complete.
    fn line(&mut self, bytes: &[u8]) -> Result<Option<usize>, ()> {
        let end = bytes.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let taken = end.unwrap_or(bytes.len());
        self.text.extend_from_slice(&bytes[..taken]);
        if self.text.len() > HEAD_BYTES_MAX {
            return Err(());
        }
        if end.is_none() {
            return Ok(None);
        }
        let text = std::str::from_utf8(&self.text).map_err(drop)?.trim();
        self.state = match self.state {
            State::ChunkSize => {
                let size = text.split(';').next().unwrap_or_default().trim();
                match u64::from_str_radix(size, 16).map_err(drop)? {
                    0 => State::Trailer,
                    size => State::Chunk(size),
                }
            }
            State::ChunkEnd if text.is_empty() => State::ChunkSize,
            State::Trailer if text.is_empty() => State::Body(0),
            State::Trailer => State::Trailer,
            _ => return Err(()),
        };
        self.text.clear();
        Ok(Some(taken))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
        4;x=y\r\nWiki\r\nA\r\n0123456789\r\n0\r\nT: v\r\n\r\n";
    const LENGTH: &[u8] = b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
    const CONTINUED: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";

    /// The statuses of the responses that bytes contain, fed in pieces.
    fn statuses(bytes: &[u8], piece: usize) -> Vec<(u16, bool)> {
        let mut parser = ResponseParser::new(false);
        let mut found = Vec::new();
        for part in bytes.chunks(piece) {
            let mut rest = part;
            while !rest.is_empty() {
                match parser.feed(rest) {
                    Fed::More => break,
                    Fed::Done { taken, status, keeps_alive } => {
                        found.push((status, keeps_alive));
                        rest = &rest[taken..];
                    }
                    Fed::Wrong => panic!("{:?}", String::from_utf8_lossy(rest)),
                }
            }
        }
        found
    }

    #[test]
    fn responses_end_where_they_end_however_they_are_cut() {
        let all = [CHUNKED, LENGTH, CONTINUED].concat();
        for piece in 1..all.len() {
            assert_eq!(statuses(&all, piece), [(200, true), (404, false), (204, true)], "{piece}");
        }
    }

    #[test]
    fn response_without_length_ends_with_its_connection() {
        let mut parser = ResponseParser::new(false);
        assert_eq!(parser.feed(b"HTTP/1.0 200 OK\r\n\r\nall there is"), Fed::More);
        assert_eq!(parser.closed(), Some(200));
        let mut of_head = ResponseParser::new(true);
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        assert_eq!(of_head.feed(head), Fed::Done { taken: head.len(), status: 200, keeps_alive: true });
    }

    #[test]
    fn foreign_bytes_are_wrong() {
        for bytes in [
            &b"SSH-2.0-OpenSSH_9\r\n"[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        ] {
            assert_eq!(ResponseParser::new(false).feed(bytes), Fed::Wrong);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut parser = ResponseParser::new(false);
            parser.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            let _ = parser.feed(&bytes);
        }
    }
}
