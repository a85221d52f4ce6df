//! What a directory holds, as JSON and as a page.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use pool::Pool;
use serde::Serialize;
use sys::file::{Directory, PendingFile};

use super::reserved::is_pool_folder;
use super::target::percent_encode;

/// Most entries listed, so that a huge directory cannot fill the memory.
const ENTRIES_MAX: usize = 10_000;

#[derive(Debug, Serialize)]
pub struct Listing {
    /// The directory's path from the root, with slashes at both ends.
    pub path: String,
    /// Its entries, directories first, then by name.
    pub entries: Vec<Entry>,
    pub truncated: bool,
}

/// One entry. What cannot be served (a link that leads out, a device) is left out.
#[derive(Debug, Serialize)]
pub struct Entry {
    /// File name; bytes that are not UTF-8 are replaced.
    pub name: String,
    /// How to ask for it, relative to the directory.
    pub href: String,
    /// `file` or `directory`.
    pub kind: &'static str,
    /// Length of a file.
    pub size_bytes: Option<u64>,
    /// Time of the last change, RFC 3339.
    pub modified: Option<String>,
}

impl Listing {
    /// Lists what is in `directory`, if there is one, and in the folder `path` of the pool.
    pub fn read(directory: Option<&Directory>, pool: Option<&Pool>, path: &Path) -> io::Result<Self> {
        let mut entries = Vec::new();
        let mut truncated = false;
        if let Some(directory) = directory {
            truncated |= read_directory(directory, path.as_os_str().is_empty(), &mut entries)?;
        }
        if let Some((pool, folder)) = pool.zip(path.to_str()) {
            truncated |= read_pool(pool, folder, &mut entries);
        }
        entries.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
        let mut path = format!("/{}/", path.display());
        if path == "//" {
            path.pop();
        }
        Ok(Self { path, entries, truncated })
    }

    pub fn html(&self) -> String {
        let title = escape(&self.path);
        let mut rows = String::new();
        if self.path != "/" {
            rows.push_str("<tr><td><a href=\"../\">../</a><td><td>\n");
        }
        for entry in &self.entries {
            let slash = if entry.kind == "directory" { "/" } else { "" };
            let size = entry.size_bytes.map(|b| b.to_string()).unwrap_or_default();
            rows.push_str(&format!(
                "<tr><td><a href=\"{}\">{}{slash}</a><td class=n>{size}<td>{}\n",
                entry.href,
                escape(&entry.name),
                entry.modified.as_deref().unwrap_or("")
            ));
        }
        if self.truncated {
            rows.push_str("<tr><td colspan=3>Only the first entries are shown.\n");
        }
        let table = format!("<table><tr><th>Name<th class=n>Bytes<th>Changed\n{rows}</table>");
        page(&title, "", &format!("{table}\n<p><a href=\"/.kagiri/load\">Load of this server</a>"))
    }
}

/// Returns whether there are too many.
fn read_directory(directory: &Directory, is_root: bool, entries: &mut Vec<Entry>) -> io::Result<bool> {
    for entry in directory.entries()? {
        let entry = entry?;
        let name = entry.file_name();
        let is_hidden = name.as_bytes().starts_with(PendingFile::PREFIX.as_bytes());
        if is_hidden || is_root && is_pool_folder(&name) {
            continue;
        }
        if entries.len() == ENTRIES_MAX {
            return Ok(true);
        }
        let metadata = match entry.file_type() {
            Ok(kind) if kind.is_symlink() => {
                directory.open_beneath(Path::new(&name)).and_then(|f| f.metadata())
            }
            Ok(_) => entry.metadata(),
            Err(e) => Err(e),
        };
        let Ok(metadata) = metadata else { continue };
        if !metadata.is_dir() && !metadata.is_file() {
            continue;
        }
        let size_bytes = (!metadata.is_dir()).then_some(metadata.len());
        entries.push(Entry::new(&name, size_bytes, metadata.modified().ok()));
    }
    Ok(false)
}

/// Adds what is in a folder of the pool, in place of files with the same names. Returns whether there are too
/// many.
fn read_pool(pool: &Pool, folder: &str, entries: &mut Vec<Entry>) -> bool {
    let files = pool.list_folder(folder, ENTRIES_MAX + 1).into_iter();
    let files =
        files.map(|(name, file)| Entry::new(name.as_ref(), Some(file.len_bytes()), Some(file.modified())));
    let folders = pool.subfolders(folder, ENTRIES_MAX + 1).into_iter();
    let pooled: Vec<_> = folders.map(|name| Entry::new(name.as_ref(), None, None)).chain(files).collect();
    let mut places: HashMap<_, _> =
        entries.iter().enumerate().map(|(at, entry)| (entry.href.clone(), at)).collect();
    for entry in pooled {
        match places.remove(&entry.href) {
            // A directory that both have has its time from the file system.
            Some(_) if entry.size_bytes.is_none() => {}
            Some(at) => entries[at] = entry,
            None if entries.len() == ENTRIES_MAX => return true,
            None => entries.push(entry),
        }
    }
    false
}

impl Entry {
    /// `size_bytes`: of a file; `None`: it is a directory.
    fn new(name: &OsStr, size_bytes: Option<u64>, modified: Option<SystemTime>) -> Self {
        let is_dir = size_bytes.is_none();
        Self {
            name: name.to_string_lossy().into_owned(),
            // `./` keeps a name with a colon from being read as a scheme.
            href: format!("./{}{}", percent_encode(name.as_bytes()), if is_dir { "/" } else { "" }),
            kind: if is_dir { "directory" } else { "file" },
            size_bytes,
            modified: modified.and_then(rfc3339),
        }
    }
}

fn rfc3339(time: SystemTime) -> Option<String> {
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    let second = i64::try_from(since.as_secs()).ok()?;
    jiff::Timestamp::from_second(second).ok().map(|t| t.to_string())
}

/// A page with the style of this server. `title` and `body` are HTML.
pub fn page(title: &str, head: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         {head}\n\
         <title>{title}</title>\n<style>:root{{color-scheme:light dark}}body{{\
         font:16px/1.5 system-ui,sans-serif;\
         max-width:60rem;margin:2rem auto;padding:0 1rem}}table{{border-collapse:collapse;width:100%}}\
         td,th{{padding:.2rem .6rem;text-align:left;border-bottom:1px solid #8884}}.n{{text-align:right;\
         font-variant-numeric:tabular-nums}}</style>\n<h1>{title}</h1>\n{body}\n</html>\n"
    )
}

pub fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            c => html.push(c),
        }
    }
    html
}
