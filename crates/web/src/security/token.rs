//! The login token, and the sessions that it opens.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, bail};
use ring::hmac;

use crate::jobs::{read_json, write_json};

/// 256 bits as hexadecimal digits.
const TOKEN_DIGITS: usize = 64;
const FILE_BYTES_MAX: u64 = 1024;
/// How long a login lasts.
pub const SESSION_S: i64 = 7 * 24 * 3600;

/// The secret of a console. Who has it can do what the user of the server can do with kagiri.
///
/// A session is a text that this server signed with it: sessions outlive a restart of the server, and end
/// with the token.
pub struct Token {
    text: String,
    key: hmac::Key,
    cookie: String,
    /// Ends of sessions that were logged out, by their numbers; they are in the file, too.
    ended: Mutex<BTreeMap<String, i64>>,
    ended_file: PathBuf,
}

impl Token {
    /// The token in a file, which is made if there is none.
    /// Errors: the file is readable by others, or no token.
    pub fn load_or_make(path: &Path) -> anyhow::Result<Self> {
        let ended_file = path.with_file_name("ended");
        match fs::metadata(path) {
            Ok(found) if found.permissions().mode() & 0o077 != 0 => bail!(
                "{}: other users can read this token; remove the file, and a new token is made",
                path.display()
            ),
            Ok(_) => {
                let text = sys::file::read_text(path, FILE_BYTES_MAX)
                    .with_context(|| format!("cannot read the token {}", path.display()))?;
                let text = text.trim();
                if text.len() != TOKEN_DIGITS || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                    bail!("{}: this is no token; remove the file, and a new one is made", path.display());
                }
                Ok(Self::new(text, ended_file))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let text = hex(&sys::random::bytes::<32>());
                let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
                written
                    .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
                    .with_context(|| format!("cannot write the token {}", path.display()))?;
                Ok(Self::new(&text, ended_file))
            }
            Err(error) => Err(error).with_context(|| format!("cannot read the token {}", path.display())),
        }
    }

    fn new(text: &str, ended_file: PathBuf) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, text.as_bytes());
        let mark = hmac::sign(&key, b"cookie");
        let cookie = format!("kagiri_session_{}", hex(&mark.as_ref()[..4]));
        let ended = Mutex::new(read_json(&ended_file).unwrap_or_default());
        Self { text: text.to_owned(), key, cookie, ended, ended_file }
    }

    /// Name of the cookie with the session. Cookies do not distinguish ports: another console on this host
    /// has another name.
    pub fn cookie(&self) -> &str {
        &self.cookie
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Compares in constant time: as signatures, which `ring` compares so.
    pub fn is_right(&self, presented: &str) -> bool {
        let own = hmac::sign(&self.key, self.text.as_bytes());
        hmac::verify(&self.key, presented.as_bytes(), own.as_ref()).is_ok()
    }

    /// A session that begins at `now_s`, in seconds since 1970.
    pub fn open_session(&self, now_s: i64) -> String {
        let content = format!("{}.{}", now_s + SESSION_S, hex(&sys::random::bytes::<16>()));
        let signature = hmac::sign(&self.key, content.as_bytes());
        format!("{content}.{}", hex(signature.as_ref()))
    }

    pub fn is_session(&self, session: &str, now_s: i64) -> bool {
        let Some((end_s, number)) = self.signed(session) else { return false };
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        now_s < end_s && !ended.contains_key(number)
    }

    /// Ends a session, also for the next server. Without space on the disk, it ends for this one.
    pub fn end_session(&self, session: &str, now_s: i64) {
        let Some((end_s, number)) = self.signed(session) else { return };
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.retain(|_, end_s| *end_s > now_s);
        ended.insert(number.to_owned(), end_s);
        let _ = write_json(&self.ended_file, &*ended);
    }

    /// End and number of a session that this server signed.
    fn signed<'a>(&self, session: &'a str) -> Option<(i64, &'a str)> {
        let (content, signature) = session.rsplit_once('.')?;
        hmac::verify(&self.key, content.as_bytes(), &from_hex(signature)?).ok()?;
        let (end_s, number) = content.split_once('.')?;
        Some((end_s.parse().ok()?, number))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    if !text.len().is_multiple_of(2) {
        return None;
    }
    text.as_bytes().chunks(2).map(|pair| Some((digit(pair[0])? << 4) | digit(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_kept_private_and_recognised() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let token = Token::load_or_make(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Token::load_or_make(&path).unwrap().text(), token.text());
        assert!(token.is_right(token.text()));
        for wrong in ["", &token.text()[1..], &token.text().to_uppercase(), &format!("{}0", token.text())] {
            assert!(wrong == token.text() || !token.is_right(wrong), "{wrong}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Token::load_or_make(&path).is_err());
        fs::write(&path, "short").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(Token::load_or_make(&path).is_err());
    }

    #[test]
    fn session_ends_by_time_by_logout_and_with_its_token() {
        let folder = tempfile::tempdir().unwrap();
        let new = |digit: &str| Token::new(&digit.repeat(TOKEN_DIGITS), folder.path().join("ended"));
        let token = new("a");
        let session = token.open_session(1000);
        assert!(token.is_session(&session, 1000) && token.is_session(&session, 999 + SESSION_S));
        assert!(!token.is_session(&session, 1000 + SESSION_S));
        let later = session.replacen('6', "7", 1);
        for forged in [later.as_str(), "", "..", "1.2", &session[..session.len() - 1], &format!("{session}0")]
        {
            assert!(forged == session || !token.is_session(forged, 1000), "{forged}");
        }
        assert!(!new("b").is_session(&session, 1000));
        token.end_session(&session, 1000);
        assert!(!token.is_session(&session, 1000));
        assert!(token.is_session(&token.open_session(1000), 1000));
        // The next server on this folder knows it, too; a console with another token has another cookie.
        let next = new("a");
        assert!(!next.is_session(&session, 1000) && next.is_session(&next.open_session(1000), 1000));
        assert_eq!(fs::metadata(folder.path().join("ended")).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(next.cookie() == token.cookie() && next.cookie() != new("b").cookie());
    }
}
