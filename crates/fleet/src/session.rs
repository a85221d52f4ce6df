//! zenoh sessions: the coordinator's, with a router inside, and an agent's.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use zenoh::{Config, Session, Wait};

use crate::FleetError;
use crate::identity::reason::without_places;

/// A link on which nothing was heard for this long is dead. zenoh looks four times within it, and says something
/// itself that often: this is all that an idle agent costs. TCP sends again what a short cut took 0.2, 0.6, 1.4 and 3 s
/// after it: with the third of these there is time left for a busy host to hear it, and a link that is dead is named
/// within 3 s.
pub(crate) const LEASE: Duration = Duration::from_millis(2500);
/// How long saying goodbye to everybody may take.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);
/// Sessions that a coordinator's own router takes; beyond a few thousand use external routers.
const SESSIONS_MAX: u32 = 20_000;
/// Sessions that may be in the middle of joining.
const JOINING_MAX: u32 = 2_000;

/// A setting of zenoh: its path, and a JSON value.
pub type Setting = (String, String);

/// Which end of the fleet a session is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// The coordinator, with a router inside that listens there.
    Router {
        /// zenoh's endpoints.
        listen: Vec<String>,
    },
    /// An agent, or a coordinator that uses an external router.
    Client {
        /// zenoh's endpoint.
        connect: String,
    },
}

/// Open a session; `more` are settings of identity and access.
///
/// # Errors
/// Nothing can listen there, or nobody listens there.
pub fn open(role: &Role, more: &[Setting], within: Duration) -> Result<Session, FleetError> {
    let config = config(&[common(within), of_role(role), more.to_vec()].concat())?;
    if matches!(role, Role::Router { .. }) {
        // Each session needs one; with fewer, zenoh says when they are used up.
        let _ = sys::thread::raise_file_limit(u64::from(SESSIONS_MAX + JOINING_MAX));
    }
    zenoh::open(config).wait().map_err(|error| {
        let (what, endpoint) = match role {
            Role::Router { listen } => ("listen on", listen.join(", ")),
            Role::Client { connect } => ("join", connect.clone()),
        };
        FleetError::Open { what, endpoint, why: plain(&error.to_string()) }
    })
}

/// End a session, in a moment: zenoh itself waits as long as somebody who is in the middle of joining may take. What it
/// then has left to do it does beside this program, or not at all if that ends: its links break off.
pub fn close(session: &Session) {
    let (ended, end) = std::sync::mpsc::channel();
    let session = session.clone();
    let close = move || {
        // One that is gone cannot be told goodbye, and need not be.
        let _ = session.close().wait();
        drop(session);
        let _ = ended.send(());
    };
    if std::thread::Builder::new().name("goodbye".to_owned()).spawn(close).is_ok() {
        let _ = end.recv_timeout(CLOSE_WITHIN);
    }
}

/// What zenoh says of a failure, without where in its own source that was.
fn plain(error: &str) -> String {
    match error.contains("Address already in use") {
        true => "it is in use, by another kagiri run or another program; wait for its end, or give --listen another port"
            .to_owned(),
        false => without_places(error),
    }
}

/// zenoh's configuration, read in one piece and as plain JSON: as JSON5, setting by setting, the rules for a thousand
/// members alone take 0.2 s.
fn config(settings: &[Setting]) -> Result<Config, FleetError> {
    let unfit = |(key, value): &Setting, why: String| FleetError::Setting {
        key: key.clone(),
        value: value.clone(),
        why,
    };
    let mut all = Value::default();
    for setting in settings {
        let place = setting.0.split('/').fold(&mut all, |place, key| &mut place[key]);
        *place = serde_json::from_str(&setting.1).map_err(|error| unfit(setting, error.to_string()))?;
    }
    Config::deserialize(&all).map_err(|error| {
        // It does not say which; one by one they do.
        let fits = |(key, value): &&Setting| Config::default().insert_json5(key, value).is_ok();
        let culprit = settings.iter().find(|setting| !fits(setting)).cloned().unwrap_or_default();
        unfit(&culprit, error.to_string())
    })
}

fn text(value: &str) -> String {
    Value::from(value).to_string()
}

fn common(within: Duration) -> Vec<Setting> {
    let within_ms = within.as_millis();
    [
        // Nothing is sent to anybody who was not named.
        ("scouting/multicast/enabled", "false".to_owned()),
        ("scouting/gossip/enabled", "false".to_owned()),
        // A router sleeps that long although there is nobody to find.
        ("scouting/delay", "0".to_owned()),
        ("transport/link/tx/lease", LEASE.as_millis().to_string()),
        ("transport/link/rx/max_message_size", crate::protocol::MESSAGE_BYTES_MAX.to_string()),
        ("transport/unicast/max_sessions", SESSIONS_MAX.to_string()),
        ("transport/unicast/accept_pending", JOINING_MAX.to_string()),
        ("transport/unicast/open_timeout", within_ms.to_string()),
        ("transport/unicast/accept_timeout", within_ms.to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .to_vec()
}

fn of_role(role: &Role) -> Vec<Setting> {
    let all = match role {
        Role::Router { listen } => vec![
            ("mode", text("router")),
            ("listen/endpoints", serde_json::json!(listen).to_string()),
            ("listen/exit_on_failure", "true".to_owned()),
        ],
        Role::Client { connect } => vec![
            ("mode", text("client")),
            ("connect/endpoints", serde_json::json!([connect]).to_string()),
            // Whoever opens tries again, and can say why it failed.
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
    fn where_nobody_can_listen_is_said_without_zenohs_own_places() {
        let said = |listen: String| {
            let role = Role::Router { listen: vec![listen] };
            open(&role, &[], Duration::from_secs(5)).unwrap_err().to_string()
        };
        let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let place = format!("tcp/{}", taken.local_addr().unwrap());
        let error = said(place.clone());
        assert!(error.contains(&place) && error.contains("give --listen another port"), "{error}");
        // TEST-NET-1 (RFC 5737) is no address of this machine.
        let error = said("tcp/192.0.2.1:7447".to_owned());
        assert!(error.contains("192.0.2.1:7447") && !error.contains(".rs:"), "{error}");
    }
}
