//! Which credentials zenoh's routers admit, over loopback, and the errors for the others.

use std::net::TcpListener;
use std::path::Path;

use crate::identity_common::{WITHIN, fleet, join, load, start_router};
use fleet::identity::connect_error::{ZenohLog, explain};
use fleet::identity::{Auth, Role};
use fleet::session::ZenohSetting;

fn set(key: &str, value: &str) -> ZenohSetting {
    (key.to_owned(), format!("{value:?}"))
}

fn trusting(dir: &Path) -> ZenohSetting {
    set("transport/link/tls/root_ca_certificate", dir.join("ca/ca.pem").to_str().unwrap())
}

/// Expect a session to be refused, and its side and the router's to say why.
fn refused(endpoint: &str, settings: &[ZenohSetting], mine: &str, theirs: Option<&str>) {
    let reasons = ZenohLog::of_process().unwrap();
    reasons.take();
    assert!(join(endpoint, settings).is_err(), "{endpoint} admitted a member that it must reject: {mine}");
    let mut lines = reasons.take();
    // The router may see the refusal later than the refused side.
    let deadline = std::time::Instant::now() + WITHIN;
    loop {
        let message: Vec<_> = lines.iter().filter_map(|line| explain(std::slice::from_ref(line))).collect();
        let has = |words: &str| message.iter().any(|message| message.contains(words));
        if has(mine) && theirs.is_none_or(has) {
            return;
        }
        assert!(
            std::time::Instant::now() < deadline,
            "expected '{mine}' and {theirs:?} of {lines:#?}: {message:#?}"
        );
        std::thread::yield_now();
        lines.extend(reasons.take());
    }
}

#[test]
fn certificates_admit_members_only() {
    let _alone = crate::alone();
    let (sample_messages, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fleet(sample_messages.path(), Auth::Certificates, &["a"]);
    fleet(theirs.path(), Auth::Certificates, &["a"]);
    let (own, foreign) = (load(sample_messages.path(), "a"), load(theirs.path(), "a"));
    let (_router, at) = start_router(Some(&load(sample_messages.path(), "coordinator")), "127.0.0.1");
    assert!(join(&at, &own.zenoh_json(Role::Agent)).is_ok());
    assert!(join(&at.replace("127.0.0.1", "localhost"), &own.zenoh_json(Role::Agent)).is_ok());

    let foreign = foreign.zenoh_json(Role::Agent);
    refused(&at, &foreign, "not issued by this fleet's authority", Some("did not trust this coordinator's"));
    let intruder = [foreign, vec![trusting(sample_messages.path())]].concat();
    let message = "the authority of its fleet did not issue it";
    refused(&at, &intruder, message, Some("with a certificate of another authority"));
    refused(&at, &[trusting(sample_messages.path())], "wants a certificate", Some("without a certificate"));
    refused(&at.replace("tls", "tcp"), &[], "it requires TLS", Some("connected without TLS"));
}

#[test]
fn agent_bundle_cannot_listen() {
    let _alone = crate::alone();
    let dir = tempfile::tempdir().unwrap();
    fleet(dir.path(), Auth::Certificates, &["a", "b"]);
    let (a, b) = (load(dir.path(), "a"), load(dir.path(), "b"));
    let (_router, at) = start_router(Some(&a), "127.0.0.1");
    let settings = b.zenoh_json(Role::Agent);
    refused(&at, &settings, "has an agent's certificate", Some("did not trust"));
}

#[test]
fn coordinator_certificate_matches_its_names_only() {
    let _alone = crate::alone();
    let dir = tempfile::tempdir().unwrap();
    fleet(dir.path(), Auth::Certificates, &["a"]);
    let (router, at) = start_router(Some(&load(dir.path(), "coordinator")), "127.0.0.9");
    let settings = load(dir.path(), "a").zenoh_json(Role::Agent);
    refused(&at, &settings, "is not for the name it was joined by", None);
    drop(router);
    refused(&at, &settings, "nothing listens there", None);
    refused("tls/nowhere.invalid:7447", &settings, "cannot be resolved", None);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = format!("tls/{}", silent.local_addr().unwrap());
    let settings = [settings, vec![("transport/unicast/open_timeout".into(), "300".into())]].concat();
    refused(&at, &settings, "does not respond", None);
}

#[test]
fn passwords_admit_members_only() {
    let _alone = crate::alone();
    let dir = tempfile::tempdir().unwrap();
    fleet(dir.path(), Auth::Passwords, &["a"]);
    let (_router, at) = start_router(Some(&load(dir.path(), "coordinator")), "127.0.0.1");
    let own = load(dir.path(), "a").zenoh_json(Role::Agent);
    assert!(join(&at, &own).is_ok());
    let honest_except =
        |key: &str| [own.clone(), vec![set(&format!("transport/auth/usrpwd/{key}"), "x")]].concat();
    let theirs = Some("without a name and password of this fleet");
    refused(&at, &honest_except("password"), "refused this host's name or password", theirs);
    refused(&at, &honest_except("user"), "refused this host's name or password", theirs);
    refused(&at, &[trusting(dir.path())], "wants a password", theirs);
    let other = tempfile::tempdir().unwrap();
    fleet(other.path(), Auth::Passwords, &["a"]);
    let foreign = load(other.path(), "a").zenoh_json(Role::Agent);
    refused(&at, &foreign, "not issued by this fleet's authority", Some("did not trust"));
}
