//! PUT: content into a file that appears whole or not at all.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use pool::Pool;
use sys::file::Published;

use super::chunked::{Decoder, Step};
use super::conditional::{Validator, Verdict, judge_put, wants_new};
use super::destination::{Destination, FileDestination, PoolDestination, refuse_directory, refuse_version};
use super::handler::{Handler, refuse_open};
use super::request::{Conditions, Framing, Request};
use super::response::Response;
use super::target::percent_encode;

/// An upload under way. Dropping it leaves nothing behind.
#[derive(Debug)]
pub struct Upload {
    destination: Destination,
    path: PathBuf,
    conditions: Conditions,
    body: Body,
    written_bytes: u64,
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
        let (parent, name) = handler.changeable(request)?;
        let body = match request.framing {
            Framing::None => return Err(Response::refusal(411, "an upload needs Content-Length or chunks")),
            Framing::Length(len) if len > bytes_max => return Err(too_large()),
            Framing::Length(len) => Body::Left(len),
            Framing::Chunked => Body::Chunked(Decoder::default()),
        };
        check_replaceable(handler, path, &request.conditions)?;
        let len_bytes = if let Body::Left(len) = body { Some(len) } else { None };
        let destination = match &handler.pool {
            Some(pool) => Destination::Pool(begin_in_pool(handler, pool, path, &parent, len_bytes)?),
            None => {
                let directory = handler.root.subdirectory(&parent).map_err(|e| refuse_directory(&e))?;
                Destination::File(FileDestination::begin(directory, name, len_bytes)?)
            }
        };
        let (bytes_max, path) = (len_bytes.unwrap_or(bytes_max), path.clone());
        let conditions = request.conditions.clone();
        Ok(Self { destination, path, conditions, body, written_bytes: 0, bytes_max })
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
        self.destination.store(content, end, self.bytes_max)?;
        self.written_bytes = end;
        Ok(())
    }

    /// Gives the file its name: 201 for a new one, 204 for one that replaces another. The preconditions have
    /// to hold now, too: another upload may have ended meanwhile.
    pub fn finish(self, handler: &Handler) -> Response {
        let only_new = wants_new(&self.conditions);
        let checked = check_replaceable(handler, &self.path, &self.conditions);
        match checked.and_then(|()| self.destination.finish(self.written_bytes, only_new)) {
            Err(refusal) => refusal,
            Ok((tag, Published::Replaced)) => Response::empty(204).with("ETag", tag),
            Ok((tag, Published::Created)) => {
                let location = format!("/{}", percent_encode(self.path.as_os_str().as_bytes()));
                let text = "201 Created\n".to_owned();
                Response::text(201, "text/plain; charset=utf-8", text)
                    .with("ETag", tag)
                    .with("Location", location)
            }
        }
    }
}

/// Whether an upload may take the name `path` under these preconditions.
fn check_replaceable(handler: &Handler, path: &Path, conditions: &Conditions) -> Result<(), Response> {
    const EXDEV: i32 = 18;
    const ELOOP: i32 = 40;
    let is_conditional = *conditions != Conditions::default();
    let current = match handler.root.open_beneath(path).and_then(|f| f.metadata()) {
        Ok(metadata) if metadata.is_dir() => {
            return Err(Response::refusal(409, "a directory has this name"));
        }
        Ok(metadata) => Some(Validator::of(&metadata)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => None,
        // A link is replaced, not followed, wherever it leads.
        Err(error) if !is_conditional && matches!(error.raw_os_error(), Some(EXDEV | ELOOP)) => None,
        Err(error) => return Err(refuse_open(&error)),
    };
    let current = handler.pooled(path).map(|file| Validator::of_pool_file(&file)).or(current);
    match judge_put(conditions, current.as_ref()) {
        Verdict::Failed => Err(refuse_version()),
        _ => Ok(()),
    }
}

fn begin_in_pool(
    handler: &Handler,
    pool: &Pool,
    path: &Path,
    parent: &Path,
    len_bytes: Option<u64>,
) -> Result<PoolDestination, Response> {
    let Some(name) = path.to_str() else {
        return Err(Response::refusal(403, "in a pool, a name is UTF-8"));
    };
    if pool.has_folder(name) {
        return Err(Response::refusal(409, "a directory has this name"));
    }
    // A file in the pool has one path, so a link would give it another one.
    let directory = match handler.root.subdirectory_without_links(parent) {
        Ok(directory) => Some(directory),
        Err(error) if error.kind() == io::ErrorKind::NotFound && handler.is_pool_folder(parent) => None,
        Err(error) => return Err(refuse_directory(&error)),
    };
    PoolDestination::begin(pool, name.to_owned(), directory, len_bytes)
}

fn too_large() -> Response {
    Response::refusal(413, "the upload is longer than allowed").closing()
}
