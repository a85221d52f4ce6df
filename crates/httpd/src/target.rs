//! Request targets: from the bytes of the request line to a path relative to the root (RFC 9112, 3.2).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Longest path in bytes after decoding (`PATH_MAX` less the final NUL).
const PATH_BYTES_MAX: usize = 4095;

/// What a request is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Relative to the root, without `.`, `..`, empty or absolute parts; empty is the root itself.
    pub path: PathBuf,
    /// Whether the target ended in a slash, that is, names a directory.
    pub directory: bool,
    pub query: String,
}

impl Target {
    /// Whether the query holds `key` (with or without a value).
    pub fn asks(&self, key: &str) -> bool {
        self.query.split('&').any(|pair| pair.split('=').next() == Some(key))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadTarget {
    /// Not a path, bad percent-encoding, a NUL or `..`.
    Malformed(&'static str),
    TooLong,
}

/// Reads origin form (`/a/b?q`) and absolute form (`http://host/a/b?q`), and `*` as the root.
///
/// The path is decoded once. `..` is refused here so that the log can say so; that nothing outside the root
/// is opened does not rest on this but on [`sys::file::Directory`].
pub fn parse(raw: &str) -> Result<Target, BadTarget> {
    if raw == "*" {
        return Ok(Target { directory: true, ..Target::default() });
    }
    let origin = strip_authority(raw).ok_or(BadTarget::Malformed("the target is not a path"))?;
    let (path, query) = origin.split_once('?').unwrap_or((origin, ""));
    let decoded = percent_decode(path.as_bytes())?;
    let mut clean = Vec::with_capacity(decoded.len());
    for part in decoded.split(|&b| b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return Err(BadTarget::Malformed("the path holds ..")),
            name => {
                if !clean.is_empty() {
                    clean.push(b'/');
                }
                clean.extend_from_slice(name);
            }
        }
    }
    if clean.len() > PATH_BYTES_MAX {
        return Err(BadTarget::TooLong);
    }
    let directory = decoded.ends_with(b"/") || decoded.ends_with(b"/.");
    Ok(Target { path: PathBuf::from(OsString::from_vec(clean)), directory, query: query.to_owned() })
}

/// The part from the first slash of the path on.
fn strip_authority(raw: &str) -> Option<&str> {
    if raw.starts_with('/') {
        return Some(raw);
    }
    let scheme_end = raw.find("://")?;
    if !matches!(raw[..scheme_end].to_ascii_lowercase().as_str(), "http" | "https") {
        return None;
    }
    let rest = &raw[scheme_end + 3..];
    Some(rest.find(['/', '?']).map_or("/", |at| if rest.as_bytes()[at] == b'/' { &rest[at..] } else { "/" }))
}

fn percent_decode(raw: &[u8]) -> Result<Vec<u8>, BadTarget> {
    let mut decoded = Vec::with_capacity(raw.len());
    let mut at = 0;
    while at < raw.len() {
        let byte = if raw[at] == b'%' {
            let pair =
                raw.get(at + 1..at + 3).ok_or(BadTarget::Malformed("a percent sign without two digits"))?;
            at += 2;
            match (hex(pair[0]), hex(pair[1])) {
                (Some(high), Some(low)) => high << 4 | low,
                _ => return Err(BadTarget::Malformed("a percent sign without two digits")),
            }
        } else {
            raw[at]
        };
        if byte == 0 {
            return Err(BadTarget::Malformed("the path holds a NUL"));
        }
        decoded.push(byte);
        at += 1;
    }
    Ok(decoded)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|d| d as u8)
}

/// A path as it is written in a URL, without a leading slash.
pub fn percent_encode(path: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut text = String::with_capacity(path.len());
    for &byte in path {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push('%');
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn targets_become_clean_relative_paths() {
        for (raw, path, directory) in [
            ("/", "", true),
            ("*", "", true),
            ("/a/b", "a/b", false),
            ("//a//./b/", "a/b", true),
            ("/a%20b%2Fc", "a b/c", false),
            ("http://host:80/a?x=1", "a", false),
            ("http://host", "", true),
            ("http://host?x/y", "", true),
        ] {
            let target = parse(raw).unwrap();
            assert_eq!((target.path.to_str().unwrap(), target.directory), (path, directory), "{raw}");
        }
        assert!(parse("/a?json&b=1").unwrap().asks("json"));
        assert!(!parse("/a?jsonx").unwrap().asks("json"));
    }

    #[test]
    fn hostile_targets_are_refused() {
        for raw in [
            "",
            "a",
            "ftp://h/x",
            "/../x",
            "/a/%2e%2E/b",
            "/%2e%2e%2fetc",
            "/%00",
            "/a%",
            "/a%f",
            "/a%zz",
            "/a%+1",
        ] {
            assert!(matches!(parse(raw), Err(BadTarget::Malformed(_))), "{raw}");
        }
        assert_eq!(parse(&format!("/{}", "a".repeat(5000))), Err(BadTarget::TooLong));
    }

    proptest::proptest! {
        #[test]
        fn encoding_and_decoding_are_inverse(parts in proptest::collection::vec("[^/\u{0}]{1,8}", 1..4)) {
            let path = parts.join("/");
            proptest::prop_assume!(!parts.iter().any(|p| p == "." || p == ".."));
            let target = parse(&format!("/{}", percent_encode(path.as_bytes()))).unwrap();
            proptest::prop_assert_eq!(target.path.as_os_str().as_bytes(), path.as_bytes());
        }

        #[test]
        fn targets_never_lead_up(raw in "\\PC{0,40}|(/|\\.|%2e|%2f|%00|a|\\\\){0,20}") {
            if let Ok(target) = parse(&raw) {
                let is_name = |c| matches!(c, std::path::Component::Normal(_));
                proptest::prop_assert!(target.path.components().all(is_name));
            }
        }
    }
}
