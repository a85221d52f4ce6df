//! Fleets to test with: bundles made in a folder, and zenoh sessions that use them.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fleet::identity::{Auth, Credentials, InitOptions, Initialized, ServerName, init};
use fleet::identity::{access_control, low_pass_filter};
use fleet::session::{self, BusSession};

/// Longer than a session needs to be opened; one that is refused fails at once.
pub const WITHIN: Duration = Duration::from_secs(5);

/// Make a fleet with a coordinator and these hosts.
pub fn fleet(dir: &Path, auth: Auth, hosts: &[&str]) -> Initialized {
    let coordinator = ServerName { name: "c1".into(), addresses: vec!["192.0.2.1".into()] };
    let request = InitOptions { coordinator: Some(coordinator), auth: Some(auth), ..more(dir, hosts) };
    init(&request).unwrap()
}

/// The request for further hosts.
pub fn more(dir: &Path, hosts: &[&str]) -> InitOptions {
    InitOptions {
        dir: dir.to_owned(),
        coordinator: None,
        routers: Vec::new(),
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        revoke: Vec::new(),
        auth: None,
        days: 825,
        replace: false,
    }
}

pub fn bundle(dir: &Path, name: &str) -> PathBuf {
    dir.join("bundles").join(name)
}

pub fn load(dir: &Path, name: &str) -> Credentials {
    Credentials::load(&bundle(dir, name)).unwrap()
}

/// A router as the coordinator opens it, on an address of loopback; and the endpoint to join it by.
pub fn start_router(credentials: Option<&Credentials>, host: &str) -> (BusSession, String) {
    let port = TcpListener::bind((host, 0)).unwrap().local_addr().unwrap().port();
    let scheme = if credentials.is_some() { "tls" } else { "tcp" };
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let at = format!("{scheme}/{host}:{port}");
    let settings = [access_control(credentials), low_pass_filter()];
    let role = session::Role::Router { listen: vec![at.clone()] };
    (session::open(&role, credentials, &settings, WITHIN).unwrap(), at)
}

pub fn join_within(
    endpoint: &str,
    credentials: Option<&Credentials>,
    within: Duration,
) -> Result<BusSession, String> {
    let role = session::Role::Client { connect: endpoint.to_owned() };
    session::open(&role, credentials, &[], within).map_err(|error| error.to_string())
}

pub fn session_of(endpoint: &str, credentials: Option<&Credentials>) -> Result<BusSession, String> {
    join_within(endpoint, credentials, WITHIN)
}
