//! `kagiri fleet init`: the authority, and a bundle for every member.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::authority::Authority;
use super::credentials::Certificate;
use super::name::{Kind, Member};
use super::{IdentityError, access, file};

/// How members prove who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auth {
    /// Everybody shows a certificate (mutual TLS).
    Certificates,
    /// Who listens shows a certificate, the others log in with a password inside TLS.
    Passwords,
}

/// Somebody who listens, and where it is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// Further names and addresses that its certificate holds for.
    pub addresses: Vec<String>,
}

/// What is to be made.
#[derive(Debug, Clone)]
pub struct Init {
    /// The fleet's folder.
    pub dir: PathBuf,
    /// The coordinator: needed for a new fleet.
    pub coordinator: Option<Named>,
    /// External routers.
    pub routers: Vec<Named>,
    /// Hosts on which agents are to run.
    pub hosts: Vec<String>,
    /// How members prove who they are; `None`: as the fleet does, certificates for a new one.
    pub auth: Option<Auth>,
    /// For how many days new certificates hold.
    pub days: u32,
    /// Make bundles that are there anew.
    pub replace: bool,
}

/// What was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// Whether the authority is new.
    pub authority: bool,
    /// How members prove who they are.
    pub auth: Auth,
    /// The new bundles.
    pub bundles: Vec<PathBuf>,
    /// Policies that their bundles had before, and have still.
    pub kept: Vec<PathBuf>,
    /// Files in bundles that were there before, now with other members: to be copied again.
    pub updated: Vec<PathBuf>,
}

/// The agent's policy that a bundle begins with: what holds without a file, to be narrowed or widened.
const POLICY: &str = include_str!("policy.toml");

/// Make what is asked for. Nothing is made if a bundle is there already and is not to be replaced.
///
/// # Errors
/// Names that cannot be, a coordinator that is missing, bundles that are there, files that cannot be written.
pub fn init(init: &Init) -> Result<Made, IdentityError> {
    let wanted = wanted(init)?;
    let place = Place { dir: &init.dir };
    let new = !place.authority().join("ca.key").exists();
    let auth = place.auth(init, new)?;
    let there: Vec<_> =
        wanted.iter().map(|(member, _)| place.bundle(member)).filter(|path| path.exists()).collect();
    if let (false, Some(path)) = (init.replace, there.first()) {
        return Err(IdentityError::Usage(format!(
            "{}: the bundle is there already; name only new hosts, or make it anew with --replace",
            path.display()
        )));
    }
    let now = SystemTime::now();
    let authority = match new {
        true => Authority::create(&place.authority(), now)?,
        false => Authority::open(&place.authority(), now)?,
    };
    let mut roll = place.roll(auth)?;
    for (member, _) in &wanted {
        roll.admit(member)?;
    }
    // Before the bundles: who is on the list without a bundle gets one next time, but not the other way round.
    place.keep(&roll)?;
    let (mut bundles, mut kept) = (Vec::new(), Vec::new());
    for (member, addresses) in &wanted {
        let issued = (auth == Auth::Certificates || member.kind != Kind::Agent)
            .then(|| authority.issue(member, addresses, init.days, now))
            .transpose()?;
        let path = place.bundle(member);
        let next = path.with_file_name(format!(".{}.next", member.name));
        if next.exists() {
            std::fs::remove_dir_all(&next).map_err(file::failed("remove", &next))?;
        }
        file::make_dir(&next)?;
        file::write_new(&next.join("ca.pem"), &authority.pem)?;
        if let Some(issued) = issued {
            file::write_new(&next.join("cert.pem"), &issued.certificate_pem)?;
            file::write_new(&next.join("key.pem"), &issued.key_pem)?;
        }
        if let Some(password) = roll.password(member) {
            file::write_new(&next.join("login"), &format!("{member}:{password}\n"))?;
        }
        if member.kind == Kind::Agent {
            // What the owner of the host wrote there is nobody else's to undo.
            let policy = path.join("policy.toml");
            let own = policy.exists().then(|| file::read(&policy)).transpose()?;
            file::write_new(&next.join("policy.toml"), own.as_deref().unwrap_or(POLICY))?;
            kept.extend(own.filter(|own| own != POLICY).map(|_| policy));
            file::write_new(&next.join("join.txt"), &place.advice(member, &roll))?;
        }
        if path.exists() {
            std::fs::remove_dir_all(&path).map_err(file::failed("replace", &path))?;
        }
        std::fs::rename(&next, &path).map_err(file::failed("make", &path))?;
        bundles.push(path);
    }
    let mut updated = place.publish(&roll)?;
    updated.retain(|path| !bundles.iter().any(|bundle| path.starts_with(bundle)));
    file::sync(&init.dir)?;
    Ok(Made { authority: new, auth, bundles, kept, updated })
}

/// The members that are to be made, and what else they are called.
fn wanted(init: &Init) -> Result<Vec<(Member, Vec<String>)>, IdentityError> {
    let named = |kind, named: &Named| {
        for address in &named.addresses {
            let is_address = address.parse::<std::net::IpAddr>().is_ok();
            if !is_address {
                Member::new(Kind::Agent, address)?;
            }
        }
        Ok((Member::new(kind, &named.name)?, named.addresses.clone()))
    };
    let coordinator = init.coordinator.iter().map(|of| named(Kind::Coordinator, of));
    let routers = init.routers.iter().map(|of| named(Kind::Router, of));
    let hosts = init.hosts.iter().map(|name| Ok((Member::new(Kind::Agent, name)?, Vec::new())));
    let wanted: Vec<_> = coordinator.chain(routers).chain(hosts).collect::<Result<_, IdentityError>>()?;
    for (index, (member, _)) in wanted.iter().enumerate() {
        if wanted[..index].iter().any(|(earlier, _)| earlier == member) {
            return Err(IdentityError::Usage(format!("'{}' is named twice", member.name)));
        }
    }
    match wanted.is_empty() {
        true => {
            Err(IdentityError::Usage("nothing to make: name hosts with --host, or the coordinator".into()))
        }
        false => Ok(wanted),
    }
}

/// The folder of a fleet.
struct Place<'a> {
    dir: &'a Path,
}

impl Place<'_> {
    fn authority(&self) -> PathBuf {
        self.dir.join("ca")
    }

    fn bundle(&self, member: &Member) -> PathBuf {
        match member.kind {
            Kind::Agent => self.dir.join("bundles").join(&member.name),
            Kind::Coordinator => self.coordinator(),
            Kind::Router => self.dir.join("routers").join(&member.name),
        }
    }

    fn coordinator(&self) -> PathBuf {
        self.dir.join("bundles").join("coordinator")
    }

    /// How the members of this fleet prove who they are.
    fn auth(&self, init: &Init, new: bool) -> Result<Auth, IdentityError> {
        if new {
            let missing =
                "there is no fleet yet in this folder: name its coordinator, too, with --coordinator NAME";
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
                "{}: this fleet does not use passwords; a fleet with passwords needs a folder of its own",
                self.dir.display()
            ))),
            _ => Ok(auth),
        }
    }

    /// Who belongs to the fleet so far.
    fn roll(&self, auth: Auth) -> Result<Roll, IdentityError> {
        let path = self.authority().join(Roll::file(auth));
        let text = if path.exists() { file::read_secret(&path)? } else { String::new() };
        let entry = |line: &str| {
            let (member, password) = match line.split_once(':') {
                Some((member, password)) => (member, Some(password.to_owned())),
                None => (line, None),
            };
            let member =
                member.parse().map_err(|error: IdentityError| IdentityError::unfit(&path, error.to_string()));
            Ok((member?, password))
        };
        Ok(Roll { auth, entries: text.lines().map(entry).collect::<Result<_, IdentityError>>()? })
    }

    fn keep(&self, roll: &Roll) -> Result<(), IdentityError> {
        file::replace(&self.authority().join(Roll::file(roll.auth)), &roll.text())
    }

    /// Tell everybody who listens who belongs to the fleet; returns the files that now say something else.
    fn publish(&self, roll: &Roll) -> Result<Vec<PathBuf>, IdentityError> {
        let name = Roll::file(roll.auth);
        let mut written = Vec::new();
        let mut put = |path: PathBuf, text: &str| {
            if std::fs::read_to_string(&path).ok().as_deref() != Some(text) {
                file::replace(&path, text)?;
                written.push(path);
            }
            Ok::<_, IdentityError>(())
        };
        if self.coordinator().is_dir() {
            put(self.coordinator().join(name), &roll.text())?;
        }
        let passwords = roll.auth == Auth::Passwords;
        let members: Vec<_> = roll.entries.iter().map(|(member, _)| member.clone()).collect();
        for router in members.iter().filter(|member| member.kind == Kind::Router) {
            let dir = self.bundle(router);
            if dir.is_dir() {
                put(dir.join(name), &roll.text())?;
                put(dir.join("zenohd.json5"), &access::zenohd(&members, passwords, router))?;
            }
        }
        Ok(written)
    }

    fn advice(&self, member: &Member, roll: &Roll) -> String {
        let coordinator = roll.entries.iter().find(|(member, _)| member.kind == Kind::Coordinator);
        let coordinator = coordinator.map_or("COORDINATOR", |(member, _)| &member.name);
        let name = &member.name;
        let others = self.other_places(coordinator).join(", ");
        let others = match others.is_empty() {
            true => String::new(),
            false => format!(
                "\n{coordinator} is what the coordinator is called. If this host does not know that name, join by what its\n\
                 certificate is good for, too: {others}.\n"
            ),
        };
        format!(
            "The credentials of host {name}. Copy this folder to it over an encrypted way, readable by the agent's user\n\
             alone, look through policy.toml, and start there:\n\n    \
             kagiri agent --join tls/{coordinator}:7447 --name {name} --credentials . --policy policy.toml\n{others}"
        )
    }

    /// Where else the coordinator's certificate says it is to be found; nothing if it is not at hand. An agent on its own
    /// machine needs no telling, and zenoh checks no certificate for an IPv6 address.
    fn other_places(&self, coordinator: &str) -> Vec<String> {
        let path = self.coordinator().join("cert.pem");
        let places = std::fs::read_to_string(&path).ok().and_then(|text| {
            let certificate = Certificate::read(&path, &text).ok()?;
            certificate.places().ok()
        });
        let is_other = |place: &String| {
            place != coordinator
                && !["localhost", "127.0.0.1"].contains(&place.as_str())
                && !place.contains(':')
        };
        places.unwrap_or_default().into_iter().filter(is_other).collect()
    }
}

/// Everybody who belongs to a fleet, with their passwords if it uses them.
struct Roll {
    auth: Auth,
    entries: Vec<(Member, Option<String>)>,
}

impl Roll {
    /// The name of the file it is kept in: zenoh's own format for passwords, `USER:PASSWORD` in each line.
    fn file(auth: Auth) -> &'static str {
        match auth {
            Auth::Certificates => "members",
            Auth::Passwords => "users",
        }
    }

    /// Add a member; one that is there gets a new password.
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

/// 32 characters of 64, 192 random bits.
fn password() -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    sys::random::letters::<32>(ALPHABET).map(char::from).iter().collect()
}
