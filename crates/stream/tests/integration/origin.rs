//! The server that is made for a measurement: where it listens, what is said of its host, and what is asked
//! first.

use crate::common::permit;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use base::outcome::{Ceiling, Resource};
use base::part::{AnyPart, Endpoints, HostContext, PartError, Watch};
use base::placement::{Placement, Wish, Wishes};
use httpd::{Server, ServerConfig};
use permit::Owner;
use serde_json::{Value, json};
use stream::Stream;
use stream::origin::cache::{CacheTask, ContentCache};
use stream::origin::{Origin, OriginTask};
use stream::settings::StreamSettings;
use sys::cgroup::Cgroup;
use sys::journal::Journal;
use workload::{Workload, part};

/// No condition is waited for longer.
const GUARD: Duration = Duration::from_secs(20);
/// Set where this test program stands for the `kagiri` program.
const SERVE: &str = "KAGIRI_TEST_SERVE";

/// Not a test: `content serve DIR --listen ADDRESS ...` for the parts below, which start a program of their
/// own.
#[test]
fn serves_as_program_of_other_tests() {
    let Ok(arguments) = std::env::var(SERVE) else { return };
    let words: Vec<&str> = arguments.split_whitespace().collect();
    let after = |flag: &str| words.iter().position(|word| *word == flag).map(|at| words[at + 1]);
    assert_eq!(words[..2], ["content", "serve"]);
    let listen: std::net::SocketAddr = after("--listen").unwrap().parse().unwrap();
    assert!(listen.ip().is_loopback() || words.contains(&"--open"));
    let server = Server::start(ServerConfig::new(words[2], listen)).unwrap();
    println!("test ready at http://{}/", server.local_addr());
    loop {
        std::thread::park();
    }
}

/// A host of its own below `folder`.
fn host(folder: &Path) -> HostContext {
    let program = folder.join("kagiri");
    let me = std::env::current_exe().unwrap();
    let script = format!(
        "#!/bin/sh\n{SERVE}=\"$*\" exec '{}' --exact origin::serves_as_program_of_other_tests --nocapture\n",
        me.display()
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    HostContext::here(folder.join("data"), folder.join("journal"), program)
}

fn server(settings: Value, players_elsewhere: bool) -> Box<dyn AnyPart> {
    let task = OriginTask { stream: StreamSettings::read(settings).unwrap(), players_elsewhere };
    (part::kind::<Origin>().build)(&part::spec::<Origin>("server".into(), "nas", &task).unwrap()).unwrap()
}

fn small() -> Value {
    json!({"content": {"duration": "5s"}, "max": 4})
}

fn watch(endpoint: &Value) -> Watch {
    serde_json::from_value(endpoint["watch"].clone()).unwrap()
}

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}/exe")).exists()
}

#[test]
fn server_listens_at_host_address_and_reports_ceilings() {
    let folder = tempfile::tempdir().unwrap();
    let said = |value| Ceiling { value, source: "the owner".into() };
    let host = HostContext {
        address: Some("127.0.0.2".parse().unwrap()),
        ceilings: [(Resource::Cpu, said(1e6)), (Resource::Network, said(1e9))].into(),
        ..host(folder.path())
    };
    let mut part = server(small(), false);
    let endpoint = part.prepare(&Endpoints::new(), &host).unwrap();
    let url = endpoint["content_url"].as_str().unwrap();
    assert!(url.starts_with("http://127.0.0.2:") && !url.starts_with("http://127.0.0.2:0/"), "{url}");
    let watch = watch(&endpoint);
    assert_eq!((watch.network_device, watch.tcp_port), (None, None), "players here come over loopback");
    assert_eq!(watch.ceilings[&Resource::Network], said(1e9));
    assert_ne!(watch.ceilings[&Resource::Cpu].source, "the owner", "the server has one thread");
    let pid = watch.pids[0];
    assert!(is_alive(pid));
    // As a lost coordinator leaves it: dropped, not stopped.
    let begun = Instant::now();
    drop(part);
    assert!(!is_alive(pid));
    eprintln!("the server was gone {:?} after it had been dropped", begun.elapsed());
    assert_eq!(fs::read_dir(folder.path().join("journal")).map_or(0, Iterator::count), 0);
}

#[test]
fn remote_players_are_sampled_by_network_device() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = host(folder.path());
    let error = server(small(), true).prepare(&Endpoints::new(), &host).unwrap_err();
    assert!(error.message.contains("the address at which they reach this host is unknown"), "{error}");
    assert!(!host.data_dir.exists(), "nothing was made");
    host.address = Some("127.0.0.1".parse().unwrap());
    let mut part = server(small(), true);
    let endpoint = part.prepare(&Endpoints::new(), &host).unwrap();
    let watch = watch(&endpoint);
    let port = endpoint["content_url"].as_str().unwrap().split([':', '/']).nth(4).unwrap().parse().ok();
    assert_eq!((watch.network_device.as_deref(), watch.tcp_port), (Some("lo"), port));
    assert_eq!(watch.network_namespace_pid, None, "its own namespace needs not be entered");
    part.stop().unwrap();
    assert!(!is_alive(watch.pids[0]));
}

#[test]
fn server_runs_in_host_group_and_reports_its_limits() {
    if !sys::environment::is_root() {
        return features::skip("needs root");
    }
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(&folder.path().join("owner")).unwrap();
    let group = Cgroup::create(&journal, "origin").unwrap();
    group.set_cpu_quota_percent(40.0).unwrap();
    let program_group = Some(format!("kagiri-{}-origin", std::process::id()));
    let host = HostContext { program_group, ..host(folder.path()) };
    let mut part = server(small(), false);
    let watch = watch(&part.prepare(&Endpoints::new(), &host).unwrap());
    assert!(group.pids().unwrap().contains(&i32::try_from(watch.pids[0]).unwrap()));
    assert_eq!(watch.ceilings[&Resource::Cpu].value, 40.0);
    assert_eq!(
        watch.cgroup_cpu.map(Into::into),
        group.cpu_stat_path().unwrap().parent().map(Path::to_path_buf)
    );
    part.stop().unwrap();
}

#[test]
fn permissions_are_checked_before_creation() {
    let given = |folder: &Path| {
        let content = folder.join("films").join("a.ts");
        fs::create_dir_all(content.parent().unwrap()).unwrap();
        fs::write(&content, "no content").unwrap();
        json!({"content": {"path": content}})
    };
    type Settings = fn() -> Value;
    let cases: [(&str, Settings); 4] = [
        ("directory", small),
        ("peer 127.0.0.1:0", small),
        ("rate 100000000", small),
        ("program nginx", || json!({"server": {"kind": "nginx"}, "max": 4})),
    ];
    for (refused, settings) in cases {
        let folder = tempfile::tempdir().unwrap();
        let host = HostContext { permit: Owner::refusing(refused), ..host(folder.path()) };
        let error = server(settings(), false).prepare(&Endpoints::new(), &host).unwrap_err();
        assert!(error.message.starts_with(&format!("refused: {refused}")), "{refused}: {error}");
        assert!(!host.data_dir.exists() && !host.journal_dir.exists(), "{refused}: something was made");
    }
    // Of content that is given, what is asked for is what would be served: its directory.
    let folder = tempfile::tempdir().unwrap();
    let host = HostContext { permit: Owner::refusing("directory"), ..host(folder.path()) };
    let error = server(given(folder.path()), false).prepare(&Endpoints::new(), &host).unwrap_err();
    let films = folder.path().canonicalize().unwrap().join("films");
    assert_eq!(error.message, format!("refused: directory {}", films.display()));
}

#[test]
fn page_cache_is_dropped_only_with_permission() {
    let folder = tempfile::tempdir().unwrap();
    let content = folder.path().join("film.ts");
    fs::write(&content, vec![7; 1 << 20]).unwrap();
    let task = CacheTask { path: content.clone() };
    let spec = part::spec::<ContentCache>("cache".into(), "nas", &task).unwrap();
    for refused in ["directory", "change cache"] {
        let host = HostContext { permit: Owner::refusing(refused), ..host(folder.path()) };
        let error = (part::kind::<ContentCache>().build)(&spec)
            .unwrap()
            .prepare(&Endpoints::new(), &host)
            .unwrap_err();
        assert!(error.message.starts_with(&format!("refused: {refused}")), "{error}");
    }
    assert_eq!(sys::disk::resident_bytes(&content).unwrap(), Some(1 << 20));
}

/// Minutes of content are begun, and given up as soon as the run is to end.
#[test]
fn making_content_stops_with_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let host = host(folder.path());
    let (stop, content) = (Arc::clone(&host.stop), host.data_dir.join("content"));
    let ender = std::thread::spawn(move || {
        let give_up = Instant::now() + GUARD;
        let files = || fs::read_dir(&content).into_iter().flatten().flatten();
        while !files().any(|file| file.metadata().is_ok_and(|facts| facts.len() > 1 << 20)) {
            assert!(Instant::now() < give_up, "no content is made");
            std::thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
        Instant::now()
    });
    let settings = json!({"content": {"duration": "10min"}});
    let error = server(settings, false).prepare(&Endpoints::new(), &host).unwrap_err();
    let ended = Instant::now();
    eprintln!("making content ended {:?} after the run was to end: {error}", ended - ender.join().unwrap());
    assert_eq!(fs::read_dir(host.data_dir.join("content")).unwrap().count(), 0, "nothing half is left");
}

#[test]
fn placement_decides_players_elsewhere() {
    let standing = |viewers: &str| -> Result<Value, PartError> {
        let wish = |hosts: &str| Wish { hosts: hosts.into(), count: None, at_least: None };
        let wishes = Wishes::from([("server".into(), wish("nas")), ("viewers".into(), wish(viewers))]);
        let placement = Placement::of(&wishes, &["nas".into(), "pc-1".into()]);
        Ok(Stream.standing(&StreamSettings::default(), &placement)?.remove(0).settings["players_elsewhere"]
            .clone())
    };
    assert_eq!(standing("nas").unwrap(), json!(false));
    assert_eq!(standing("nas,pc-1").unwrap(), json!(true));
    assert_eq!(standing("pc-1").unwrap(), json!(true));
}
