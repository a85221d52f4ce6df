//! Agents with scripted responses, over real sessions.

use std::sync::Arc;

use fleet::clock::Prober;
use fleet::protocol::{self, Description, PROTOCOL, Request, Response};
use fleet::session::BusSession;
use fleet::session::{self, Role};
use serde_json::Value;
use zenoh::Wait;

use crate::common::GUARD;

/// Leaves when dropped.
pub struct ScriptedAgent {
    pub session: BusSession,
    name: String,
}

/// The responses to a request, as raw bytes.
pub type Answers = dyn Fn(&str, Request) -> Vec<Vec<u8>> + Send + Sync;

/// Leaves the request without a response. Sleeping instead would block one of the two threads that receive
/// for all sessions of this process.
pub const NO_RESPONSE: &[u8] = b"never";

impl ScriptedAgent {
    /// Joins with a token of this protocol version.
    pub fn join(name: &str, endpoint: &str, version: u32, answers: Arc<Answers>) -> Self {
        let role = Role::Client { connect: endpoint.to_owned() };
        let session = session::open(&role, None, &[], GUARD).unwrap();
        let (key, instance) =
            (protocol::request_key(name, &session.zid().to_string()), session.zid().to_string());
        let questions = session.declare_queryable(key.clone()).callback(move |query| {
            let ask = protocol::decode(&query.payload().unwrap().to_bytes()).unwrap();
            for answer in answers(&instance, ask) {
                if answer == NO_RESPONSE {
                    // Dropping it would end the query.
                    return std::mem::forget(query);
                }
                query.reply(&key, answer).wait().unwrap();
            }
        });
        questions.background().wait().unwrap();
        let token = format!("kagiri/{version}/agent/{name}/{}", session.zid());
        // Dropped with its session.
        std::mem::forget(session.liveliness().declare_token(token).wait().unwrap());
        Self { session, name: name.to_owned() }
    }

    pub fn notify(&self, bytes: impl Into<Vec<u8>>) {
        self.session.put(protocol::notification_key(&self.name), bytes.into()).wait().unwrap();
    }
}

pub fn description(name: &str, instance: &str) -> Description {
    Description {
        name: name.to_owned(),
        instance: instance.to_owned(),
        protocol: PROTOCOL,
        version: "0".into(),
        address: None,
        kernel: None,
        congestion_control: None,
        realtime_s: 0.0,
        busy: None,
    }
}

/// An honest agent's response that needs no work.
pub fn honest(name: &str, instance: &str, ask: &Request) -> Response {
    match ask {
        Request::Take { .. } => {
            Response::Taken { configuration: Default::default(), environment: Default::default() }
        }
        Request::Describe => Response::Description(Box::new(description(name, instance))),
        Request::Prepare { parts, .. } => {
            Response::Prepared(parts.iter().map(|part| (part.clone(), Value::Null)).collect())
        }
        Request::Stop { parts, .. } => {
            Response::Stopped(parts.iter().map(|part| (part.clone(), Ok(Value::Null))).collect())
        }
        // An agent without a known clock is not recruited.
        Request::Probe { target, key, batch } => {
            Response::Probed(Prober::open(target, key.clone()).unwrap().batch(*batch).unwrap())
        }
        _ => Response::Done,
    }
}

/// Honest responses, but these bytes for one kind of request.
pub fn honest_except(name: &'static str, kind: &'static str, bytes: Vec<Vec<u8>>) -> Arc<Answers> {
    Arc::new(move |instance, ask| match serde_json::to_value(&ask).unwrap()["ask"] == kind {
        true => bytes.clone(),
        false => vec![protocol::encode(&honest(name, instance, &ask))],
    })
}
