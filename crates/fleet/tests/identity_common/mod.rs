//! Fleets to test with: bundles made in a folder, and zenoh sessions that use them.
#![allow(dead_code)] // each test takes what it needs
#![allow(clippy::unwrap_used)] // clippy exempts test functions only, not their helpers

use std::path::{Path, PathBuf};

use kagiri_fleet::identity::{Auth, Credentials, Init, Made, Named, init};

/// Make a fleet with a coordinator and these hosts.
pub fn fleet(dir: &Path, auth: Auth, hosts: &[&str]) -> Made {
    let coordinator = Named { name: "c1".into(), addresses: vec!["192.0.2.1".into()] };
    let request = Init { coordinator: Some(coordinator), auth: Some(auth), ..more(dir, hosts) };
    init(&request).unwrap()
}

/// The request for further hosts.
pub fn more(dir: &Path, hosts: &[&str]) -> Init {
    Init {
        dir: dir.to_owned(),
        coordinator: None,
        routers: Vec::new(),
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
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
