//! DELETE: a file is gone from the disk when it is answered.

use std::io;

use super::conditional::{Validator, Verdict, judge_put};
use super::destination::{refuse_directory, refuse_pool, refuse_version};
use super::handler::{Handler, refuse_open};
use super::request::Request;
use super::response::Response;

impl Handler {
    /// Removes a file. Of a name that is in the pool and on the file system, the latter goes first, so that
    /// it never appears in place of the pool's.
    pub fn delete(&self, request: &Request) -> Result<Response, Response> {
        if !self.upload {
            let refusal = Response::refusal(405, "deleting is not enabled");
            return Err(refusal.with("Allow", self.allowed()).closing());
        }
        let path = &request.target.path;
        let (parent, name) = self.changeable(request)?;
        let pooled = self.pooled(path);
        let current = match self.root.open_beneath(path).and_then(|f| f.metadata()) {
            _ if pooled.is_some() => pooled.as_deref().map(Validator::of_pool_file),
            Ok(metadata) if metadata.is_dir() => {
                return Err(Response::refusal(409, "a directory has this name"));
            }
            Ok(metadata) if !metadata.is_file() => return Err(Response::refusal(403, "not a regular file")),
            Ok(metadata) => Some(Validator::of(&metadata)),
            Err(_) if self.is_pool_folder(path) => {
                return Err(Response::refusal(409, "a directory has this name"));
            }
            Err(e) => return Err(refuse_open(&e)),
        };
        if judge_put(&request.conditions, current.as_ref()) == Verdict::Failed {
            return Err(refuse_version());
        }
        // Not through links: one could lead to the pool's own files.
        let removed = match self.root.subdirectory_without_links(&parent) {
            Ok(directory) => directory.remove_file(&name),
            Err(e) if pooled.is_some() && e.kind() == io::ErrorKind::NotFound => Err(e),
            Err(e) => return Err(refuse_directory(&e)),
        };
        let is_removed = match removed {
            Ok(()) => true,
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::IsADirectory) => false,
            Err(e) => return Err(refuse_remove(&e)),
        };
        let is_removed = match (&self.pool, path.to_str()) {
            (Some(pool), Some(name)) => pool.remove(name).map_err(|e| refuse_pool(&e))? || is_removed,
            _ => is_removed,
        };
        // Another client may have been faster.
        if is_removed { Ok(Response::empty(204)) } else { Err(Response::refusal(404, "no such file")) }
    }
}

fn refuse_remove(error: &io::Error) -> Response {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Response::refusal(403, "no permission to delete here")
        }
        _ => Response::refusal(500, "the file cannot be deleted"),
    }
}
