//! From a request to an answer: files, directories, the load page.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pool::{Pool, PoolFile};
use sys::file::{Directory, PendingFile, split_name};

use super::conditional::{Validator, Verdict};
use super::listing::Listing;
use super::range::{self, Range};
use super::request::{Method, Request};
use super::response::{Content, Response, Source};
use super::stats::Shared;
use super::target::percent_encode;
use super::{date, load_page, mime, reserved};

#[derive(Debug)]
pub struct Handler {
    /// The root; nothing outside it can be opened through it.
    pub root: Directory,
    pub upload: bool,
    pub pool: Option<Pool>,
    /// Whether only this host can connect.
    pub is_loopback: bool,
    /// For the load page.
    pub shared: Arc<Shared>,
}

impl Handler {
    /// Answers GET, HEAD, OPTIONS and DELETE. A name that is in the pool and on the file system is the
    /// pool's.
    ///
    /// The file is opened for each request: the kernel keeps its read-ahead per open file, so streams that
    /// shared one would spoil each other's when the file is not in memory.
    pub fn respond(&self, request: &Request) -> Response {
        if request.method == Method::Options {
            return Response::empty(204).with("Allow", self.allowed()).with("Accept-Ranges", "bytes");
        }
        if request.method == Method::Delete {
            return self.delete(request).unwrap_or_else(|refusal| refusal);
        }
        let path = &request.target.path;
        if path.starts_with(reserved::DIRECTORY) {
            return self.own(request);
        }
        if reserved::is_in_pool_folder(path) {
            return Response::refusal(404, "no such file");
        }
        if let Some(file) = self.pooled(path).filter(|_| !request.target.directory) {
            let (len_bytes, validator) = (file.len_bytes(), Validator::of_pool_file(&file));
            return match file.reader() {
                Err(e) => refuse_open(&e),
                Ok(reader) => send_file(request, Source::Pool(file, reader), len_bytes, &validator),
            };
        }
        let found = self.root.open_beneath(path).and_then(|f| f.metadata().map(|m| (f, m)));
        match found {
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.is_pool_folder(path) => {
                self.directory(request)
            }
            Err(e) => refuse_open(&e),
            Ok((_, metadata)) if metadata.is_dir() => self.directory(request),
            Ok((_, metadata)) if !metadata.is_file() => Response::refusal(403, "not a regular file"),
            Ok(_) if request.target.directory => Response::refusal(404, "no such directory"),
            Ok((file, metadata)) => {
                send_file(request, Source::File(file), metadata.len(), &Validator::of(&metadata))
            }
        }
    }

    pub fn allowed(&self) -> &'static str {
        if self.upload { "GET, HEAD, OPTIONS, PUT, DELETE" } else { "GET, HEAD, OPTIONS" }
    }

    /// The file at `path` in the pool.
    pub fn pooled(&self, path: &Path) -> Option<Arc<PoolFile>> {
        self.pool.as_ref()?.file(path.to_str()?)
    }

    /// Whether the pool has files below `path`.
    pub fn is_pool_folder(&self, path: &Path) -> bool {
        self.pool.as_ref().zip(path.to_str()).is_some_and(|(pool, path)| pool.has_folder(path))
    }

    /// Directory and name of a file that a client wants to write or delete, if it may have that name.
    pub fn changeable(&self, request: &Request) -> Result<(PathBuf, OsString), Response> {
        let path = &request.target.path;
        let is_reserved = path.starts_with(reserved::DIRECTORY) || reserved::is_in_pool_folder(path);
        let Some((parent, name)) = split_name(path).filter(|_| !request.target.directory && !is_reserved)
        else {
            return Err(Response::refusal(403, "not a place for a file"));
        };
        if name.as_bytes().starts_with(PendingFile::PREFIX.as_bytes()) {
            return Err(Response::refusal(403, "names of this kind are kept for unfinished uploads"));
        }
        Ok((parent, name))
    }

    fn own(&self, request: &Request) -> Response {
        if request.target.path != Path::new(reserved::DIRECTORY).join("load") {
            return Response::refusal(404, "no such page");
        }
        let stats = self.shared.stats();
        let response = if wants_json(request) {
            json(&stats)
        } else {
            Response::text(200, "text/html; charset=utf-8", load_page::html(&stats))
        };
        response.with("Cache-Control", "no-store")
    }

    fn directory(&self, request: &Request) -> Response {
        let path = &request.target.path;
        if !request.target.directory && !path.as_os_str().is_empty() {
            // One leading slash and encoded parts: the location can only be on this server.
            let location = format!("/{}/", percent_encode(path.as_os_str().as_bytes()));
            return Response::refusal(301, "a directory ends in a slash").with("Location", location);
        }
        let directory = match self.root.subdirectory(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.is_pool_folder(path) => Ok(None),
            opened => opened.map(Some),
        };
        match directory.and_then(|found| Listing::read(found.as_ref(), self.pool.as_ref(), path)) {
            Err(e) => refuse_open(&e),
            Ok(listing) if wants_json(request) => json(&listing).with("Vary", "Accept"),
            Ok(listing) => {
                Response::text(200, "text/html; charset=utf-8", listing.html()).with("Vary", "Accept")
            }
        }
    }
}

fn wants_json(request: &Request) -> bool {
    request.wants_json || request.target.asks("json")
}

fn json(value: &impl serde::Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => Response::text(200, "application/json", text + "\n"),
        Err(_) => Response::refusal(500, "the answer cannot be written as JSON"),
    }
}

/// The answer for a path that cannot be opened.
pub fn refuse_open(error: &io::Error) -> Response {
    const EXDEV: i32 = 18;
    const ELOOP: i32 = 40;
    match (error.kind(), error.raw_os_error()) {
        (_, Some(EXDEV)) => Response::refusal(403, "the path leads out of the served directory"),
        (_, Some(ELOOP)) => Response::refusal(403, "too many symbolic links"),
        (io::ErrorKind::NotFound | io::ErrorKind::NotADirectory, _) => Response::refusal(404, "no such file"),
        (io::ErrorKind::InvalidFilename, _) => Response::refusal(414, "a name is too long"),
        (io::ErrorKind::PermissionDenied, _) => Response::refusal(403, "no permission to read it"),
        // ENXIO: a socket, or a FIFO without a writer.
        (_, Some(6)) => Response::refusal(403, "not a regular file"),
        // EMFILE, ENFILE
        (_, Some(23 | 24)) => Response::refusal(503, "out of file descriptors").closing(),
        _ => Response::refusal(500, "the file cannot be opened"),
    }
}

fn send_file(request: &Request, source: Source, len_bytes: u64, validator: &Validator) -> Response {
    let tagged = |response: Response| {
        response
            .with("ETag", validator.etag.clone())
            .with("Last-Modified", date::format(validator.modified_s))
    };
    match validator.judge(&request.conditions) {
        Verdict::NotModified => return tagged(Response::empty(304)),
        Verdict::Failed => return Response::refusal(412, "the file is not the version asked for"),
        Verdict::Proceed => {}
    }
    // Ranges are defined for GET alone (RFC 9110, 14.2).
    let ranged = request.method == Method::Get && validator.range_applies(&request.conditions);
    let field = request.conditions.range.as_deref().filter(|_| ranged);
    let (status, offset_bytes, part_bytes) = match range::parse(field, len_bytes) {
        Range::Whole => (200, 0, len_bytes),
        Range::Part { start, len } => (206, start, len),
        Range::Unsatisfiable => {
            return Response::refusal(416, "the range lies outside the file")
                .with("Content-Range", format!("bytes */{len_bytes}"));
        }
    };
    let content = Content::File { source, offset_bytes, len_bytes: part_bytes };
    let response = tagged(Response::empty(status))
        .with("Content-Type", mime::of(request.target.path.as_os_str().as_bytes()))
        .with("Accept-Ranges", "bytes")
        .holding(content);
    if status == 206 {
        let last = offset_bytes + part_bytes - 1;
        return response.with("Content-Range", format!("bytes {offset_bytes}-{last}/{len_bytes}"));
    }
    response
}
