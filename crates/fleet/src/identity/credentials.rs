//! The credentials in a bundle, with their checks.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{KeyPair, PublicKeyData};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::name::{Member, MemberKind};
use super::{IdentityError, file};

/// The authority's list of revoked certificates (CRL, RFC 5280).
pub(super) const REVOKED_FILE: &str = "revoked.pem";

/// Time to replace credentials before they end.
const EXPIRY_WARNING_DAYS: u32 = 14;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Agent,
    Coordinator,
}

/// User and password of a fleet with passwords.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The member, as in zenoh's access control.
    pub user: String,
    pub password: String,
}

impl std::fmt::Debug for Login {
    /// Without the password, which must not reach logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone)]
pub struct Credentials {
    pub dir: PathBuf,
    pub ca: PathBuf,
    /// The holder's certificate and key; absent for an agent with a password.
    pub pair: Option<(PathBuf, PathBuf)>,
    pub login: Option<Login>,
    /// Passwords of all members, for the listening side.
    pub users: Option<PathBuf>,
    /// All members, for the listening side.
    pub members: Vec<Member>,
    /// Revoked certificates, if the bundle lists any.
    pub revoked: Option<PathBuf>,
    pub holder: Member,
    /// Earliest end of the certificates.
    pub not_after: SystemTime,
}

impl Credentials {
    /// Reads and checks a bundle: complete files, private keys, certificates valid today and signed by the
    /// authority.
    pub fn load(dir: &Path) -> Result<Self, IdentityError> {
        Self::load_at(dir, SystemTime::now())
    }

    pub fn load_at(dir: &Path, now: SystemTime) -> Result<Self, IdentityError> {
        let absolute = std::path::absolute(dir).map_err(file::failed("find", dir))?;
        let dir = absolute.as_path();
        // These characters separate paths in zenoh's lists.
        if dir.to_str().is_none_or(|text| text.contains([';', '|', '#', '?'])) {
            return Err(IdentityError::invalid(
                dir,
                "the folder's name must be UTF-8 without ';', '|', '#' and '?'",
            ));
        }
        let at = |name: &str| dir.join(name);
        let there = |name: &str| Some(at(name)).filter(|path| path.exists());
        if !dir.is_dir() {
            return Err(IdentityError::invalid(
                dir,
                "there is no such folder; 'kagiri fleet init' makes bundles",
            ));
        }
        let ca = Certificate::read(&at("ca.pem"), &file::read(&at("ca.pem"))?)?;
        ca.check_time(now)?;
        let login = there("login").map(|path| read_login(&path)).transpose()?;
        let pair = match (there("cert.pem"), &login) {
            (None, Some(_)) => None,
            _ => Some(check_pair(dir, &ca, now)?),
        };
        let holder = match (&pair, &login) {
            (Some(certificate), _) => certificate.holder()?,
            (None, Some(login)) => login.user.parse()?,
            (None, None) => {
                return Err(IdentityError::invalid(dir, "it holds neither a certificate nor a password"));
            }
        };
        let users =
            there("users").map(|path| file::read_secret(&path).map(|text| (path, text))).transpose()?;
        let members = match (&users, there("members")) {
            (Some((path, text)), _) => {
                read_members(path, text, |line| line.split(':').next().unwrap_or(line))?
            }
            (None, Some(path)) => read_members(&path, &file::read(&path)?, |line| line)?,
            (None, None) => Vec::new(),
        };
        if holder.kind != MemberKind::Agent && members.is_empty() {
            let problem =
                "the list of the fleet's members (members, or users) is missing; copy the whole bundle again";
            return Err(IdentityError::invalid(dir, problem));
        }
        let ends = pair.as_ref().map_or(ca.not_after, |pair| pair.not_after.min(ca.not_after));
        Ok(Self {
            dir: dir.to_owned(),
            ca: at("ca.pem"),
            pair: pair.map(|_| (at("cert.pem"), at("key.pem"))),
            login,
            users: users.map(|(path, _)| path),
            members,
            revoked: there(REVOKED_FILE),
            holder,
            not_after: ends,
        })
    }

    pub fn role(&self) -> Role {
        match self.holder.kind {
            MemberKind::Agent => Role::Agent,
            MemberKind::Coordinator | MemberKind::Router => Role::Coordinator,
        }
    }

    pub fn name(&self) -> &str {
        &self.holder.name
    }

    /// Names of the fleet's hosts, if the bundle lists them: those of the listening side do.
    pub fn hosts(&self) -> Vec<String> {
        let agents = self.members.iter().filter(|member| member.kind == MemberKind::Agent);
        agents.map(|member| member.name.clone()).collect()
    }

    /// Whether agents log in with passwords instead of certificates.
    pub fn uses_passwords(&self) -> bool {
        self.login.is_some()
    }

    pub fn left(&self, now: SystemTime) -> Duration {
        self.not_after.duration_since(now).unwrap_or_default()
    }

    /// What to do about credentials that expire soon.
    pub fn expiry_warning(&self, now: SystemTime) -> Option<String> {
        const DAY: Duration = Duration::from_secs(86_400);
        let left = self.left(now);
        let option = match self.holder.kind {
            MemberKind::Agent => "--host",
            MemberKind::Coordinator => "--coordinator",
            MemberKind::Router => "--router",
        };
        (left < EXPIRY_WARNING_DAYS * DAY).then(|| {
            format!(
                "{}: these credentials end on {}, in {} days; make new ones with 'kagiri fleet init DIR \
                 {option} {} --replace', and copy them here",
                self.dir.display(),
                day(self.not_after),
                left.as_secs() / DAY.as_secs(),
                self.holder.name
            )
        })
    }
}

/// Checks that certificate and key match, and that the authority signed the certificate.
fn check_pair(dir: &Path, ca: &Certificate, now: SystemTime) -> Result<Certificate, IdentityError> {
    let path = dir.join("cert.pem");
    let certificate = Certificate::read(&path, &file::read(&path)?)?;
    let key_path = dir.join("key.pem");
    let key = KeyPair::from_pem(&file::read_secret(&key_path)?)
        .map_err(|error| IdentityError::invalid(&key_path, format!("it is no private key: {error}")))?;
    if !certificate.is_signed_by(ca)? {
        let problem = "the authority beside it (ca.pem) has not signed it: the two are of different fleets; \
                       copy the whole bundle again";
        return Err(IdentityError::invalid(path, problem));
    }
    if !certificate.belongs_to(&key) {
        return Err(IdentityError::invalid(
            path,
            "it does not belong to key.pem beside it; copy the whole bundle again",
        ));
    }
    certificate.check_time(now)?;
    Ok(certificate)
}

fn read_login(path: &Path) -> Result<Login, IdentityError> {
    let text = file::read_secret(path)?;
    match text.trim().split_once(':') {
        Some((user, password)) if !user.is_empty() && !password.is_empty() && !password.contains('\n') => {
            Ok(Login { user: user.into(), password: password.into() })
        }
        _ => Err(IdentityError::invalid(path, "it must hold one line, USER:PASSWORD; copy the bundle again")),
    }
}

fn read_members(path: &Path, text: &str, name: impl Fn(&str) -> &str) -> Result<Vec<Member>, IdentityError> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let members = lines.map(|line| {
        name(line).parse::<Member>().map_err(|error| IdentityError::invalid(path, error.to_string()))
    });
    Ok(members.collect::<Result<BTreeSet<_>, _>>()?.into_iter().collect())
}

pub(super) struct Certificate {
    path: PathBuf,
    der: Vec<u8>,
    not_before: SystemTime,
    pub not_after: SystemTime,
}

impl Certificate {
    /// Reads the first certificate in a PEM text.
    pub fn read(path: &Path, text: &str) -> Result<Self, IdentityError> {
        let invalid =
            || IdentityError::invalid(path, "it is no certificate in PEM form; copy the bundle again");
        let (_, pem) = x509_parser::pem::parse_x509_pem(text.as_bytes()).map_err(|_| invalid())?;
        let (_, parsed) = X509Certificate::from_der(&pem.contents).map_err(|_| invalid())?;
        let not_before = system_time(parsed.validity().not_before.timestamp());
        let not_after = system_time(parsed.validity().not_after.timestamp());
        Ok(Self { path: path.to_owned(), not_before, not_after, der: pem.contents })
    }

    fn parsed(&self) -> Result<X509Certificate<'_>, IdentityError> {
        let invalid = |_| IdentityError::invalid(&self.path, "it is no certificate");
        X509Certificate::from_der(&self.der).map(|(_, parsed)| parsed).map_err(invalid)
    }

    pub fn serial(&self) -> Result<Vec<u8>, IdentityError> {
        Ok(self.parsed()?.raw_serial().to_vec())
    }

    pub fn belongs_to(&self, key: &KeyPair) -> bool {
        self.parsed().is_ok_and(|parsed| parsed.public_key().raw == key.subject_public_key_info())
    }

    fn is_signed_by(&self, ca: &Self) -> Result<bool, IdentityError> {
        let (own, ca) = (self.parsed()?, ca.parsed()?);
        Ok(own.issuer() == ca.subject() && own.verify_signature(Some(ca.public_key())).is_ok())
    }

    pub fn holder(&self) -> Result<Member, IdentityError> {
        let parsed = self.parsed()?;
        let name = parsed.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
        let name = name.ok_or_else(|| IdentityError::invalid(&self.path, "it says no common name"))?;
        name.parse().map_err(|error: IdentityError| IdentityError::invalid(&self.path, error.to_string()))
    }

    /// The names and addresses in the certificate; none if it has no such entry.
    pub fn subject_names(&self) -> Result<Vec<String>, IdentityError> {
        let parsed = self.parsed()?;
        let Ok(Some(names)) = parsed.subject_alternative_name() else { return Ok(Vec::new()) };
        let text = |name: &GeneralName<'_>| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            GeneralName::IPAddress(bytes) => match <[u8; 4]>::try_from(*bytes) {
                Ok(v4) => Some(IpAddr::from(v4).to_string()),
                Err(_) => <[u8; 16]>::try_from(*bytes).ok().map(|v6| IpAddr::from(v6).to_string()),
            },
            _ => None,
        };
        Ok(names.value.general_names.iter().filter_map(text).collect())
    }

    pub fn check_time(&self, now: SystemTime) -> Result<(), IdentityError> {
        let (from, to) = (day(self.not_before), day(self.not_after));
        let problem = match () {
            () if now > self.not_after => format!(
                "it ended on {to}, and this machine says it is {}; make a new bundle with \
                 'kagiri fleet init ... --replace', or set this machine's clock",
                day(now)
            ),
            () if now < self.not_before => format!(
                "it counts from {from} on only, and this machine says it is {}; set this machine's clock",
                day(now)
            ),
            () => return Ok(()),
        };
        Err(IdentityError::invalid(&self.path, problem))
    }
}

/// The verified certificate of the other side of a link.
pub(crate) struct PeerCertificate {
    /// Common name: a member.
    pub holder: String,
    pub not_after: SystemTime,
}

impl PeerCertificate {
    /// `None` if it is no certificate, or has no common name.
    pub fn read(der: &[u8]) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(der).ok()?;
        let holder = parsed.subject().iter_common_name().next()?.as_str().ok()?.to_owned();
        Some(Self { holder, not_after: system_time(parsed.validity().not_after.timestamp()) })
    }
}

fn system_time(seconds: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.max(0).unsigned_abs())
}

fn day(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time)
        .map_or_else(|_| "no date".into(), |time| time.strftime("%Y-%m-%d %H:%M UTC").to_string())
}
