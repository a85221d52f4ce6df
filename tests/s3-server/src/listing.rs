//! A page of a listing, for both versions of the request.

use std::sync::Arc;

use s3s::dto::{CommonPrefix, ETag, Object as Listed};

use crate::objects::{Object, Objects};

/// Most keys of a page, as of S3.
const PAGE_MAX: i32 = 1000;

pub(crate) struct Query<'a> {
    pub prefix: &'a str,
    pub delimiter: Option<&'a str>,
    /// Keys up to this one are left out.
    pub after: &'a str,
    pub max: Option<i32>,
    /// Whether keys are written as in a URI.
    pub is_encoded: bool,
}

#[derive(Default)]
pub(crate) struct Page {
    pub contents: Vec<Listed>,
    pub prefixes: Vec<CommonPrefix>,
    pub max: i32,
    /// The last key or prefix of the page, if more follow.
    pub next: Option<String>,
}

impl Page {
    pub(crate) fn count(&self) -> i32 {
        (self.contents.len() + self.prefixes.len()) as i32
    }
}

pub(crate) fn page(objects: &Objects, query: &Query<'_>) -> Page {
    let text = |text: &str| if query.is_encoded { encoded(text) } else { text.to_owned() };
    let max = query.max.unwrap_or(PAGE_MAX).clamp(0, PAGE_MAX);
    let mut page = Page { max, ..Page::default() };
    let mut last = String::new();
    let from = query.prefix.max(query.after).to_owned();
    for (key, object) in objects.range(from..).take_while(|(key, _)| key.starts_with(query.prefix)) {
        let group = query.delimiter.filter(|delimiter| !delimiter.is_empty()).and_then(|delimiter| {
            let at = key[query.prefix.len()..].find(delimiter)?;
            Some(&key[..query.prefix.len() + at + delimiter.len()])
        });
        let name = group.unwrap_or(key);
        // A group whose name was the marker is done, and so is one that this page has.
        let is_done = name <= query.after && !query.after.is_empty() || group.is_some() && name == last;
        if is_done || group.is_some_and(|group| query.after.starts_with(group)) {
            continue;
        }
        if page.count() >= max {
            page.next = (max > 0).then(|| last.clone());
            break;
        }
        match group {
            Some(group) => page.prefixes.push(CommonPrefix { prefix: Some(text(group)) }),
            None => page.contents.push(listed(text(key), object)),
        }
        name.clone_into(&mut last);
    }
    page
}

fn listed(key: String, object: &Arc<Object>) -> Listed {
    Listed {
        key: Some(key),
        size: Some(object.size as i64),
        e_tag: Some(ETag::Strong(object.etag.clone())),
        last_modified: Some(object.modified.into()),
        storage_class: Some("STANDARD".to_owned().into()),
        ..Listed::default()
    }
}

/// As `encoding-type=url` asks for.
pub(crate) fn encoded(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => {
                all.push(byte.into());
            }
            _ => all.push_str(&format!("%{byte:02X}")),
        }
    }
    all
}
