//! PUT: content into a file that appears whole or not at all.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use sys::file::{PendingFile, Published, split_name};

use super::chunked::{Decoder, Step};
use super::conditional::{Validator, Verdict, judge_put};
use super::handler::{Handler, RESERVED_DIRECTORY, refuse_open};
use super::request::{Framing, Request};
use super::response::Response;
use super::target::percent_encode;

/// Space reserved ahead of an upload of unknown length.
const RESERVE_STEP_BYTES: u64 = 64 << 20;
/// An upload reserves at most this part of the free space before its content comes.
const RESERVE_SHARE: u64 = 2;

/// An upload under way. Dropping it leaves nothing behind.
#[derive(Debug)]
pub struct Upload {
    pending: PendingFile,
    name: OsString,
    path: PathBuf,
    body: Body,
    written_bytes: u64,
    /// Space asked for so far; `None`: this file system cannot reserve.
    reserved_bytes: Option<u64>,
    bytes_max: u64,
}

#[derive(Debug)]
enum Body {
    Left(u64),
    Chunked(Decoder),
}

impl Upload {
    /// Checks everything that can be checked before the content, and makes room for it.
    pub fn begin(handler: &Handler, request: &Request, bytes_max: u64) -> Result<Self, Response> {
        if !handler.upload {
            return Err(Response::refusal(405, "uploads are not enabled").with("Allow", handler.allowed()));
        }
        let path = &request.target.path;
        let named =
            split_name(path).filter(|_| !request.target.directory && !path.starts_with(RESERVED_DIRECTORY));
        let Some((parent, name)) = named else {
            return Err(Response::refusal(403, "not a place for a file"));
        };
        if name.as_bytes().starts_with(PendingFile::PREFIX.as_bytes()) {
            return Err(Response::refusal(403, "names of this kind are kept for unfinished uploads"));
        }
        let body = match request.framing {
            Framing::None => return Err(Response::refusal(411, "an upload needs Content-Length or chunks")),
            Framing::Length(len) if len > bytes_max => return Err(too_large()),
            Framing::Length(len) => Body::Left(len),
            Framing::Chunked => Body::Chunked(Decoder::default()),
        };
        let current = match handler.root.open_beneath(path).and_then(|f| f.metadata()) {
            Ok(metadata) if metadata.is_dir() => {
                return Err(Response::refusal(409, "a directory has this name"));
            }
            Ok(metadata) => Some(Validator::of(&metadata)),
            Err(error) if error.kind() == io::ErrorKind::InvalidFilename => return Err(refuse_open(&error)),
            Err(_) => None,
        };
        if judge_put(&request.conditions, current.as_ref()) == Verdict::Failed {
            return Err(Response::refusal(412, "the file is not the version asked for"));
        }
        let directory = handler.root.subdirectory(&parent).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                Response::refusal(409, "no such directory")
            }
            _ => refuse_open(&e),
        })?;
        let pending = PendingFile::create(directory).map_err(|e| refuse_write(&e))?;
        let reserved_bytes = match body {
            Body::Left(len) => reserve_all(&pending, len).map_err(|e| refuse_write(&e))?,
            Body::Chunked(_) => Some(0),
        };
        let bytes_max = if let Body::Left(len) = body { len } else { bytes_max };
        let path = path.clone();
        Ok(Self { pending, name, path, body, written_bytes: 0, reserved_bytes, bytes_max })
    }

    /// How much to receive at most, so that nothing beyond this upload and a bounded piece of the next
    /// request is taken from the connection.
    pub fn wants_bytes(&self, chunked_max: usize) -> usize {
        match &self.body {
            Body::Left(left) => usize::try_from(*left).unwrap_or(usize::MAX),
            Body::Chunked(_) => chunked_max,
        }
    }

    pub fn is_complete(&self) -> bool {
        match &self.body {
            Body::Left(left) => *left == 0,
            Body::Chunked(decoder) => decoder.is_done(),
        }
    }

    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Takes content from the start of `input`; returns how much of it was this upload's.
    pub fn take(&mut self, input: &[u8]) -> Result<usize, Response> {
        let mut at = 0;
        while at < input.len() && !self.is_complete() {
            let rest = &input[at..];
            let step = match &mut self.body {
                Body::Left(left) => {
                    Step::Content(usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len()))
                }
                Body::Chunked(decoder) => {
                    decoder.step(rest).map_err(|bad| Response::refusal(400, bad.0).closing())?
                }
            };
            match step {
                Step::Done => break,
                Step::Framing(n) => at += n,
                Step::Content(n) => {
                    self.store(&rest[..n])?;
                    match &mut self.body {
                        Body::Left(left) => *left -= n as u64,
                        Body::Chunked(decoder) => decoder.took(n),
                    }
                    at += n;
                }
            }
        }
        Ok(at)
    }

    fn store(&mut self, content: &[u8]) -> Result<(), Response> {
        let end = self.written_bytes.saturating_add(content.len() as u64);
        if end > self.bytes_max {
            return Err(too_large());
        }
        if let Some(reserved) = self.reserved_bytes
            && end > reserved
        {
            let share = self.pending.space().map_or(u64::MAX, |space| space.available_bytes / RESERVE_SHARE);
            let step = RESERVE_STEP_BYTES.min(share).max(end - reserved).min(self.bytes_max - reserved);
            self.reserved_bytes = match self.pending.reserve(reserved, step, false) {
                Ok(true) => Some(reserved + step),
                // Less than a whole step may still be free: the writes show it.
                Ok(false) | Err(_) => None,
            };
        }
        let mut file = self.pending.file();
        file.write_all(content).map_err(|e| refuse_write(&e))?;
        self.written_bytes = end;
        Ok(())
    }

    /// Gives the file its name: 201 for a new one, 204 for one that replaces another.
    pub fn finish(self) -> Response {
        let trimmed = self.pending.file().set_len(self.written_bytes);
        let tag = trimmed.and_then(|()| self.pending.file().metadata()).map(|m| Validator::of(&m).etag);
        let published = tag.and_then(|tag| Ok((self.pending.publish(&self.name)?, tag)));
        match published {
            Err(e) => refuse_write(&e),
            Ok((Published::Replaced, tag)) => Response::empty(204).with("ETag", tag),
            Ok((Published::Created, tag)) => {
                let location = format!("/{}", percent_encode(self.path.as_os_str().as_bytes()));
                let text = "201 Created\n".to_owned();
                Response::text(201, "text/plain; charset=utf-8", text)
                    .with("ETag", tag)
                    .with("Location", location)
            }
        }
    }
}

/// Reserves an upload of `len_bytes` in one request, so that the file system can lay it out in one piece;
/// returns how much is reserved. What no single upload may take at once is reserved step by step.
fn reserve_all(pending: &PendingFile, len_bytes: u64) -> io::Result<Option<u64>> {
    // Some file systems do not know their size.
    let space = pending.space().ok().filter(|space| space.total_bytes > 0);
    match space.map(|space| space.available_bytes) {
        Some(free) if len_bytes > free => Err(io::ErrorKind::StorageFull.into()),
        Some(free) if len_bytes > free / RESERVE_SHARE => Ok(Some(0)),
        _ => Ok(pending.reserve(0, len_bytes, true)?.then_some(len_bytes)),
    }
}

fn too_large() -> Response {
    Response::refusal(413, "the upload is longer than allowed").closing()
}

fn refuse_write(error: &io::Error) -> Response {
    let refusal = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Response::refusal(507, "no space left"),
        io::ErrorKind::FileTooLarge => Response::refusal(413, "longer than the file system allows"),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Response::refusal(403, "no permission to write here")
        }
        io::ErrorKind::IsADirectory => Response::refusal(409, "a directory has this name"),
        _ => Response::refusal(500, "the upload cannot be stored"),
    };
    refusal.closing()
}
