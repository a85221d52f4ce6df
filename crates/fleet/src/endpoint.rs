//! Endpoints on which a coordinator listens and which agents join, with their safety rules.
//!
//! An endpoint is `tls/HOST:PORT`, `tcp/HOST:PORT` or `unixsock-stream/PATH`. Defaults: TLS and port 7447.
//! Endpoints without encryption or authentication stay on this machine.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::identity::{Credentials, Role};

pub const PORT: u16 = 7447;
/// `sun_path` without the final NUL (unix(7)).
const SOCKET_PATH_BYTES_MAX: usize = 107;
const UNIX: &str = "unixsock-stream/";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{endpoint}': {problem}")]
pub struct EndpointError {
    pub endpoint: String,
    pub problem: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// Encrypted, for any network.
    Tls { host: String, port: u16 },
    /// Unencrypted, for this machine only.
    Tcp { host: String, port: u16 },
    /// A socket file of this machine.
    Unix(PathBuf),
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let error = |problem: String| EndpointError { endpoint: text.to_owned(), problem };
        let what = "write tls/HOST:PORT, tcp/HOST:PORT or unixsock-stream/PATH";
        // zenoh reads link settings after these characters.
        if let Some(odd) = text.chars().find(|c| "#?;|".contains(*c) || c.is_control() || c.is_whitespace()) {
            return Err(error(format!("an endpoint cannot contain {odd:?}; {what}")));
        }
        if let Some(path) = text.strip_prefix(UNIX) {
            return unix(path).map_err(error);
        }
        if text.starts_with('/') {
            return Err(error(format!("is it a UNIX socket? Write {UNIX}{text}")));
        }
        let (scheme, address) = match text.split_once('/') {
            None => ("tls", text),
            Some((scheme @ ("tls" | "tcp"), address)) => (scheme, address),
            Some((scheme, _)) => {
                return Err(error(format!("the scheme '{scheme}' is not supported; {what}")));
            }
        };
        let (host, port) = host_and_port(address).map_err(|problem| error(format!("{problem}; {what}")))?;
        Ok(if scheme == "tls" { Self::Tls { host, port } } else { Self::Tcp { host, port } })
    }
}

fn unix(path: &str) -> Result<Endpoint, String> {
    if !path.starts_with('/') {
        return Err(format!("the socket's path must be absolute: {UNIX}/run/..., with two slashes"));
    }
    match path.len() > SOCKET_PATH_BYTES_MAX || path.ends_with('/') {
        true => Err(format!("the path must name a file and have at most {SOCKET_PATH_BYTES_MAX} bytes")),
        false => Ok(Endpoint::Unix(path.into())),
    }
}

fn host_and_port(address: &str) -> Result<(String, u16), String> {
    let bare = address.trim_start_matches('[').trim_end_matches(']');
    if let Ok(v6) = bare.parse::<Ipv6Addr>() {
        return Ok((v6.to_string(), PORT));
    }
    let (host, port) = match address.rsplit_once(':') {
        None => (address, PORT),
        Some((host, port)) => (host, port.parse().map_err(|_| format!("'{port}' is no port (0 to 65535)"))?),
    };
    let v6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    if let Some(v6) = v6 {
        let address: Ipv6Addr = v6.parse().map_err(|_| format!("'{v6}' is no IPv6 address"))?;
        return Ok((address.to_string(), port));
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    match !host.is_empty() && host.chars().all(fits) {
        true => Ok((host.to_owned(), port)),
        false => Err(format!("'{host}' is neither a host name nor an address")),
    }
}

impl fmt::Display for Endpoint {
    /// In zenoh's syntax.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host, port) = match self {
            Self::Unix(path) => return write!(f, "{UNIX}{}", path.display()),
            Self::Tls { host, port } => ("tls", host, port),
            Self::Tcp { host, port } => ("tcp", host, port),
        };
        match host.contains(':') {
            true => write!(f, "{scheme}/[{host}]:{port}"),
            false => write!(f, "{scheme}/{host}:{port}"),
        }
    }
}

impl Endpoint {
    fn error(&self, problem: impl Into<String>) -> EndpointError {
        EndpointError { endpoint: self.to_string(), problem: problem.into() }
    }

    fn is_loopback(&self) -> Result<bool, EndpointError> {
        let (Self::Tls { host, port } | Self::Tcp { host, port }) = self else { return Ok(true) };
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(address.to_canonical().is_loopback());
        }
        let resolved = (host.as_str(), *port).to_socket_addrs();
        let addresses: Vec<SocketAddr> =
            resolved.map_err(|error| self.error(format!("cannot resolve the host name: {error}")))?.collect();
        Ok(!addresses.is_empty() && addresses.iter().all(|address| address.ip().to_canonical().is_loopback()))
    }

    /// Rules for both sides beyond this machine.
    fn check(&self, credentials: Option<&Credentials>, doing: &str) -> Result<(), EndpointError> {
        match (self, credentials) {
            (Self::Tls { .. }, None) => Err(self.error(format!(
                "{doing} tls/... needs --credentials DIR, the folder of a bundle; make one with \
                 'kagiri fleet init'"
            ))),
            (Self::Tcp { host, port }, own) if !self.is_loopback()? => Err(self.error(match own {
                Some(_) => {
                    format!("tcp does not encrypt and checks no certificates; {doing} tls/{host}:{port}")
                }
                None => format!(
                    "tcp has no authentication, so it is allowed only on loopback; make credentials with \
                     'kagiri fleet init', and {doing} tls/{host}:{port} with --credentials"
                ),
            })),
            _ => Ok(()),
        }
    }
}

/// Rejects endpoints beyond this machine without TLS and credentials of all who join.
///
/// The folder of a UNIX socket must belong to this user with mode 0700. An existing file that is no socket
/// is rejected, because zenoh would replace it.
pub fn check_listen(endpoint: &Endpoint, credentials: Option<&Credentials>) -> Result<(), EndpointError> {
    if let Endpoint::Unix(path) = endpoint {
        return check_socket_dir(endpoint, path);
    }
    endpoint.check(credentials, "listen on")?;
    match (endpoint, credentials) {
        (Endpoint::Tls { .. }, Some(credentials)) if credentials.role() == Role::Agent => {
            let (dir, holder) = (credentials.dir.display(), &credentials.holder);
            Err(endpoint.error(format!(
                "{dir} is the bundle of host {holder}, which can only join; listen with the \
                 coordinator's"
            )))
        }
        _ => Ok(()),
    }
}

/// Rejects coordinators beyond this machine that do not prove their identity.
pub fn check_join(endpoint: &Endpoint, credentials: Option<&Credentials>) -> Result<(), EndpointError> {
    endpoint.check(credentials, "join")
}

fn check_socket_dir(endpoint: &Endpoint, path: &Path) -> Result<(), EndpointError> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    let metadata = dir
        .metadata()
        .map_err(|error| endpoint.error(format!("its folder {} cannot be used: {error}", dir.display())))?;
    let user = nix::unistd::geteuid().as_raw();
    let mode = metadata.mode() & 0o777;
    if metadata.is_dir() && metadata.uid() == user && mode == 0o700 {
        let taken = path.symlink_metadata().is_ok_and(|there| !there.file_type().is_socket());
        return match taken {
            true => {
                Err(endpoint
                    .error("a file of this name exists and is no socket; name a new file in that folder"))
            }
            false => Ok(()),
        };
    }
    Err(endpoint.error(format!(
        "other users can access its folder {0} (owner {1}, mode {mode:04o}) and could command the hosts that \
         join; make a folder for this user alone: mkdir -m 700 FOLDER",
        dir.display(),
        metadata.uid()
    )))
}
