//! Answers: status, fields and content, and how they are written.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use pool::PoolFile;

/// Where the content of a file comes from.
#[derive(Debug)]
pub enum Source {
    File(File),
    /// A file in a pool, which keeps its segments, and a reader of the segments.
    Pool(Arc<PoolFile>, File),
}

impl Source {
    /// What to send for the content from `offset_bytes`: file, offset in it, and at most `bytes_max` bytes.
    /// `None`: that is not within the file.
    pub fn piece_at(&self, offset_bytes: u64, bytes_max: usize) -> Option<(BorrowedFd<'_>, u64, usize)> {
        match self {
            Self::File(file) => Some((file.as_fd(), offset_bytes, bytes_max)),
            Self::Pool(file, reader) => {
                let (at, len) = file.piece_at(offset_bytes)?;
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                Some((reader.as_fd(), at, len.min(bytes_max)))
            }
        }
    }
}

#[derive(Debug)]
pub enum Content {
    /// Nothing, and no length is announced (204, 304).
    None,
    /// Content in memory.
    Bytes(Vec<u8>),
    /// A part of a file, sent without copying.
    File { source: Source, offset_bytes: u64, len_bytes: u64 },
}

#[derive(Debug)]
pub struct Response {
    pub status: u16,
    /// Fields beside `Date`, `Server`, `Content-Length` and `Connection`.
    pub fields: Vec<(&'static str, String)>,
    pub content: Content,
    /// Whether the connection ends afterwards, whatever the client wants.
    pub close: bool,
    /// Why it was refused, for the log.
    pub reason: Option<&'static str>,
}

impl Response {
    pub fn empty(status: u16) -> Self {
        Self { status, fields: Vec::new(), content: Content::None, close: false, reason: None }
    }

    /// A refusal in one line of text.
    pub fn refusal(status: u16, reason: &'static str) -> Self {
        let text = format!("{status} {}: {reason}\n", phrase(status));
        let mut response = Self::text(status, "text/plain; charset=utf-8", text);
        response.reason = Some(reason);
        response
    }

    pub fn text(status: u16, media_type: &str, text: String) -> Self {
        let content = Content::Bytes(text.into_bytes());
        Self::empty(status).with("Content-Type", media_type).holding(content)
    }

    /// Adds a field. Values are this program's own text; what comes from outside is percent-encoded before.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    pub fn holding(mut self, content: Content) -> Self {
        self.content = content;
        self
    }

    pub fn closing(mut self) -> Self {
        self.close = true;
        self
    }

    pub fn len_bytes(&self) -> Option<u64> {
        match &self.content {
            Content::None => None,
            Content::Bytes(bytes) => Some(bytes.len() as u64),
            Content::File { len_bytes, .. } => Some(*len_bytes),
        }
    }

    pub fn write_head(&self, out: &mut Vec<u8>, date: &str, keep_alive: bool) {
        let mut head = HeadWriter(out);
        head.line(format_args!("HTTP/1.1 {} {}", self.status, phrase(self.status)));
        head.line(format_args!("Server: kagiri"));
        head.line(format_args!("Date: {date}"));
        for (name, value) in &self.fields {
            head.line(format_args!("{name}: {value}"));
        }
        if let Some(len) = self.len_bytes() {
            head.line(format_args!("Content-Length: {len}"));
        }
        head.line(format_args!("Connection: {}", if keep_alive { "keep-alive" } else { "close" }));
        head.line(format_args!(""));
    }
}

struct HeadWriter<'a>(&'a mut Vec<u8>);

impl HeadWriter<'_> {
    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a vector cannot fail.
        let _ = self.0.write_fmt(text);
        self.0.extend_from_slice(b"\r\n");
    }
}

/// The standard phrase of a status (RFC 9110, 15).
pub fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        304 => "Not Modified",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        _ => "Internal Server Error",
    }
}
