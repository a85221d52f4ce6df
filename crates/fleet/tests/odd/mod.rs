//! Agents that answer as a test says, over real sessions.

use std::sync::Arc;

use kagiri_fleet::clock::Prober;
use kagiri_fleet::protocol::{self, Answer, Ask, Description, PROTOCOL};
use kagiri_fleet::session::{self, Role};
use serde_json::Value;
use zenoh::{Session, Wait};

use crate::common::GUARD;

/// An agent that answers as the test says. It is gone when dropped.
pub struct Odd {
    pub session: Session,
    name: String,
}

/// What an odd agent answers: bytes, however often, or nothing.
pub type Answers = dyn Fn(&str, Ask) -> Vec<Vec<u8>> + Send + Sync;

/// A question with this answer stays open. Who sleeps instead holds up one of the two threads on which all sessions of
/// this process hear, and the end of its own.
pub const NEVER: &[u8] = b"never";

impl Odd {
    /// Join under a name, with a token of this version.
    pub fn join(name: &str, endpoint: &str, version: u32, answers: Arc<Answers>) -> Self {
        let role = Role::Client { connect: endpoint.to_owned() };
        let session = session::open(&role, &[], GUARD).unwrap();
        let (key, instance) =
            (protocol::ask_key(name, &session.zid().to_string()), session.zid().to_string());
        let questions = session.declare_queryable(key.clone()).callback(move |query| {
            let ask = protocol::read(&query.payload().unwrap().to_bytes()).unwrap();
            for answer in answers(&instance, ask) {
                if answer == NEVER {
                    // Dropped, it would be over without an answer.
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

    pub fn tell(&self, bytes: impl Into<Vec<u8>>) {
        self.session.put(protocol::tell_key(&self.name), bytes.into()).wait().unwrap();
    }
}

pub fn description(name: &str, instance: &str) -> Description {
    Description {
        name: name.to_owned(),
        instance: instance.to_owned(),
        protocol: PROTOCOL,
        version: "0".into(),
        address: None,
        configuration: Default::default(),
        environment: Default::default(),
        realtime_s: 0.0,
        busy: None,
    }
}

/// An honest agent's answer, as far as that needs no work.
pub fn honest(name: &str, instance: &str, ask: &Ask) -> Answer {
    match ask {
        Ask::Describe => Answer::Description(Box::new(description(name, instance))),
        Ask::Prepare { parts, .. } => {
            Answer::Prepared(parts.iter().map(|part| (part.clone(), Value::Null)).collect())
        }
        Ask::Stop { parts, .. } => {
            Answer::Stopped(parts.iter().map(|part| (part.clone(), Ok(Value::Null))).collect())
        }
        // Whose clock is not known is not taken for a run at all.
        Ask::Probe { target, key, batch } => {
            Answer::Probed(Prober::open(target, key.clone()).unwrap().batch(*batch).unwrap())
        }
        _ => Answer::Done,
    }
}

/// Honest answers but to questions of one kind, which are answered with these bytes.
pub fn but(name: &'static str, kind: &'static str, bytes: Vec<Vec<u8>>) -> Arc<Answers> {
    Arc::new(move |instance, ask| match serde_json::to_value(&ask).unwrap()["ask"] == kind {
        true => bytes.clone(),
        false => vec![protocol::write(&honest(name, instance, &ask))],
    })
}
