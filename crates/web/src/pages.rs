//! The files of `ui/dist`: those that this build has, or those of a folder.

use std::path::{Component, Path, PathBuf};

use bytes::Bytes;

include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// A file of `ui/dist`.
struct Embedded {
    name: &'static str,
    plain: &'static [u8],
    gzip: &'static [u8],
    etag: &'static str,
}

const PAGE_BYTES_MAX: u64 = 16 << 20;

pub struct Pages {
    folder: Option<PathBuf>,
}

/// A page to send.
pub struct Page {
    pub name: String,
    pub content: Bytes,
    pub is_gzip: bool,
    /// `None`: the file may change.
    pub etag: Option<&'static str>,
}

impl Pages {
    pub fn new(folder: Option<PathBuf>) -> Self {
        Self { folder }
    }

    /// `takes_gzip`: whether the client accepts it.
    pub fn find(&self, name: &str, takes_gzip: bool) -> Option<Page> {
        if let Some(folder) = &self.folder {
            let relative = Path::new(name);
            if !relative.components().all(|part| matches!(part, Component::Normal(_))) {
                return None;
            }
            let text = read(&folder.join(relative))?;
            return Some(Page { name: name.to_owned(), content: text.into(), is_gzip: false, etag: None });
        }
        let found = EMBEDDED.iter().find(|page| page.name == name)?;
        let content = if takes_gzip { found.gzip } else { found.plain };
        Some(Page {
            name: name.to_owned(),
            content: Bytes::from_static(content),
            is_gzip: takes_gzip,
            etag: Some(found.etag),
        })
    }
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let found = std::fs::metadata(path).ok()?;
    (found.is_file() && found.len() <= PAGE_BYTES_MAX).then(|| std::fs::read(path).ok())?
}
