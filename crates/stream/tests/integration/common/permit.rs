//! A host's owner who refuses one thing, and remembers what was asked.
#![allow(dead_code, reason = "each test program uses its part")]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use base::part::PartError;
use base::permit::{Permit, SystemChange};

/// Refuses what begins with a text such as `peer 127.0.0.2`, `rate`, `directory`, `change cache`, `program`.
#[derive(Debug)]
pub struct Owner {
    refused: &'static str,
    asked: Mutex<Vec<String>>,
}

impl Owner {
    pub fn refusing(refused: &'static str) -> Arc<Self> {
        Arc::new(Self { refused, asked: Mutex::default() })
    }

    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    fn ask(&self, what: String) -> Result<(), PartError> {
        let refused = !self.refused.is_empty() && what.starts_with(self.refused);
        let answer = if refused { Err(PartError::new(format!("refused: {what}"))) } else { Ok(()) };
        self.asked.lock().unwrap().push(what);
        answer
    }
}

impl Permit for Owner {
    fn peer(&self, address: SocketAddr) -> Result<(), PartError> {
        self.ask(format!("peer {address}"))
    }
    fn rate(&self, bit_per_s: u64) -> Result<(), PartError> {
        self.ask(format!("rate {bit_per_s}"))
    }
    fn directory(&self, path: &Path) -> Result<(), PartError> {
        self.ask(format!("directory {}", path.display()))
    }
    fn system_change(&self, kind: SystemChange) -> Result<(), PartError> {
        self.ask(format!("change {}", serde_json::to_value(kind).unwrap().as_str().unwrap()))
    }
    fn program(&self, program: &str) -> Result<(), PartError> {
        self.ask(format!("program {program}"))
    }
}
