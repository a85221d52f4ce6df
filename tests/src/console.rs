//! A running `kagiri serve`.

use std::net::SocketAddr;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::http::{HttpAnswer, http_request};
use crate::{Live, World, wait_until};

const PATIENCE: Duration = Duration::from_secs(60);

pub struct Console {
    server: Live,
    pub address: SocketAddr,
    pub token: String,
}

impl Console {
    pub fn start(world: &World) -> Self {
        Self::of(world.start(&["serve", "--listen", "127.0.0.1:0"]))
    }

    /// A server that was started in some other way.
    pub fn of(mut server: Live) -> Self {
        server.wait_for("/#token=", PATIENCE);
        let stdout = server.stdout();
        let (place, token) = stdout.trim().split_once("/#token=").expect("an address with a token");
        let address = place.strip_prefix("http://").expect("http").parse().expect("an address");
        Self { server, address, token: token.to_owned() }
    }

    /// A request with the token.
    pub fn ask(&self, method: &str, path: &str, body: &Value) -> HttpAnswer {
        let bearer = format!("Bearer {}", self.token);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        http_request(self.address, method, &format!("/api/v1{path}"), &[("Authorization", &bearer)], &body)
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Value {
        self.answered("GET", path, &Value::Null, 200)
    }

    /// The JSON of an answer with this status.
    #[track_caller]
    pub fn answered(&self, method: &str, path: &str, body: &Value, status: u16) -> Value {
        let mut answer = self.ask(method, path, body);
        let (found, text) = (answer.status, answer.text());
        assert_eq!(found, status, "{method} {path}: {text}");
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    /// Asks for a run, and returns the id of the job.
    #[track_caller]
    pub fn run(&self, toml: &str) -> String {
        let job = self.answered("POST", "/jobs", &serde_json::json!({ "toml": toml }), 201);
        job["id"].as_str().expect("an id").to_owned()
    }

    /// The job, once it has one of these states.
    pub fn until(&self, job: &str, states: &[&str]) -> Value {
        let mut found = Value::Null;
        wait_until(&format!("{job}: {states:?}"), PATIENCE, || {
            found = self.get(&format!("/jobs/{job}"));
            states.iter().any(|state| found["state"] == *state)
        });
        found
    }

    /// Ends the server by a signal.
    pub fn end(self, signal: Signal) -> crate::Ended {
        self.server.signal(signal);
        self.server.end(PATIENCE)
    }
}
