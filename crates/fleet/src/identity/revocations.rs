//! Which certificates the authority has issued, and which of them it has revoked.
//!
//! ```text
//! ca/issued        SERIAL MEMBER, one line for each certificate
//! ca/revoked       SERIAL MEMBER SECONDS, since 1970
//! ca/revoked.pem   the signed list (CRL), for bundles
//! ```

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::authority::{Authority, RevokedEntry, hex};
use super::credentials::{Certificate, REVOKED_FILE};
use super::name::Member;
use super::{IdentityError, file};

pub(super) struct Revocations<'a> {
    /// The authority's folder.
    pub ca: &'a Path,
}

impl Revocations<'_> {
    fn lines(&self, name: &str) -> Result<String, IdentityError> {
        let path = self.ca.join(name);
        if path.exists() { file::read(&path) } else { Ok(String::new()) }
    }

    fn append(&self, name: &str, line: &str) -> Result<(), IdentityError> {
        file::append(&self.ca.join(name), line)
    }

    pub fn note_issued(&self, member: &Member, serial: &str) -> Result<(), IdentityError> {
        self.append("issued", &format!("{serial} {member}\n"))
    }

    /// Serial numbers of a member's certificates that are not revoked yet. Fleets of older versions have no
    /// list; the member's bundle has its newest certificate.
    pub fn serials(&self, member: &Member, bundle: &Path) -> Result<Vec<String>, IdentityError> {
        let name = member.to_string();
        let issued = self.lines("issued")?;
        let of_member = issued.lines().filter_map(|line| line.split_once(' ')).filter(|(_, of)| *of == name);
        let mut serials: Vec<String> = of_member.map(|(serial, _)| serial.to_owned()).collect();
        let path = bundle.join("cert.pem");
        if path.exists() {
            let newest = Certificate::read(&path, &file::read(&path)?)?;
            // All coordinators have the same folder.
            if newest.holder()? == *member {
                serials.push(hex(&newest.serial()?));
            }
        }
        let revoked = self.lines("revoked")?;
        serials.retain(|serial| !revoked.lines().any(|line| line.split(' ').next() == Some(serial)));
        serials.sort_unstable();
        serials.dedup();
        Ok(serials)
    }

    /// Adds certificates to the list and signs it.
    pub fn revoke(
        &self,
        authority: &Authority,
        member: &Member,
        serials: &[String],
        now: SystemTime,
    ) -> Result<(), IdentityError> {
        if serials.is_empty() {
            return Ok(());
        }
        let at_s = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let lines: String = serials.iter().map(|serial| format!("{serial} {member} {at_s}\n")).collect();
        self.append("revoked", &lines)?;
        let revoked = self.lines("revoked")?;
        let entry = |line: &str| {
            let mut words = line.split(' ');
            let (serial, at_s) = (words.next()?.to_owned(), words.nth(1)?.parse().ok()?);
            Some(RevokedEntry { serial, at_s })
        };
        let entries: Vec<RevokedEntry> = revoked.lines().filter_map(entry).collect();
        file::replace(&self.ca.join(REVOKED_FILE), &authority.sign_revoked(&entries, now)?)
    }
}
