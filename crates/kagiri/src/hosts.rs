//! The hosts of a run: command line arguments, credentials, and the coordinator.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use base::placement::{Wish, Wishes};
use base::plan::Plan;
use base::units::Span;
use clap::{Arg, Args};
use fleet::clock::DatagramAddress;
use fleet::coordinator::{Coordinator, CoordinatorConfig, lab_sockets};
use fleet::endpoint::{Endpoint, PORT, check_join, check_listen};
use fleet::identity::connect_error::{self, ZenohLog};
use fleet::identity::{Credentials, Role, access_control, low_pass_filter};
use fleet::session;
use ipnet::IpNet;

use crate::exit::Failure;
use crate::host_facts::{host_name, user_name};
use crate::{dirs, output, stop};

const LISTEN: &str = "tcp/127.0.0.1:7447";
const WAIT: Span = Span::from_s(30);

const LISTEN_HELP: &str = "Where agents connect: tls/ADDRESS:PORT with --credentials; agents on this machine \
    also tcp/127.0.0.1:PORT, or unixsock-stream/PATH in a private folder [default: tcp/127.0.0.1:7447]";

/// Adds what else `--listen` means to its help.
pub fn listen_help(more: &str) -> impl FnOnce(Arg) -> Arg {
    let text = format!("{LISTEN_HELP}. {more}");
    |arg| arg.help(text)
}

/// Gives `--place` the roles of a workload.
pub fn place_help(workload: &str) -> impl FnOnce(Arg) -> Arg {
    let roles =
        run::registry::BUILT_IN.workload(workload).map(|workload| workload.roles()).unwrap_or_default();
    let places = roles.iter().zip(["nas", "pc-[1-20]"]).map(|(role, hosts)| format!("{}={hosts}", role.name));
    let text =
        format!("Run a role on other hosts, e.g. {}; repeatable", places.collect::<Vec<_>>().join(" or "));
    |arg| arg.help(text)
}

/// Arguments of commands that can use several hosts.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Hosts")]
pub struct HostArgs {
    #[arg(long, value_name = "ENDPOINT", conflicts_with_all = ["via", "lab"], help = LISTEN_HELP)]
    pub listen: Option<String>,
    /// Meet the agents at this Zenoh router (zenohd), instead of listening for them
    #[arg(long, value_name = "ENDPOINT", conflicts_with = "lab")]
    pub via: Option<String>,
    /// Use the hosts of this lab, which 'kagiri lab up FILE' made
    #[arg(long, value_name = "NAME")]
    pub lab: Option<String>,
    /// This machine's credentials, for --listen or --via: a copy of the directory bundles/coordinator that
    /// 'kagiri fleet init' made
    #[arg(long, value_name = "DIR", conflicts_with = "lab")]
    pub credentials: Option<PathBuf>,
    /// Let this machine exchange traffic with this link-local or cloud-metadata address; repeatable
    #[arg(long, value_name = "NET", value_parser = net, hide_short_help = true)]
    pub allow_peer: Vec<IpNet>,
    /// How long to wait for agents [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = crate::args::time)]
    pub wait: Option<Span>,
}

/// Arguments that place the parts of commands without a plan.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Hosts")]
pub struct PlaceArgs {
    /// Run a role on other hosts; repeatable
    #[arg(long, value_name = "ROLE=HOSTS")]
    place: Vec<String>,
}

impl PlaceArgs {
    /// The arguments in the form of a plan; a role that is given again has the hosts of all its arguments.
    pub fn wishes(&self) -> Result<Wishes, Failure> {
        let mut wishes = Wishes::new();
        for text in &self.place {
            let Some((role, hosts)) = text.split_once('=') else {
                return Err(Failure::usage(format!("--place {text}: write ROLE=HOSTS, as in server=nas")));
            };
            let hosts = hosts.trim();
            wishes
                .entry(role.trim().to_owned())
                .and_modify(|wish| wish.hosts = format!("{},{hosts}", wish.hosts))
                .or_insert_with(|| Wish { hosts: hosts.into(), count: None, at_least: None });
        }
        Ok(wishes)
    }
}

/// The hosts that a plan needs, over all its variants.
pub fn wishes(plan: &Plan) -> Vec<Wish> {
    let placed = plan.variants.iter().flat_map(|variant| variant.place.values()).cloned();
    let policies = || plan.variants.iter().filter_map(|variant| variant.qos.as_ref());
    let enforcing = policies().map(|qos| qos.hosts());
    let coordinating = policies().filter_map(|qos| qos.coordinator());
    let tuned = plan.variants.iter().filter_map(|variant| Some(variant.tune.as_ref()?.hosts()));
    let mut all: Vec<Wish> = Vec::new();
    let wishes = placed.chain(enforcing).chain(coordinating).chain(tuned);
    for wish in wishes.filter_map(|wish| wish.of_others()) {
        if !all.contains(&wish) {
            all.push(wish);
        }
    }
    all
}

/// A network, or one address.
pub fn net(text: &str) -> Result<IpNet, String> {
    let one = || text.parse::<IpAddr>().map(IpNet::from);
    text.parse()
        .or_else(|_| one())
        .map_err(|_| "write an address, or a network such as 10.0.0.0/24".to_owned())
}

impl HostArgs {
    pub fn wait(&self) -> Span {
        self.wait.unwrap_or(WAIT)
    }

    pub fn meeting_place(&self) -> String {
        match &self.lab {
            Some(lab) => format!("in lab {lab}"),
            None => format!("at {}", self.meeting()),
        }
    }

    /// Whether any of the arguments was given.
    pub fn is_given(&self) -> bool {
        let Self { credentials, allow_peer, wait, .. } = self;
        self.names_hosts() || credentials.is_some() || !allow_peer.is_empty() || wait.is_some()
    }

    /// Whether the arguments say where hosts join.
    pub fn names_hosts(&self) -> bool {
        self.lab.is_some() || self.listen.is_some() || self.via.is_some()
    }

    /// Rejects credentials without an endpoint to use them on: listening beyond this machine must be
    /// explicit.
    pub fn check_credentials(&self) -> Result<(), Failure> {
        match &self.credentials {
            Some(dir) if self.listen.is_none() && self.via.is_none() => Err(Failure::Usage(format!(
                "--credentials {}: credentials need an endpoint to listen on; add --listen \
                 tls/0.0.0.0:{PORT}, or a router with --via",
                dir.display()
            ))),
            _ => Ok(()),
        }
    }

    pub fn invitation(&self) -> String {
        if let Some(lab) = &self.lab {
            return format!("see 'kagiri lab status {lab}' for its agents");
        }
        let credentials = Identity::load(self.credentials.as_deref()).ok().and_then(|known| known.name());
        let meeting = match (self.meeting().parse::<Endpoint>(), &credentials) {
            // Agents must join by the name in the certificate.
            (Ok(Endpoint::Tls { host, port }), Some(name)) if matches!(host.as_str(), "0.0.0.0" | "::") => {
                Endpoint::Tls { host: name.clone(), port }.to_string()
            }
            (Ok(endpoint), _) => endpoint.to_string(),
            (Err(_), _) => self.meeting().to_owned(),
        };
        match credentials {
            Some(_) => format!(
                "start 'kagiri agent --join {meeting} --credentials BUNDLE' on each missing host, or see the \
                 output of its agent"
            ),
            // Without credentials only this machine is reachable.
            None => format!(
                "start 'kagiri agent --join {meeting} --name NAME' on this machine; for agents on other \
                 hosts, make credentials with 'kagiri fleet init', and use --listen tls/0.0.0.0:{PORT} \
                 --credentials DIR"
            ),
        }
    }

    pub fn in_lab(&self, name: &str) -> Self {
        Self { lab: Some(name.to_owned()), listen: None, via: None, ..self.clone() }
    }

    /// Starts a coordinator.
    /// Errors: An unsafe endpoint, invalid credentials, or a port in use.
    pub fn coordinator(&self, run: String) -> Result<Coordinator, Failure> {
        let stop = stop::stop_flag()?;
        let name = format!("{}@{}", user_name(), host_name()?);
        let identity = Identity::load(self.credentials.as_deref())?;
        identity.warn_of_expiry();
        if let Some(router) = &self.via {
            identity.joinable(router)?;
        }
        let (role, clock) = (self.role()?, self.clock()?);
        let credentials = identity.0.clone();
        let mut setting = CoordinatorConfig { role, credentials, more: Vec::new(), clock, name, run, stop };
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

    /// Address of the clock responder: the bus's port, so that a firewall needs one rule, or a socket beside
    /// the bus's. With an external router, which may serve several coordinators, an address of its own.
    fn clock(&self) -> Result<DatagramAddress, Failure> {
        if let Some(lab) = &self.lab {
            return Ok(DatagramAddress::Unix(lab_sockets(&lab_dir(lab)?).1));
        }
        let meeting: Endpoint = self.meeting().parse().map_err(Failure::usage)?;
        let udp = |address: Option<SocketAddr>| {
            let address = address.ok_or_else(|| Failure::usage("the endpoint's host name has no address"))?;
            Ok(DatagramAddress::Udp(address))
        };
        match (&meeting, &self.via) {
            (Endpoint::Unix(bus), None) => beside(bus, "clock.sock"),
            (Endpoint::Unix(bus), Some(_)) => beside(bus, &format!("clock-{}.sock", std::process::id())),
            (_, None) => udp(resolved(&meeting.to_string())),
            (_, Some(_)) => udp(address_towards(&meeting.to_string()).map(|ip| SocketAddr::new(ip, 0))),
        }
    }

    /// The endpoint that agents join, outside of labs.
    fn meeting(&self) -> &str {
        self.via.as_deref().or(self.listen.as_deref()).unwrap_or(LISTEN)
    }
}

/// A socket for clock probes in the folder of the bus's socket, where agents create theirs.
fn beside(bus: &Path, name: &str) -> Result<DatagramAddress, Failure> {
    let clock = bus.with_file_name(name);
    if clock == bus {
        let problem =
            "clocks are compared over a socket of this name; choose another for the bus, such as bus.sock";
        return Err(Failure::usage(format!("{}: {problem}", bus.display())));
    }
    Ok(DatagramAddress::Unix(clock))
}

pub fn lab_dir(name: &str) -> Result<PathBuf, Failure> {
    lab::client::require_root()?;
    let dir = dirs::journal_dir().join("lab").join(name);
    match dir.is_dir() {
        true => Ok(dir),
        false => Err(Failure::usage(format!("lab {name} is not up; start it with 'kagiri lab up FILE'"))),
    }
}

/// This process's identity in a fleet, if it has credentials.
pub struct Identity(Option<Credentials>);

impl Identity {
    pub fn load(dir: Option<&Path>) -> Result<Self, Failure> {
        // Capture zenoh's log, which has the reasons that its errors lack.
        let _ = ZenohLog::of_process();
        let load = |dir| Credentials::load(dir).map_err(Failure::usage);
        dir.map(load).transpose().map(Self)
    }

    /// Says that the credentials must be replaced soon.
    pub fn warn_of_expiry(&self) {
        let warning = |known: &Credentials| known.expiry_warning(SystemTime::now());
        self.0.as_ref().and_then(warning).iter().for_each(|warning| output::say(warning));
    }

    /// Reads a host's bundle. Rejects those of other members, with which an agent could command all hosts.
    pub fn load_of_host(dir: Option<&Path>) -> Result<Self, Failure> {
        let identity = Self::load(dir)?;
        match &identity.0 {
            Some(credentials) if credentials.role() != Role::Agent => Err(Failure::usage(format!(
                "{}: this is the bundle of {}, which is no host; use this host's own, made by 'kagiri fleet \
                 init DIR --host NAME'",
                credentials.dir.display(),
                credentials.holder
            ))),
            _ => Ok(identity),
        }
    }

    pub fn name(&self) -> Option<String> {
        self.0.as_ref().map(|credentials| credentials.name().to_owned())
    }

    pub fn credentials(&self) -> Option<Credentials> {
        self.0.clone()
    }

    /// Checks that it is safe to join an endpoint. Returns it in zenoh's syntax.
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

/// Why the last connection failed, from zenoh's log.
pub fn connect_failure() -> Option<String> {
    connect_error::explain(&ZenohLog::of_process()?.take())
}

/// An endpoint in zenoh's syntax.
fn endpoint(text: &str) -> Result<String, Failure> {
    let endpoint: Endpoint = text.parse().map_err(Failure::usage)?;
    Ok(endpoint.to_string())
}

fn resolved(endpoint: &str) -> Option<SocketAddr> {
    let (_, place) = endpoint.split_once('/')?;
    place.to_socket_addrs().ok()?.next()
}

/// The local address that the kernel would use to reach an endpoint. Sends nothing.
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
    fn clock_responder_address_follows_the_endpoint() {
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
