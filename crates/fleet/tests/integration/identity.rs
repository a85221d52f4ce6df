//! The fleet's authority and its bundles.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::identity_common::{bundle, fleet, load, more};
use fleet::identity::{Auth, Credentials, InitOptions, MemberKind, Role, ServerName, init};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

const DAY: Duration = Duration::from_secs(86_400);

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn with_certificate<T>(path: &Path, look: impl FnOnce(&X509Certificate<'_>) -> T) -> T {
    let text = std::fs::read(path).unwrap();
    let (_, pem) = x509_parser::pem::parse_x509_pem(&text).unwrap();
    look(&X509Certificate::from_der(&pem.contents).unwrap().1)
}

fn refused(dir: &Path) -> String {
    Credentials::load(dir).unwrap_err().to_string()
}

#[test]
fn init_makes_a_bundle_for_every_member() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("fleet");
    let made = fleet(&root, Auth::Certificates, &["a", "b.lab"]);
    assert!(made.authority && made.updated.is_empty());
    assert_eq!(made.bundles, ["coordinator", "a", "b.lab"].map(|name| bundle(&root, name)));
    for secret in ["ca/ca.key", "bundles/a/key.pem", "bundles/coordinator/key.pem"] {
        assert_eq!(mode(&root.join(secret)), 0o600, "{secret}");
    }
    for folder in ["", "ca", "bundles", "bundles/a"] {
        assert_eq!(mode(&root.join(folder)), 0o700, "{folder}");
    }
    assert!(!bundle(&root, "a").join("members").exists() && !bundle(&root, "a").join("ca.key").exists());

    let coordinator = load(&root, "coordinator");
    assert_eq!((coordinator.role(), coordinator.name()), (Role::Coordinator, "c1"));
    assert_eq!(coordinator.members.len(), 3);
    let agent = load(&root, "b.lab");
    assert_eq!((agent.role(), agent.name(), agent.uses_passwords()), (Role::Agent, "b.lab", false));
    let left = agent.left(SystemTime::now());
    assert!(left > DAY * 824 && left <= DAY * 825, "{left:?}");

    let join = std::fs::read_to_string(bundle(&root, "a").join("join.txt")).unwrap();
    assert!(join.contains("--join tls/c1:7447 --name a"), "{join}");
    // Where else it is found, also for hosts that come later.
    init(&more(&root, &["late"])).unwrap();
    let late = std::fs::read_to_string(bundle(&root, "late").join("join.txt")).unwrap();
    for join in [join, late] {
        assert!(join.contains("another name of its certificate:\n192.0.2.1.\n"), "{join}");
    }
    let policy = std::fs::read_to_string(bundle(&root, "a").join("policy.toml")).unwrap();
    let owner = fleet::policy::HostInfo { host: "a".into(), data_dir: "/d".into() };
    fleet::policy::Policy::parse(&policy, &owner).unwrap();
}

#[test]
fn certificates_permit_only_their_holders_role() {
    let dir = tempfile::tempdir().unwrap();
    fleet(dir.path(), Auth::Certificates, &["a"]);
    let now =
        i64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()).unwrap();
    let look = |name: &str, common: &str, server: bool| {
        with_certificate(&bundle(dir.path(), name).join("cert.pem"), |certificate| {
            let subject =
                certificate.subject().iter_common_name().next().unwrap().as_str().unwrap().to_owned();
            assert_eq!(subject, common);
            let usage = certificate.extended_key_usage().unwrap().unwrap().value;
            assert_eq!((usage.server_auth, usage.client_auth, usage.any), (server, true, false), "{name}");
            assert!(
                !certificate.is_ca() && certificate.key_usage().unwrap().unwrap().value.digital_signature()
            );
            assert!(certificate.validity().not_before.timestamp() <= now - 86_000, "backdated");
            certificate.raw_serial().to_vec()
        })
    };
    let serials = [look("coordinator", "coordinator@c1", true), look("a", "a", false)];
    assert_ne!(serials[0], serials[1]);
    assert!(serials[0].len() == 16);
    let names = with_certificate(&bundle(dir.path(), "coordinator").join("cert.pem"), |certificate| {
        let names = &certificate.subject_alternative_name().unwrap().unwrap().value.general_names;
        names
            .iter()
            .map(|name| match name {
                GeneralName::DNSName(name) => (*name).to_owned(),
                GeneralName::IPAddress(bytes) => format!("{bytes:?}"),
                other => panic!("{other}"),
            })
            .collect::<Vec<_>>()
    });
    let v6 = "[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]";
    assert_eq!(names, ["c1", "[192, 0, 2, 1]", "localhost", "[127, 0, 0, 1]", v6]);
}

#[test]
fn existing_bundles_are_replaced_only_on_request() {
    let dir = tempfile::tempdir().unwrap();
    fleet(dir.path(), Auth::Certificates, &["a"]);
    let before = std::fs::read(bundle(dir.path(), "a").join("key.pem")).unwrap();
    let message = init(&more(dir.path(), &["b", "a"])).unwrap_err().to_string();
    assert!(message.contains("bundles/a: this bundle exists"), "{message}");
    assert!(!bundle(dir.path(), "b").exists(), "all or nothing");

    let made = init(&more(dir.path(), &["b"])).unwrap();
    assert!(!made.authority);
    assert_eq!(made.updated, [bundle(dir.path(), "coordinator").join("members")]);
    assert_eq!(load(dir.path(), "coordinator").members.len(), 3);
    assert_eq!(load(dir.path(), "b").name(), "b");

    let replace = InitOptions { replace: true, ..more(dir.path(), &["a"]) };
    let made = init(&replace).unwrap();
    assert!(
        made.updated.is_empty() && made.kept.is_empty(),
        "the list and the policy are the same: {made:?}"
    );
    assert_ne!(std::fs::read(bundle(dir.path(), "a").join("key.pem")).unwrap(), before);
    assert_eq!(load(dir.path(), "coordinator").members.len(), 3);
}

#[test]
fn replacing_a_bundle_keeps_its_policy() {
    let dir = tempfile::tempdir().unwrap();
    fleet(dir.path(), Auth::Certificates, &["a", "b"]);
    let policy = bundle(dir.path(), "a").join("policy.toml");
    let narrow = "[[allow]]\ncoordinator = \"desk\"\nparts = [\"observe.*\"]\n";
    std::fs::write(&policy, narrow).unwrap();
    let made = init(&InitOptions { replace: true, ..more(dir.path(), &["a", "b"]) }).unwrap();
    assert_eq!(made.kept, std::slice::from_ref(&policy));
    assert_eq!((std::fs::read_to_string(&policy).unwrap(), mode(&policy)), (narrow.to_owned(), 0o600));
}

#[test]
fn init_rejects_invalid_requests() {
    let dir = tempfile::tempdir().unwrap();
    let message = |request: &InitOptions| init(request).unwrap_err().to_string();
    assert!(message(&more(dir.path(), &["a"])).contains("name its coordinator as well"));
    assert!(message(&more(dir.path(), &[])).contains("nothing to do"));
    let coordinator =
        |name: &str, address: &str| Some(ServerName { name: name.into(), addresses: vec![address.into()] });
    let with = |coordinator| InitOptions { coordinator, ..more(dir.path(), &["a"]) };
    assert!(message(&with(coordinator("C1", "192.0.2.1"))).contains("'C1' cannot be a host's name"));
    assert!(message(&with(coordinator("c1", "a b"))).contains("'a b' cannot be"));
    assert!(message(&more(dir.path(), &["a", "a"])).contains("named twice"));
    assert!(message(&more(dir.path(), &["coordinator"])).contains("no host can have the name"));
    assert!(message(&more(dir.path(), &["../x"])).contains("cannot be a host's name"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was made");

    fleet(dir.path(), Auth::Certificates, &["a"]);
    let passwords = InitOptions { auth: Some(Auth::Passwords), ..more(dir.path(), &["b"]) };
    assert!(message(&passwords).contains("this fleet uses certificates"));
    // The machine that coordinates can have an agent, too.
    assert!(init(&more(dir.path(), &["c1"])).is_ok());
}

#[test]
fn untrusted_bundle_is_rejected() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fleet(dir.path(), Auth::Certificates, &["a", "b"]);
    fleet(other.path(), Auth::Certificates, &["a"]);
    let a = bundle(dir.path(), "a");

    set_mode(&a.join("key.pem"), 0o644);
    assert!(refused(&a).contains("others can read or write it (mode 0644)"), "{}", refused(&a));
    set_mode(&a.join("key.pem"), 0o600);

    let now = SystemTime::now();
    let on = |now| Credentials::load_at(&a, now).unwrap_err().to_string();
    let late = on(now + DAY * 826);
    assert!(
        late.contains("cert.pem: it ended on 20") && late.contains("this machine says it is 20"),
        "{late}"
    );
    assert!(on(now - DAY * 2).contains("it counts from 20"), "{}", on(now - DAY * 2));
    assert!(Credentials::load_at(&a, now - DAY / 2).is_ok(), "a clock off by hours");

    std::fs::copy(bundle(other.path(), "a").join("ca.pem"), a.join("ca.pem")).unwrap();
    assert!(refused(&a).contains("(ca.pem) has not signed it"), "{}", refused(&a));
    std::fs::copy(dir.path().join("ca/ca.pem"), a.join("ca.pem")).unwrap();
    assert!(Credentials::load(&a).is_ok());

    std::fs::copy(bundle(dir.path(), "b").join("key.pem"), a.join("key.pem")).unwrap();
    assert!(refused(&a).contains("does not belong to key.pem"), "{}", refused(&a));
    std::fs::write(a.join("key.pem"), "nonsense").unwrap();
    assert!(refused(&a).contains("key.pem: it is no private key"), "{}", refused(&a));
    std::fs::remove_file(a.join("key.pem")).unwrap();
    assert!(refused(&a).contains("cannot read"), "{}", refused(&a));
    std::fs::write(a.join("cert.pem"), "nonsense").unwrap();
    assert!(refused(&a).contains("no certificate in PEM form"), "{}", refused(&a));

    assert!(refused(&dir.path().join("nowhere")).contains("no such folder"));
    std::fs::remove_file(bundle(dir.path(), "coordinator").join("members")).unwrap();
    assert!(refused(&bundle(dir.path(), "coordinator")).contains("list of the fleet's members"));
}

#[test]
fn passwords_are_random_and_distinct() {
    let dir = tempfile::tempdir().unwrap();
    let made = fleet(dir.path(), Auth::Passwords, &["a", "b"]);
    assert_eq!(made.auth, Auth::Passwords);
    let agent = load(dir.path(), "a");
    let login = agent.login.clone().unwrap();
    assert_eq!((login.user.as_str(), login.password.len(), &agent.pair), ("a", 32, &None));
    assert!(!format!("{agent:?}").contains(&login.password));
    assert_ne!(login.password, load(dir.path(), "b").login.unwrap().password);
    let coordinator = load(dir.path(), "coordinator");
    assert!(coordinator.pair.is_some() && coordinator.members.len() == 3);
    let users = std::fs::read_to_string(coordinator.users.unwrap()).unwrap();
    assert!(users.lines().any(|line| line == format!("a:{}", login.password)));
    for secret in ["bundles/a/login", "bundles/coordinator/users", "ca/users"] {
        assert_eq!(mode(&dir.path().join(secret)), 0o600, "{secret}");
    }
    set_mode(&bundle(dir.path(), "a").join("login"), 0o604);
    assert!(refused(&bundle(dir.path(), "a")).contains("login: others can read"));

    // A further host finds the fleet's way by itself.
    let made = init(&more(dir.path(), &["d"])).unwrap();
    assert_eq!(made.auth, Auth::Passwords);
    assert_eq!(load(dir.path(), "d").login.unwrap().user, "d");
    assert!(load(dir.path(), "coordinator").members.iter().any(|member| member.name == "d"));
}

#[test]
fn router_configuration_is_kept_up_to_date() {
    let dir = tempfile::tempdir().unwrap();
    fleet(dir.path(), Auth::Certificates, &["a"]);
    let router = ServerName { name: "r1".into(), addresses: vec!["r1.example".into()] };
    let made = init(&InitOptions { routers: vec![router], ..more(dir.path(), &[]) }).unwrap();
    let home = dir.path().join("routers/r1");
    assert_eq!(made.bundles, std::slice::from_ref(&home));
    let credentials = Credentials::load(&home).unwrap();
    assert_eq!((credentials.holder.kind, credentials.role()), (MemberKind::Router, Role::Coordinator));
    let config = zenoh::Config::from_file(home.join("zenohd.json5")).unwrap();
    let text = config.get_json("access_control").unwrap();
    assert!(
        text.contains("ask/a") && text.contains("coordinator@c1") && text.contains("router@r1"),
        "{text}"
    );
    assert_eq!(config.get_json("transport/link/tls/enable_mtls").unwrap(), "true");

    let made = init(&more(dir.path(), &["b"])).unwrap();
    assert!(made.updated.contains(&home.join("zenohd.json5")), "{:?}", made.updated);
    assert!(std::fs::read_to_string(home.join("zenohd.json5")).unwrap().contains("kagiri/2/ask/b"));
}
