//! The hosts of a run: what the command line says of them, and the coordinator that drives them.

mod unplaced;

use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};

use base::placement::{Wish, Wishes};
use base::plan::Plan;
use base::units::Span;
use clap::Args;
use fleet::clock::DatagramAddress;
use fleet::coordinator::{Coordinator, Setting, lab_sockets};
use fleet::endpoint::{Endpoint, PORT, check_join, check_listen};
use fleet::identity::reason::{self, Reasons};
use fleet::identity::{Credentials, Role, access_control, low_pass_filter};
use fleet::session;

use crate::exit::Failure;
use crate::{measure, output};
pub use unplaced::{Places, example};

/// Where a coordinator listens unless told.
const LISTEN: &str = "tcp/127.0.0.1:7447";
/// How long hosts are waited for unless told.
const WAIT: Span = Span::from_s(30);

/// What every verb takes that may use several hosts.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Hosts")]
pub struct HostArgs {
    /// Wait for agents here: tls/ADDRESS:PORT with --credentials; for agents of this machine unixsock-stream/PATH in a
    /// folder of one's own, or tcp/127.0.0.1:PORT [default: tcp/127.0.0.1:7447]
    #[arg(long, value_name = "ENDPOINT", conflicts_with_all = ["via", "lab"])]
    pub listen: Option<String>,
    /// Use this router (zenohd), which the agents join too
    #[arg(long, value_name = "ENDPOINT", conflicts_with = "lab")]
    via: Option<String>,
    /// Use the hosts of this lab, which is up ('kagiri lab up FILE')
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
    /// The coordinator's directory of those that 'kagiri fleet init' made; with --listen or --via
    #[arg(long, value_name = "DIR", conflicts_with = "lab")]
    credentials: Option<PathBuf>,
    /// How long to wait for the hosts [default: 30s]
    #[arg(long, value_name = "TIME")]
    wait: Option<Span>,
}

/// What places the parts of a verb without a plan.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Hosts")]
pub struct PlaceArgs {
    /// Run a side of the measurement on other hosts: ROLE=HOSTS, as in server=nas, viewers=pc-[1-20] or sources=s-[1-8]; may be repeated
    #[arg(long, value_name = "ROLE=HOSTS")]
    place: Vec<String>,
}

impl PlaceArgs {
    /// What was said, as a plan has it.
    pub fn wishes(&self) -> Result<Wishes, Failure> {
        let wish = |text: &String| match text.split_once('=') {
            Some((role, hosts)) => {
                Ok((role.trim().to_owned(), Wish { hosts: hosts.trim().into(), count: None, at_least: None }))
            }
            None => Err(Failure::usage(format!("--place {text}: write ROLE=HOSTS, as in server=nas"))),
        };
        self.place.iter().map(wish).collect()
    }
}

/// What a plan wishes for, over all its variants.
pub fn wishes(plan: &Plan) -> Vec<Wish> {
    let mut all: Vec<Wish> = Vec::new();
    for wish in plan.variants.iter().flat_map(|variant| variant.place.values()).filter_map(Wish::of_others) {
        if !all.contains(&wish) {
            all.push(wish);
        }
    }
    all
}

impl HostArgs {
    /// How long to wait for hosts.
    pub fn wait(&self) -> Span {
        self.wait.unwrap_or(WAIT)
    }

    /// Where hosts are met, as it is told to people.
    pub fn place(&self) -> String {
        match &self.lab {
            Some(lab) => format!("in lab {lab}"),
            None => format!("at {}", self.meeting()),
        }
    }

    /// Whether the command line says where the hosts are.
    pub fn names_hosts(&self) -> bool {
        self.lab.is_some() || self.listen.is_some() || self.via.is_some()
    }

    /// Credentials are good for where hosts are met with them, which is never assumed: nothing listens beyond this
    /// machine without being told to.
    ///
    /// # Errors
    /// It was not said where that is.
    pub fn check_credentials(&self) -> Result<(), Failure> {
        match &self.credentials {
            Some(dir) if self.listen.is_none() && self.via.is_none() => Err(Failure::Usage(format!(
                "--credentials {}: they are for hosts that join by TLS, and nothing says where; add --listen \
                 tls/0.0.0.0:{PORT}, or --via and a router",
                dir.display()
            ))),
            _ => Ok(()),
        }
    }

    /// What to do where a host is missing.
    pub fn invitation(&self) -> String {
        if let Some(lab) = &self.lab {
            return format!("look at what 'kagiri lab status {lab}' says of its agents");
        }
        let credentials = Identity::load(self.credentials.as_deref()).ok().and_then(|known| known.name());
        let meeting = match (self.meeting().parse::<Endpoint>(), &credentials) {
            // What is listened on there has no name; the certificate has.
            (Ok(Endpoint::Tls { host, port }), Some(name)) if matches!(host.as_str(), "0.0.0.0" | "::") => {
                Endpoint::Tls { host: name.clone(), port }.to_string()
            }
            (Ok(endpoint), _) => endpoint.to_string(),
            (Err(_), _) => self.meeting().to_owned(),
        };
        let who = if credentials.is_some() { "--credentials BUNDLE" } else { "--name NAME" };
        format!(
            "start 'kagiri agent --join {meeting} {who}' on each missing host, or look at what its agent says"
        )
    }

    /// The same in a lab that is up.
    pub fn in_lab(&self, name: &str) -> Self {
        Self { lab: Some(name.to_owned()), listen: None, via: None, ..self.clone() }
    }

    /// A coordinator that agents can join.
    ///
    /// # Errors
    /// An endpoint that must not be listened on, credentials that are no good, a port that is taken.
    pub fn coordinator(&self, run: String) -> Result<Coordinator, Failure> {
        let stop = measure::stop_flag()?;
        let name = format!("{}@{}", measure::user_name(), host_name()?);
        let mut setting =
            Setting { role: self.role()?, more: Vec::new(), clock: self.clock()?, name, run, stop };
        let identity = Identity::load(self.credentials.as_deref())?;
        if let Some(router) = &self.via {
            identity.joinable(router)?;
        }
        setting.more = identity.settings(Role::Coordinator);
        if let session::Role::Router { listen } = &setting.role {
            for endpoint in listen {
                identity.check_listen(endpoint)?;
            }
            setting.more.push(access_control(identity.0.as_ref()));
            setting.more.push(low_pass_filter());
        }
        Ok(Coordinator::open(setting)?)
    }

    fn role(&self) -> Result<session::Role, Failure> {
        if let Some(lab) = &self.lab {
            let (bus, _) = lab_sockets(&lab_dir(lab)?);
            return Ok(session::Role::Router { listen: vec![format!("unixsock-stream/{}", bus.display())] });
        }
        match &self.via {
            Some(router) => Ok(session::Role::Client { connect: endpoint(router)? }),
            None => Ok(session::Role::Router { listen: vec![endpoint(self.meeting())?] }),
        }
    }

    /// Where clock probes are answered: on the bus's own port, so that a firewall needs one number, or beside its UNIX
    /// socket. An external router may serve several coordinators: there, a place that nobody else has.
    fn clock(&self) -> Result<DatagramAddress, Failure> {
        if let Some(lab) = &self.lab {
            return Ok(DatagramAddress::Unix(lab_sockets(&lab_dir(lab)?).1));
        }
        let meeting: Endpoint = self.meeting().parse().map_err(Failure::usage)?;
        let udp = |address: Option<SocketAddr>| {
            let address = address.ok_or_else(|| Failure::usage("the endpoint's host has no address"))?;
            Ok(DatagramAddress::Udp(address))
        };
        match (&meeting, &self.via) {
            (Endpoint::Unix(bus), None) => beside(bus, "clock.sock"),
            (Endpoint::Unix(bus), Some(_)) => beside(bus, &format!("clock-{}.sock", std::process::id())),
            (_, None) => udp(resolved(&meeting.to_string())),
            (_, Some(_)) => udp(address_towards(&meeting.to_string()).map(|ip| SocketAddr::new(ip, 0))),
        }
    }

    /// Where the coordinator and the agents meet, outside of labs.
    fn meeting(&self) -> &str {
        self.via.as_deref().or(self.listen.as_deref()).unwrap_or(LISTEN)
    }
}

/// A socket for clock probes in the folder of the bus's, where agents make theirs, too.
fn beside(bus: &Path, name: &str) -> Result<DatagramAddress, Failure> {
    let clock = bus.with_file_name(name);
    if clock == bus {
        let problem =
            "clocks are compared over the socket of this name; give the bus another, such as bus.sock";
        return Err(Failure::usage(format!("{}: {problem}", bus.display())));
    }
    Ok(DatagramAddress::Unix(clock))
}

/// A lab that is up for one run.
pub struct Lab {
    name: String,
    folders: lab::state::Folders,
}

impl Lab {
    /// Make the lab that a file describes; it goes down with this process, however that ends.
    ///
    /// # Errors
    /// See [`lab::client::up`].
    pub fn up(file: PathBuf, quiet: bool) -> Result<Self, Failure> {
        let owner = i32::try_from(std::process::id()).ok();
        let options = lab::keeper::KeepOptions { owner, ..crate::verbs::lab::keep_options(file)? };
        let stop = measure::stop_flag()?;
        let state = lab::client::up(&options)?;
        let lab = Self { name: state.lab.clone(), folders: options.folders };
        if stop.load(std::sync::atomic::Ordering::Relaxed) {
            lab.down()?;
            return Err(Failure::Interrupted("interrupted before the first trial had ended".into()));
        }
        if !quiet {
            output::say(&format!("lab {} is up: {} hosts", state.lab, state.hosts.len()));
        }
        Ok(lab)
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Take it down.
    ///
    /// # Errors
    /// What could not be put back.
    pub fn down(self) -> Result<(), Failure> {
        let left = lab::client::down(&self.folders, &self.name)?;
        match left.is_empty() {
            true => Ok(()),
            false => Err(Failure::World(anyhow::anyhow!(
                "not all of lab {} could be put back; mend the cause and run 'kagiri undo':\n{}",
                self.name,
                left.join("\n")
            ))),
        }
    }
}

/// The directory of a lab that is up.
fn lab_dir(name: &str) -> Result<PathBuf, Failure> {
    lab::client::refuse_without_rights()?;
    let dir = measure::journal_dir().join("lab").join(name);
    match dir.is_dir() {
        true => Ok(dir),
        false => Err(Failure::usage(format!("there is no lab {name}; make one with 'kagiri lab up FILE'"))),
    }
}

/// Who this process is in a fleet; nobody without credentials.
pub struct Identity(Option<Credentials>);

impl Identity {
    /// Read and check a bundle.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn load(dir: Option<&Path>) -> Result<Self, Failure> {
        // From now on zenoh's reasons are kept: its errors do not have them.
        let _ = Reasons::of_process();
        let load = |dir| Credentials::load(dir).map_err(Failure::usage);
        dir.map(load).transpose().map(Self)
    }

    /// The same for a host, which has a bundle of its own kind: who shows the coordinator's may command everybody.
    ///
    /// # Errors
    /// What is wrong with it, or whose it is.
    pub fn load_of_host(dir: Option<&Path>) -> Result<Self, Failure> {
        let identity = Self::load(dir)?;
        match &identity.0 {
            Some(credentials) if credentials.role() != Role::Agent => Err(Failure::usage(format!(
                "{}: this is the bundle of {}, which commands hosts or passes on what they say, and is none itself; \
                 take this host's own, which 'kagiri fleet init DIR --host NAME' makes",
                credentials.dir.display(),
                credentials.holder
            ))),
            _ => Ok(identity),
        }
    }

    /// The name that the credentials give it.
    pub fn name(&self) -> Option<String> {
        self.0.as_ref().map(|credentials| credentials.name().to_owned())
    }

    /// zenoh's settings for joining.
    pub fn client_settings(&self) -> Vec<session::Setting> {
        self.settings(Role::Agent)
    }

    fn settings(&self, role: Role) -> Vec<session::Setting> {
        self.0.as_ref().map(|credentials| credentials.zenoh_json(role)).unwrap_or_default()
    }

    /// An endpoint that may be joined with these credentials, as zenoh writes it.
    ///
    /// # Errors
    /// None that is supported, or one that cannot prove who it is.
    pub fn joinable(&self, text: &str) -> Result<String, Failure> {
        let endpoint: Endpoint = text.parse().map_err(Failure::usage)?;
        check_join(&endpoint, self.0.as_ref()).map_err(Failure::usage)?;
        Ok(endpoint.to_string())
    }

    fn check_listen(&self, text: &str) -> Result<(), Failure> {
        let endpoint: Endpoint = text.parse().map_err(Failure::usage)?;
        check_listen(&endpoint, self.0.as_ref()).map_err(Failure::usage)
    }
}

/// Why joining failed, in zenoh's own words made plain.
pub fn reason() -> Option<String> {
    reason::explain(&Reasons::of_process()?.take())
}

/// An endpoint as zenoh writes it.
///
/// # Errors
/// None that is supported.
fn endpoint(text: &str) -> Result<String, Failure> {
    let endpoint: Endpoint = text.parse().map_err(Failure::usage)?;
    Ok(endpoint.to_string())
}

/// This machine's name.
pub fn host_name() -> Result<String, Failure> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    let name = name.trim().to_lowercase();
    match name.is_empty() {
        true => Err(Failure::usage("this machine has no name; give one with --name")),
        false => Ok(name),
    }
}

fn resolved(endpoint: &str) -> Option<SocketAddr> {
    let (_, place) = endpoint.split_once('/')?;
    place.to_socket_addrs().ok()?.next()
}

/// The address of this host from which an endpoint is reached: the kernel's choice. Nothing is sent.
fn address_towards(endpoint: &str) -> Option<IpAddr> {
    let there = resolved(endpoint)?;
    let any: SocketAddr = if there.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(there).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_compared_where_agents_may_go() {
        let clock = |listen: Option<&str>, via: Option<&str>| {
            let own = |text: &str| text.to_owned();
            HostArgs { listen: listen.map(own), via: via.map(own), ..HostArgs::default() }.clock()
        };
        let (bus, router) = ("unixsock-stream//run/mine/bus.sock", "unixsock-stream//run/router/bus.sock");
        let own = format!("/run/router/clock-{}.sock", std::process::id());
        for (listen, via, expected) in [
            (None, None, DatagramAddress::Udp(([127, 0, 0, 1], 7447).into())),
            (Some("tcp/127.0.0.1:7448"), None, DatagramAddress::Udp(([127, 0, 0, 1], 7448).into())),
            (None, Some("tcp/127.0.0.1:7448"), DatagramAddress::Udp(([127, 0, 0, 1], 0).into())),
            (Some(bus), None, DatagramAddress::Unix("/run/mine/clock.sock".into())),
            (None, Some(router), DatagramAddress::Unix(own.into())),
        ] {
            assert_eq!(clock(listen, via).unwrap(), expected, "{listen:?} {via:?}");
        }
        assert!(clock(Some("unixsock-stream//run/mine/clock.sock"), None).is_err());
    }
}
