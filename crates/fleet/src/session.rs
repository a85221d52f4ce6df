//! zenoh sessions of the coordinator (with a router inside) and of agents.

use std::ops::Deref;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use zenoh::{Config, Session, Wait};

use crate::FleetError;
use crate::endpoint::Endpoint;
use crate::identity::connect_error::without_source_locations;
use crate::identity::{self, Credentials, LEASE};
use crate::tunnel::{self, Acceptor};

pub use crate::identity::ZenohSetting;

const CLOSE_WITHIN: Duration = Duration::from_secs(2);
/// Sessions of the coordinator's own router. Use external routers beyond a few thousand.
const SESSIONS_MAX: u32 = 20_000;
const JOINING_MAX: u32 = 2_000;
const MAX_SESSIONS: &str = "transport/unicast/max_sessions";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// The coordinator, with its own router.
    Router { listen: Vec<String> },
    /// An agent, or a coordinator that uses an external router.
    Client { connect: String },
}

impl Role {
    fn identity(&self) -> identity::Role {
        match self {
            Self::Router { .. } => identity::Role::Coordinator,
            Self::Client { .. } => identity::Role::Agent,
        }
    }
}

/// A zenoh session, with what accepts its links if they are secured.
#[derive(Debug)]
pub struct BusSession {
    session: Session,
    /// Ends after the session.
    _acceptor: Option<Acceptor>,
}

impl Deref for BusSession {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

/// Opens a session. `credentials` secure `tls/` endpoints; `more` holds further settings.
pub fn open(
    role: &Role,
    credentials: Option<&Credentials>,
    more: &[ZenohSetting],
    within: Duration,
) -> Result<BusSession, FleetError> {
    let failed = |why: String| {
        let (what, endpoint) = match role {
            Role::Router { listen } => ("listen on", listen.join(", ")),
            Role::Client { connect } => ("join", connect.clone()),
        };
        FleetError::Open { what, endpoint, why: plain(&why) }
    };
    let mut settings = common(within);
    let login = credentials.map(|credentials| credentials.zenoh_json(role.identity())).unwrap_or_default();
    let open = |role: &Role, settings: &[ZenohSetting]| {
        let config = config(&[settings, &of_role(role), &login, more].concat())?;
        zenoh::open(config).wait().map_err(|error| failed(error.to_string()))
    };
    match role {
        Role::Client { connect } => {
            let Some((host, port)) = secured(connect) else {
                return Ok(BusSession { session: open(role, &settings)?, _acceptor: None });
            };
            let credentials = credentials.ok_or_else(|| failed("tls/... needs credentials".to_owned()))?;
            let joined = tunnel::connect(&host, port, credentials, within);
            let joined = joined.map_err(|error| failed(error.to_string()))?;
            let session = open(&Role::Client { connect: joined.offer.endpoint() }, &settings);
            Ok(BusSession { session: session.inspect_err(|_| joined.log_end())?, _acceptor: None })
        }
        Role::Router { listen } => {
            // Each session needs a descriptor, and each secured one a second one. With too few, zenoh reports
            // the error later.
            let _ = sys::thread::raise_file_limit(u64::from(3 * SESSIONS_MAX + JOINING_MAX));
            let Some((host, port)) = listen.iter().find_map(|endpoint| secured(endpoint)) else {
                return Ok(BusSession { session: open(role, &settings)?, _acceptor: None });
            };
            let credentials = credentials.ok_or_else(|| failed("tls/... needs credentials".to_owned()))?;
            let listener = tunnel::Listener::bind(&host, port, credentials);
            let listener = listener.map_err(|error| failed(error.to_string()))?;
            // In a fleet with passwords, only zenoh learns whose link it is.
            let links = tunnel::LINKS_PER_MEMBER_MAX * credentials.hosts().len().max(1);
            settings.push((MAX_SESSIONS.to_owned(), links.min(SESSIONS_MAX as usize).to_string()));
            let plain = listen.iter().filter(|endpoint| secured(endpoint).is_none()).cloned();
            let listen = plain.chain([listener.bus_endpoint()]).collect();
            let session = open(&Role::Router { listen }, &settings)?;
            let acceptor = listener.start().map_err(|error| failed(error.to_string()))?;
            Ok(BusSession { session, _acceptor: Some(acceptor) })
        }
    }
}

/// Host and port of an endpoint with TLS.
fn secured(endpoint: &str) -> Option<(String, u16)> {
    match endpoint.parse() {
        Ok(Endpoint::Tls { host, port }) => Some((host, port)),
        _ => None,
    }
}

/// Closes a session within [`CLOSE_WITHIN`]. zenoh itself waits for sessions that are still joining; it
/// finishes in a background thread.
pub fn close(session: &BusSession) {
    let (ended, end) = std::sync::mpsc::channel();
    let session = session.session.clone();
    let close = move || {
        // A router that is gone needs no close.
        let _ = session.close().wait();
        drop(session);
        let _ = ended.send(());
    };
    if std::thread::Builder::new().name("goodbye".to_owned()).spawn(close).is_ok() {
        let _ = end.recv_timeout(CLOSE_WITHIN);
    }
}

/// zenoh's error without locations in its source.
fn plain(error: &str) -> String {
    match error.contains("Address already in use") {
        true => "it is in use by another kagiri run or another program; wait for it to end, or choose \
                 another port with --listen"
            .to_owned(),
        false => without_source_locations(error),
    }
}

/// Builds zenoh's configuration from plain JSON at once. Setting by setting as JSON5, the rules for 1,000
/// members alone take 0.2 s.
fn config(settings: &[ZenohSetting]) -> Result<Config, FleetError> {
    let invalid = |(key, value): &ZenohSetting, why: String| FleetError::Setting {
        key: key.clone(),
        value: value.clone(),
        why,
    };
    let mut all = Value::default();
    for setting in settings {
        let place = setting.0.split('/').fold(&mut all, |place, key| &mut place[key]);
        *place = serde_json::from_str(&setting.1).map_err(|error| invalid(setting, error.to_string()))?;
    }
    Config::deserialize(&all).map_err(|error| {
        // The error does not name the setting: try them one by one.
        let fits = |(key, value): &&ZenohSetting| Config::default().insert_json5(key, value).is_ok();
        let culprit = settings.iter().find(|setting| !fits(setting)).cloned().unwrap_or_default();
        invalid(&culprit, error.to_string())
    })
}

fn text(value: &str) -> String {
    Value::from(value).to_string()
}

fn common(within: Duration) -> Vec<ZenohSetting> {
    let within_ms = within.as_millis();
    [
        // Never send to hosts that were not named.
        ("scouting/multicast/enabled", "false".to_owned()),
        ("scouting/gossip/enabled", "false".to_owned()),
        // The router would sleep this long before it starts.
        ("scouting/delay", "0".to_owned()),
        ("transport/link/tx/lease", LEASE.as_millis().to_string()),
        ("transport/link/rx/max_message_size", crate::protocol::MESSAGE_BYTES_MAX.to_string()),
        (MAX_SESSIONS, SESSIONS_MAX.to_string()),
        ("transport/unicast/accept_pending", JOINING_MAX.to_string()),
        ("transport/unicast/open_timeout", within_ms.to_string()),
        ("transport/unicast/accept_timeout", within_ms.to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .to_vec()
}

fn of_role(role: &Role) -> Vec<ZenohSetting> {
    let all = match role {
        Role::Router { listen } => vec![
            ("mode", text("router")),
            ("listen/endpoints", serde_json::json!(listen).to_string()),
            ("listen/exit_on_failure", "true".to_owned()),
        ],
        Role::Client { connect } => vec![
            ("mode", text("client")),
            ("connect/endpoints", serde_json::json!([connect]).to_string()),
            // The agent retries and reports the reason itself.
            ("connect/timeout_ms", "0".to_owned()),
            ("connect/exit_on_failure", "true".to_owned()),
        ],
    };
    all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_error_names_endpoint_without_source_location() {
        let said = |listen: String| {
            let role = Role::Router { listen: vec![listen] };
            open(&role, None, &[], Duration::from_secs(5)).unwrap_err().to_string()
        };
        let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let place = format!("tcp/{}", taken.local_addr().unwrap());
        let error = said(place.clone());
        assert!(error.contains(&place) && error.contains("choose another port with --listen"), "{error}");
        // TEST-NET-1 (RFC 5737) is no address of this machine.
        let error = said("tcp/192.0.2.1:7447".to_owned());
        assert!(error.contains("192.0.2.1:7447") && !error.contains(".rs:"), "{error}");
    }
}
