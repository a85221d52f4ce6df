//! Entity tags, dates and preconditions (RFC 9110, 13).

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use pool::PoolFile;

use super::date;
use super::request::Conditions;

/// What identifies a version of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validator {
    /// Strong entity tag with its quotes: inode, length and modification time to the nanosecond. An upload
    /// makes a new inode, so two versions share a tag only if a file was rewritten in place within one clock
    /// tick.
    pub etag: String,
    /// Modification time, seconds since 1970.
    pub modified_s: i64,
}

/// What the preconditions say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go on.
    Proceed,
    /// 304: the client has this version.
    NotModified,
    /// 412: it is not the version the client wants.
    Failed,
}

impl Validator {
    /// From a file's metadata.
    pub fn of(metadata: &Metadata) -> Self {
        let mtime_ns = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
        let etag = format!("\"{:x}-{:x}-{:x}\"", metadata.ino(), metadata.len(), mtime_ns);
        Self { etag, modified_s: metadata.mtime() }
    }

    /// Of a file in a pool. A pool made anew may come to the same versions, at other times.
    pub fn of_pool_file(file: &PoolFile) -> Self {
        let etag = format!("\"p{:x}-{:x}-{:x}\"", file.version(), file.len_bytes(), file.mtime_ns());
        Self { etag, modified_s: file.mtime_ns().div_euclid(1_000_000_000) }
    }

    /// Evaluates the preconditions of a GET or HEAD in the standard's order (RFC 9110, 13.2.2).
    pub fn judge(&self, conditions: &Conditions) -> Verdict {
        if let Some(tags) = &conditions.if_match {
            if !self.is_listed(tags, false) {
                return Verdict::Failed;
            }
        } else if let Some(limit) = conditions.if_unmodified_since.as_deref().and_then(date::parse)
            && self.modified_s > limit
        {
            return Verdict::Failed;
        }
        if let Some(tags) = &conditions.if_none_match {
            if self.is_listed(tags, true) {
                return Verdict::NotModified;
            }
        } else if let Some(limit) = conditions.if_modified_since.as_deref().and_then(date::parse)
            && self.modified_s <= limit
        {
            return Verdict::NotModified;
        }
        Verdict::Proceed
    }

    /// Whether a `Range` field counts: without `If-Range`, or when that names this version.
    pub fn range_applies(&self, conditions: &Conditions) -> bool {
        match conditions.if_range.as_deref() {
            None => true,
            Some(tag) if tag.starts_with(b"\"") => tag == self.etag.as_bytes(),
            Some(tag) if tag.starts_with(b"W/") => false,
            Some(when) => date::parse(when) == Some(self.modified_s),
        }
    }

    /// Whether a list of tags names this version; a weak comparison overlooks `W/`.
    fn is_listed(&self, tags: &[u8], weak: bool) -> bool {
        tags.split(|&b| b == b',').map(<[u8]>::trim_ascii).any(|tag| {
            let tag = if weak { tag.strip_prefix(b"W/").unwrap_or(tag) } else { tag };
            tag == b"*" || tag == self.etag.as_bytes()
        })
    }
}

/// Whether the preconditions of a PUT hold only where nothing has the name (`If-None-Match: *`).
pub fn wants_new(conditions: &Conditions) -> bool {
    conditions.if_none_match.as_deref().is_some_and(|tags| tags.trim_ascii() == b"*")
}

/// The preconditions of a PUT or DELETE: `current` is the file it would replace or remove, if there is one.
pub fn judge_put(conditions: &Conditions, current: Option<&Validator>) -> Verdict {
    let failed = match current {
        None => conditions.if_match.is_some(),
        Some(current) => {
            conditions.if_none_match.as_deref().is_some_and(|tags| current.is_listed(tags, true))
                || current.judge(&Conditions {
                    if_none_match: None,
                    if_modified_since: None,
                    ..conditions.clone()
                }) == Verdict::Failed
        }
    };
    if failed { Verdict::Failed } else { Verdict::Proceed }
}
