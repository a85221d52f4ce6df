//! A bundle of credentials, checked before anything trusts it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{KeyPair, PublicKeyData};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::name::{Kind, Member};
use super::{IdentityError, file};

/// What a bundle is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// To join: its holder opens connections.
    Agent,
    /// To be joined as well: its holder listens.
    Coordinator,
}

/// A user of the fleet's password file.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The member, as zenoh's access control knows it.
    pub user: String,
    /// Its password.
    pub password: String,
}

impl std::fmt::Debug for Login {
    /// Without the password: what is debugged ends in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// The credentials of one bundle, all of them checked.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// The bundle.
    pub dir: PathBuf,
    /// The authority's certificate.
    pub ca: PathBuf,
    /// Its holder's certificate and key; absent for an agent that has a password.
    pub pair: Option<(PathBuf, PathBuf)>,
    /// What it logs in with, in a fleet with passwords.
    pub login: Option<Login>,
    /// The passwords of all members, for who listens in a fleet with passwords.
    pub users: Option<PathBuf>,
    /// Everybody that belongs to the fleet, for who listens.
    pub members: Vec<Member>,
    /// Who holds it.
    pub holder: Member,
    /// When its first certificate ends.
    pub not_after: SystemTime,
}

impl Credentials {
    /// Read a bundle and check it: files that are there, keys that nobody else can read, certificates that hold today
    /// and that the authority beside them has signed.
    ///
    /// # Errors
    /// What is wrong with which file, and what to do.
    pub fn load(dir: &Path) -> Result<Self, IdentityError> {
        Self::load_at(dir, SystemTime::now())
    }

    /// [`Credentials::load`], on another day.
    ///
    /// # Errors
    /// As it.
    pub fn load_at(dir: &Path, now: SystemTime) -> Result<Self, IdentityError> {
        let absolute = std::path::absolute(dir).map_err(file::failed("find", dir))?;
        let dir = absolute.as_path();
        // zenoh passes paths on in lists that these separate.
        if dir.to_str().is_none_or(|text| text.contains([';', '|', '#', '?'])) {
            return Err(IdentityError::unfit(
                dir,
                "the folder's name must be UTF-8 without ';', '|', '#' and '?'",
            ));
        }
        let at = |name: &str| dir.join(name);
        let there = |name: &str| Some(at(name)).filter(|path| path.exists());
        if !dir.is_dir() {
            return Err(IdentityError::unfit(
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
                return Err(IdentityError::unfit(dir, "it holds neither a certificate nor a password"));
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
        if holder.kind != Kind::Agent && members.is_empty() {
            let problem =
                "the list of the fleet's members (members, or users) is missing; copy the whole bundle again";
            return Err(IdentityError::unfit(dir, problem));
        }
        let ends = pair.as_ref().map_or(ca.not_after, |pair| pair.not_after.min(ca.not_after));
        Ok(Self {
            dir: dir.to_owned(),
            ca: at("ca.pem"),
            pair: pair.map(|_| (at("cert.pem"), at("key.pem"))),
            login,
            users: users.map(|(path, _)| path),
            members,
            holder,
            not_after: ends,
        })
    }

    /// What the bundle is good for: an agent's certificate is not good for listening.
    pub fn role(&self) -> Role {
        match self.holder.kind {
            Kind::Agent => Role::Agent,
            Kind::Coordinator | Kind::Router => Role::Coordinator,
        }
    }

    /// Its holder's name.
    pub fn name(&self) -> &str {
        &self.holder.name
    }

    /// The hosts of the fleet by name, as far as the bundle has the list: the bundles of those who listen do.
    pub fn hosts(&self) -> Vec<String> {
        let agents = self.members.iter().filter(|member| member.kind == Kind::Agent);
        agents.map(|member| member.name.clone()).collect()
    }

    /// Whether its fleet's agents log in with passwords rather than certificates.
    pub fn uses_passwords(&self) -> bool {
        self.login.is_some()
    }

    /// How long its certificates are good for from `now`; zero if they have ended.
    pub fn left(&self, now: SystemTime) -> Duration {
        self.not_after.duration_since(now).unwrap_or_default()
    }
}

/// The certificate and the key of a bundle belong together, to the authority, and to today.
fn check_pair(dir: &Path, ca: &Certificate, now: SystemTime) -> Result<Certificate, IdentityError> {
    let path = dir.join("cert.pem");
    let certificate = Certificate::read(&path, &file::read(&path)?)?;
    let key_path = dir.join("key.pem");
    let key = KeyPair::from_pem(&file::read_secret(&key_path)?)
        .map_err(|error| IdentityError::unfit(&key_path, format!("it is no private key: {error}")))?;
    if !certificate.is_signed_by(ca)? {
        let problem = "the authority beside it (ca.pem) has not signed it: the two are of different fleets; copy the \
                       whole bundle again";
        return Err(IdentityError::unfit(path, problem));
    }
    if !certificate.belongs_to(&key) {
        return Err(IdentityError::unfit(
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
        _ => Err(IdentityError::unfit(path, "it must hold one line, USER:PASSWORD; copy the bundle again")),
    }
}

fn read_members(path: &Path, text: &str, name: impl Fn(&str) -> &str) -> Result<Vec<Member>, IdentityError> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let members = lines.map(|line| {
        name(line).parse::<Member>().map_err(|error| IdentityError::unfit(path, error.to_string()))
    });
    Ok(members.collect::<Result<BTreeSet<_>, _>>()?.into_iter().collect())
}

/// A certificate that was read, with the file that it came from.
pub(super) struct Certificate {
    path: PathBuf,
    der: Vec<u8>,
    not_before: SystemTime,
    pub not_after: SystemTime,
}

impl Certificate {
    /// The first certificate in a PEM text.
    pub fn read(path: &Path, text: &str) -> Result<Self, IdentityError> {
        let unfit = || IdentityError::unfit(path, "it is no certificate in PEM form; copy the bundle again");
        let (_, pem) = x509_parser::pem::parse_x509_pem(text.as_bytes()).map_err(|_| unfit())?;
        let (_, parsed) = X509Certificate::from_der(&pem.contents).map_err(|_| unfit())?;
        let time = |seconds: i64| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.max(0).unsigned_abs());
        let not_before = time(parsed.validity().not_before.timestamp());
        let not_after = time(parsed.validity().not_after.timestamp());
        Ok(Self { path: path.to_owned(), not_before, not_after, der: pem.contents })
    }

    fn parsed(&self) -> Result<X509Certificate<'_>, IdentityError> {
        let unfit = |_| IdentityError::unfit(&self.path, "it is no certificate");
        X509Certificate::from_der(&self.der).map(|(_, parsed)| parsed).map_err(unfit)
    }

    /// Whether its public key is the one of `key`.
    pub fn belongs_to(&self, key: &KeyPair) -> bool {
        self.parsed().is_ok_and(|parsed| parsed.public_key().raw == key.subject_public_key_info())
    }

    fn is_signed_by(&self, ca: &Self) -> Result<bool, IdentityError> {
        let (own, ca) = (self.parsed()?, ca.parsed()?);
        Ok(own.issuer() == ca.subject() && own.verify_signature(Some(ca.public_key())).is_ok())
    }

    /// Who it was made for.
    fn holder(&self) -> Result<Member, IdentityError> {
        let parsed = self.parsed()?;
        let name = parsed.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
        let name = name.ok_or_else(|| IdentityError::unfit(&self.path, "it says no common name"))?;
        name.parse().map_err(|error: IdentityError| IdentityError::unfit(&self.path, error.to_string()))
    }

    /// The names and addresses that it holds for, as they are written; none where it says none.
    ///
    /// # Errors
    /// It is no certificate.
    pub fn places(&self) -> Result<Vec<String>, IdentityError> {
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
        Err(IdentityError::unfit(&self.path, problem))
    }
}

/// A moment as people read it, in UTC.
fn day(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time)
        .map_or_else(|_| "no date".into(), |time| time.strftime("%Y-%m-%d %H:%M UTC").to_string())
}
