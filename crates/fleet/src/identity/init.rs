//! `kagiri fleet init`: makes the authority, and a bundle for every member.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::authority::Authority;
use super::credentials::{Certificate, REVOKED_FILE};
use super::name::{Member, MemberKind};
use super::revocations::Revocations;
use super::{IdentityError, access, file};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auth {
    /// Mutual TLS.
    Certificates,
    /// Listeners show a certificate; agents log in with a password inside TLS.
    Passwords,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerName {
    pub name: String,
    /// Further names and addresses in its certificate.
    pub addresses: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct InitOptions {
    pub dir: PathBuf,
    pub coordinator: Option<ServerName>,
    pub routers: Vec<ServerName>,
    pub hosts: Vec<String>,
    /// Members to remove, whose certificates are revoked: a host's name, or `coordinator@NAME`.
    pub revoke: Vec<String>,
    /// `None`: as the fleet does; certificates for a new fleet.
    pub auth: Option<Auth>,
    pub days: u32,
    pub replace: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Initialized {
    pub authority: bool,
    pub auth: Auth,
    pub bundles: Vec<PathBuf>,
    /// Existing policies that were kept.
    pub kept: Vec<PathBuf>,
    /// Changed files in existing bundles, which must be copied again.
    pub updated: Vec<PathBuf>,
    /// Removed members, with the number of their revoked certificates.
    pub revoked: Vec<(Member, usize)>,
}

/// Life of certificates, unless the owner chooses another.
pub const DAYS_DEFAULT: u32 = 90;

/// Initial policy of a bundle: the same as without a file.
const POLICY: &str = include_str!("policy.toml");

/// Makes authority and bundles. Makes nothing if a bundle exists and must not be replaced.
/// Errors: Invalid names, a missing coordinator, existing bundles, or files that cannot be written.
pub fn init(init: &InitOptions) -> Result<Initialized, IdentityError> {
    let requested_members = requested_members(init)?;
    let revoke = members_to_revoke(init, &requested_members)?;
    let dir = FleetDir { dir: &init.dir };
    let new = !dir.authority().join("ca.key").exists();
    let auth = dir.auth(init, new)?;
    let there: Vec<_> =
        requested_members.iter().map(|(member, _)| dir.bundle(member)).filter(|path| path.exists()).collect();
    if let (false, Some(path)) = (init.replace, there.first()) {
        return Err(IdentityError::Usage(format!(
            "{}: this bundle exists; name only new hosts, or replace it with --replace",
            path.display()
        )));
    }
    let now = SystemTime::now();
    let authority = match new {
        true => Authority::create(&dir.authority(), now)?,
        false => Authority::open(&dir.authority(), now)?,
    };
    let mut members = dir.members(auth)?;
    let revocations = Revocations { ca: &dir.authority() };
    let mut remove = |member: Member| {
        let serials = revocations.serials(&member, &dir.bundle(&member))?;
        if !members.remove(&member) && serials.is_empty() {
            return Err(IdentityError::Usage(format!("--revoke {member}: this fleet has no such member")));
        }
        revocations.revoke(&authority, &member, &serials, now)?;
        Ok((member, serials.len()))
    };
    let revoked = revoke.into_iter().map(&mut remove).collect::<Result<Vec<_>, _>>()?;
    for (member, _) in &requested_members {
        members.admit(member)?;
    }
    // Before the bundles: a listed member without a bundle gets one next time.
    dir.keep(&members)?;
    let (mut bundles, mut kept) = (Vec::new(), Vec::new());
    for (member, addresses) in &requested_members {
        let issued = (auth == Auth::Certificates || member.kind != MemberKind::Agent)
            .then(|| authority.issue(member, addresses, init.days, now))
            .transpose()?;
        let path = dir.bundle(member);
        let next = path.with_file_name(format!(".{}.next", member.name));
        if next.exists() {
            std::fs::remove_dir_all(&next).map_err(file::failed("remove", &next))?;
        }
        file::make_dir(&next)?;
        file::write_new(&next.join("ca.pem"), &authority.pem)?;
        if let Some(list) = dir.revoked()? {
            file::write_new(&next.join(REVOKED_FILE), &list)?;
        }
        if let Some(issued) = issued {
            // Before anybody can have it: a certificate that is not listed could not be revoked.
            revocations.note_issued(member, &issued.serial)?;
            file::write_new(&next.join("cert.pem"), &issued.certificate_pem)?;
            file::write_new(&next.join("key.pem"), &issued.key_pem)?;
        }
        if let Some(password) = members.password(member) {
            file::write_new(&next.join("login"), &format!("{member}:{password}\n"))?;
        }
        if member.kind == MemberKind::Agent {
            kept.extend(keep_policy(&path, &next)?);
            file::write_new(&next.join("join.txt"), &dir.advice(member, &members))?;
        }
        if path.exists() {
            std::fs::remove_dir_all(&path).map_err(file::failed("replace", &path))?;
        }
        std::fs::rename(&next, &path).map_err(file::failed("make", &path))?;
        bundles.push(path);
    }
    let mut updated = dir.publish(&members, &revoked)?;
    updated.retain(|path| !bundles.iter().any(|bundle| path.starts_with(bundle)));
    file::sync(&init.dir)?;
    Ok(Initialized { authority: new, auth, bundles, kept, updated, revoked })
}

/// Gives the new bundle the policy that the host's owner wrote, or else the initial one. Returns the former.
fn keep_policy(bundle: &Path, next: &Path) -> Result<Option<PathBuf>, IdentityError> {
    let policy = bundle.join("policy.toml");
    let own = policy.exists().then(|| file::read(&policy)).transpose()?;
    file::write_new(&next.join("policy.toml"), own.as_deref().unwrap_or(POLICY))?;
    Ok(own.filter(|own| own != POLICY).map(|_| policy))
}

fn requested_members(init: &InitOptions) -> Result<Vec<(Member, Vec<String>)>, IdentityError> {
    let named = |kind, named: &ServerName| {
        for address in &named.addresses {
            let is_address = address.parse::<std::net::IpAddr>().is_ok();
            if !is_address {
                Member::new(MemberKind::Agent, address)?;
            }
        }
        Ok((Member::new(kind, &named.name)?, named.addresses.clone()))
    };
    let coordinator = init.coordinator.iter().map(|of| named(MemberKind::Coordinator, of));
    let routers = init.routers.iter().map(|of| named(MemberKind::Router, of));
    let hosts = init.hosts.iter().map(|name| Ok((Member::new(MemberKind::Agent, name)?, Vec::new())));
    let requested_members: Vec<_> =
        coordinator.chain(routers).chain(hosts).collect::<Result<_, IdentityError>>()?;
    for (index, (member, _)) in requested_members.iter().enumerate() {
        if requested_members[..index].iter().any(|(earlier, _)| earlier == member) {
            return Err(IdentityError::Usage(format!("'{}' is named twice", member.name)));
        }
    }
    match requested_members.is_empty() && init.revoke.is_empty() {
        true => Err(IdentityError::Usage("nothing to do: name hosts with --host, or the coordinator".into())),
        false => Ok(requested_members),
    }
}

fn members_to_revoke(
    init: &InitOptions,
    requested: &[(Member, Vec<String>)],
) -> Result<Vec<Member>, IdentityError> {
    let check = |name: &String| {
        let member: Member = name.parse()?;
        match requested.iter().any(|(other, _)| *other == member) {
            true => Err(IdentityError::Usage(format!(
                "--revoke {name}: the same command makes a bundle for it; use two commands"
            ))),
            false => Ok(member),
        }
    };
    init.revoke.iter().map(check).collect()
}

struct FleetDir<'a> {
    dir: &'a Path,
}

impl FleetDir<'_> {
    fn authority(&self) -> PathBuf {
        self.dir.join("ca")
    }

    fn bundle(&self, member: &Member) -> PathBuf {
        match member.kind {
            MemberKind::Agent => self.dir.join("bundles").join(&member.name),
            MemberKind::Coordinator => self.coordinator(),
            MemberKind::Router => self.dir.join("routers").join(&member.name),
        }
    }

    fn coordinator(&self) -> PathBuf {
        self.dir.join("bundles").join("coordinator")
    }

    fn auth(&self, init: &InitOptions, new: bool) -> Result<Auth, IdentityError> {
        if new {
            let missing =
                "there is no fleet in this folder yet: name its coordinator as well, with --coordinator NAME";
            return match init.coordinator {
                Some(_) => Ok(init.auth.unwrap_or(Auth::Certificates)),
                None => Err(IdentityError::Usage(format!("{}: {missing}", self.dir.display()))),
            };
        }
        let auth = match self.authority().join("users").exists() {
            true => Auth::Passwords,
            false => Auth::Certificates,
        };
        match init.auth {
            Some(asked) if asked != auth => Err(IdentityError::Usage(format!(
                "{}: this fleet uses certificates; make a fleet with passwords in another folder",
                self.dir.display()
            ))),
            _ => Ok(auth),
        }
    }

    fn members(&self, auth: Auth) -> Result<Members, IdentityError> {
        let path = self.authority().join(Members::file(auth));
        let text = if path.exists() { file::read_secret(&path)? } else { String::new() };
        let entry = |line: &str| {
            let (member, password) = match line.split_once(':') {
                Some((member, password)) => (member, Some(password.to_owned())),
                None => (line, None),
            };
            let member = member
                .parse()
                .map_err(|error: IdentityError| IdentityError::invalid(&path, error.to_string()));
            Ok((member?, password))
        };
        Ok(Members { auth, entries: text.lines().map(entry).collect::<Result<_, IdentityError>>()? })
    }

    fn keep(&self, members: &Members) -> Result<(), IdentityError> {
        file::replace(&self.authority().join(Members::file(members.auth)), &members.text())
    }

    /// The signed list of revoked certificates, if there is one.
    fn revoked(&self) -> Result<Option<String>, IdentityError> {
        let path = self.authority().join(REVOKED_FILE);
        path.exists().then(|| file::read(&path)).transpose()
    }

    /// Writes the lists of members and of revoked certificates for every listener, and the latter for agents
    /// as well if a listener was revoked. Returns the files that changed.
    fn publish(&self, members: &Members, removed: &[(Member, usize)]) -> Result<Vec<PathBuf>, IdentityError> {
        let (name, revoked) = (Members::file(members.auth), self.revoked()?);
        let mut written = Vec::new();
        let mut put = |path: PathBuf, text: &str| {
            if std::fs::read_to_string(&path).ok().as_deref() != Some(text) {
                file::replace(&path, text)?;
                written.push(path);
            }
            Ok::<_, IdentityError>(())
        };
        if self.coordinator().is_dir() {
            put(self.coordinator().join(name), &members.text())?;
            if let Some(list) = &revoked {
                put(self.coordinator().join(REVOKED_FILE), list)?;
            }
        }
        let passwords = members.auth == Auth::Passwords;
        let all: Vec<_> = members.entries.iter().map(|(member, _)| member.clone()).collect();
        for router in all.iter().filter(|member| member.kind == MemberKind::Router) {
            let dir = self.bundle(router);
            if dir.is_dir() {
                put(dir.join(name), &members.text())?;
                put(dir.join("zenohd.json5"), &access::zenohd(&all, passwords, router))?;
            }
        }
        let listener_revoked = removed.iter().any(|(member, _)| member.kind != MemberKind::Agent);
        let agents = all.iter().filter(|member| listener_revoked && member.kind == MemberKind::Agent);
        for dir in agents.map(|agent| self.bundle(agent)).filter(|dir| dir.is_dir()) {
            put(dir.join(REVOKED_FILE), revoked.as_deref().unwrap_or_default())?;
        }
        Ok(written)
    }

    fn advice(&self, member: &Member, members: &Members) -> String {
        let coordinator = members.entries.iter().find(|(member, _)| member.kind == MemberKind::Coordinator);
        let coordinator = coordinator.map_or("COORDINATOR", |(member, _)| &member.name);
        let name = &member.name;
        let others = self.other_names(coordinator).join(", ");
        let others = match others.is_empty() {
            true => String::new(),
            false => format!(
                "\nIf this host cannot resolve the coordinator's name {coordinator}, use another name of its \
                 certificate:\n\
                 {others}.\n"
            ),
        };
        format!(
            "Credentials of host {name}. Copy this folder to the host over an encrypted connection (mode \
             0700, owned by the\n\
             agent's user). Review policy.toml. Then run on the host:\n\n    \
             kagiri agent --join tls/{coordinator}:7447 --name {name} --credentials . --policy \
             policy.toml\n{others}"
        )
    }

    /// Further names in the coordinator's certificate, without loopback; none if it is not available.
    fn other_names(&self, coordinator: &str) -> Vec<String> {
        let path = self.coordinator().join("cert.pem");
        let subject_names = std::fs::read_to_string(&path).ok().and_then(|text| {
            let certificate = Certificate::read(&path, &text).ok()?;
            certificate.subject_names().ok()
        });
        let is_other = |name: &String| {
            name != coordinator && !["localhost", "127.0.0.1", "::1"].contains(&name.as_str())
        };
        subject_names.unwrap_or_default().into_iter().filter(is_other).collect()
    }
}

struct Members {
    auth: Auth,
    entries: Vec<(Member, Option<String>)>,
}

impl Members {
    /// Name of the list's file. Passwords are in zenoh's format, `USER:PASSWORD` in each line.
    fn file(auth: Auth) -> &'static str {
        match auth {
            Auth::Certificates => "members",
            Auth::Passwords => "users",
        }
    }

    fn admit(&mut self, member: &Member) -> Result<(), IdentityError> {
        let password = match self.auth {
            Auth::Passwords => Some(password()),
            Auth::Certificates => None,
        };
        match self.entries.iter_mut().find(|(there, _)| there == member) {
            Some(entry) => entry.1 = password,
            None => self.entries.push((member.clone(), password)),
        }
        Ok(())
    }

    /// Whether it was there.
    fn remove(&mut self, member: &Member) -> bool {
        let before = self.entries.len();
        self.entries.retain(|(there, _)| there != member);
        self.entries.len() < before
    }

    fn password(&self, member: &Member) -> Option<&str> {
        self.entries.iter().find(|(there, _)| there == member)?.1.as_deref()
    }

    fn text(&self) -> String {
        let line = |(member, password): &(Member, Option<String>)| match password {
            Some(password) => format!("{member}:{password}\n"),
            None => format!("{member}\n"),
        };
        self.entries.iter().map(line).collect()
    }
}

/// 192 random bits.
fn password() -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    sys::random::letters::<32>(ALPHABET).map(char::from).iter().collect()
}
