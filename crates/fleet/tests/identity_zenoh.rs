//! Who is let in, by real routers and sessions of zenoh over loopback, and what is said to those who are not.

#![allow(clippy::unwrap_used)] // clippy exempts test functions only, not their helpers

mod identity_common;

use std::net::TcpListener;
use std::path::Path;
use std::sync::Mutex;

use identity_common::{WITHIN, fleet, join, load, start_router};
use kagiri_fleet::identity::reason::{Reasons, explain};
use kagiri_fleet::identity::{Auth, Role};
use kagiri_fleet::session::Setting;

/// zenoh's log is one for the whole process: one test at a time looks at it.
static ONE: Mutex<()> = Mutex::new(());

fn set(key: &str, value: &str) -> Setting {
    (key.to_owned(), format!("{value:?}"))
}

fn trusting(dir: &Path) -> Setting {
    set("transport/link/tls/root_ca_certificate", dir.join("ca/ca.pem").to_str().unwrap())
}

/// Expect a session to be refused, and its side and the router's to say why.
fn refused(endpoint: &str, settings: &[Setting], mine: &str, theirs: Option<&str>) {
    let reasons = Reasons::of_process().unwrap();
    reasons.take();
    assert!(join(endpoint, settings).is_err(), "{endpoint} let in who should be told: {mine}");
    let mut lines = reasons.take();
    // The router may see the refusal later than who was refused.
    let deadline = std::time::Instant::now() + WITHIN;
    loop {
        let told: Vec<_> = lines.iter().filter_map(|line| explain(std::slice::from_ref(line))).collect();
        let has = |words: &str| told.iter().any(|told| told.contains(words));
        if has(mine) && theirs.is_none_or(has) {
            return;
        }
        assert!(
            std::time::Instant::now() < deadline,
            "expected '{mine}' and {theirs:?} of {lines:#?}: {told:#?}"
        );
        std::thread::yield_now();
        lines.extend(reasons.take());
    }
}

#[test]
fn certificates_let_in_who_belongs() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fleet(ours.path(), Auth::Certificates, &["a"]);
    fleet(theirs.path(), Auth::Certificates, &["a"]);
    let (own, foreign) = (load(ours.path(), "a"), load(theirs.path(), "a"));
    let (_router, at) = start_router(Some(&load(ours.path(), "coordinator")), "127.0.0.1");
    assert!(join(&at, &own.zenoh_json(Role::Agent)).is_ok());
    assert!(join(&at.replace("127.0.0.1", "localhost"), &own.zenoh_json(Role::Agent)).is_ok());

    let foreign = foreign.zenoh_json(Role::Agent);
    refused(&at, &foreign, "not issued by this fleet's authority", Some("did not trust this coordinator's"));
    let intruder = [foreign, vec![trusting(ours.path())]].concat();
    let told = "has not issued it";
    refused(&at, &intruder, told, Some("with a certificate that this fleet's authority has not issued"));
    refused(&at, &[trusting(ours.path())], "wants a certificate", Some("without a certificate"));
    refused(&at.replace("tls", "tcp"), &[], "it wants TLS", Some("does not speak TLS"));
}

#[test]
fn an_agents_bundle_cannot_pose_as_the_coordinator() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    fleet(dir.path(), Auth::Certificates, &["a", "b"]);
    let (a, b) = (load(dir.path(), "a"), load(dir.path(), "b"));
    let (_router, at) = start_router(Some(&a), "127.0.0.1");
    let settings = b.zenoh_json(Role::Agent);
    refused(&at, &settings, "shows an agent's certificate", Some("did not trust"));
}

#[test]
fn a_coordinator_is_found_under_its_own_names_alone() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    fleet(dir.path(), Auth::Certificates, &["a"]);
    let (router, at) = start_router(Some(&load(dir.path(), "coordinator")), "127.0.0.9");
    let settings = load(dir.path(), "a").zenoh_json(Role::Agent);
    refused(&at, &settings, "is not for the name it was joined by", None);
    drop(router);
    refused(&at, &settings, "nobody listens there", None);
    refused("tls/nowhere.invalid:7447", &settings, "cannot be resolved", None);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = format!("tls/{}", silent.local_addr().unwrap());
    let settings = [settings, vec![("transport/unicast/open_timeout".into(), "300".into())]].concat();
    refused(&at, &settings, "does not answer", None);
}

#[test]
fn passwords_let_in_who_has_one() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    fleet(dir.path(), Auth::Passwords, &["a"]);
    let (_router, at) = start_router(Some(&load(dir.path(), "coordinator")), "127.0.0.1");
    let own = load(dir.path(), "a").zenoh_json(Role::Agent);
    assert!(join(&at, &own).is_ok());
    let but = |key: &str| [own.clone(), vec![set(&format!("transport/auth/usrpwd/{key}"), "x")]].concat();
    let theirs = Some("without a name and password of this fleet");
    refused(&at, &but("password"), "refused this host's name or password", theirs);
    refused(&at, &but("user"), "refused this host's name or password", theirs);
    refused(&at, &[trusting(dir.path())], "wants a password", theirs);
    let other = tempfile::tempdir().unwrap();
    fleet(other.path(), Auth::Passwords, &["a"]);
    let foreign = load(other.path(), "a").zenoh_json(Role::Agent);
    refused(&at, &foreign, "not issued by this fleet's authority", Some("did not trust"));
}
