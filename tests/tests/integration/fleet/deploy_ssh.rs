//! `deploy/ssh`: agents started and stopped on two hosts by a real ssh. Each host is an sshd in a mount
//! namespace of its own, with a home folder of its own.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kagiri_tests::{
    Ended, Live, World, beside_others, need_programs, need_root, program, valid, wait_until, workspace,
};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);
/// Where things go below a user's home.
const FOLDER: &str = ".local/share/kagiri-agent";

/// Hosts that ssh reaches. What runs on them is ended, and all is gone, when dropped.
struct Hosts {
    daemons: Vec<Child>,
    dir: TempDir,
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("it is bound").port()
}

impl Hosts {
    fn start(names: &[&str]) -> Self {
        // Not below the user's home, over which each host lays its own.
        let dir = tempfile::Builder::new().prefix("kagiri-ssh-").tempdir_in("/tmp").expect("a folder");
        let mut hosts = Self { daemons: Vec::new(), dir };
        for key in ["host-key", "user-key"] {
            run(Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(hosts.path(key)));
        }
        let host_key = fs::read_to_string(hosts.path("host-key.pub")).expect("a key");
        let (mut config, mut known) = (String::new(), String::new());
        for name in names {
            let port = hosts.sshd(name);
            let own = hosts.dir.path().display();
            known += &format!("[127.0.0.1]:{port} {host_key}");
            config += &format!(
                "Host {name}\n HostName 127.0.0.1\n Port {port}\n User root\n IdentityFile {own}/user-key\n \
                 IdentitiesOnly yes\n UserKnownHostsFile {own}/known\n GlobalKnownHostsFile /dev/null\n \
                 StrictHostKeyChecking yes\n"
            );
        }
        fs::write(hosts.path("known"), known).expect("a file");
        fs::write(hosts.path("ssh_config"), config).expect("a file");
        fs::write(hosts.path("hosts"), format!("# all of them\n{}\n", names.join("\n"))).expect("a file");
        hosts
    }

    fn sshd(&mut self, name: &str) -> u16 {
        let port = free_port();
        let own = self.dir.path().display();
        let text = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {own}/host-key\nAuthorizedKeysFile \
             {own}/user-key.pub\nStrictModes \
             no\nPidFile none\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        );
        let config = self.path(&format!("sshd_config.{name}"));
        fs::write(&config, text).expect("a file");
        fs::create_dir(self.home(name)).expect("a folder");
        let root = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(0)).expect("users can be read");
        // sshd insists on /run/sshd, and the scripts use the home folder: both are this namespace's own.
        let script = "mount -t tmpfs none /run && mkdir /run/sshd && mount --bind \"$1\" \"$2\" && \
                      exec setpriv --pdeathsig KILL /usr/sbin/sshd -D -e -f \"$3\"";
        let daemon = Command::new("unshare")
            .args(["--mount", "sh", "-c", script, "sh"])
            .arg(self.home(name))
            .arg(root.expect("there is a root").dir)
            .arg(config)
            .stdin(Stdio::null())
            .stderr(fs::File::create(self.path(&format!("sshd.{name}.log"))).expect("a log"))
            .spawn()
            .expect("unshare starts");
        self.daemons.push(daemon);
        let answers = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
        wait_until("sshd answers", Duration::from_secs(10), answers);
        port
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The home folder of a host's user, as seen from here.
    fn home(&self, name: &str) -> PathBuf {
        self.path(&format!("home-{name}"))
    }

    fn script(&self, name: &str, arguments: &[&str]) -> Ended {
        let mut command = Command::new(workspace().join("deploy/ssh").join(name));
        command.current_dir(self.dir.path()).args(["-F", "ssh_config"]).args(arguments).stdin(Stdio::null());
        Live::start(command).end(PATIENCE)
    }

    fn fleet_start(&self, join: &str) -> Ended {
        let program = program();
        let binary = program.to_str().expect("a path is text");
        self.script(
            "fleet-start",
            &["--join", join, "--credentials", "fleet/bundles", "--binary", binary, "hosts"],
        )
    }

    /// The agent that runs on a host: its process id, and its command line.
    fn agent(&self, name: &str) -> Option<(u32, String)> {
        let pid =
            fs::read_to_string(self.home(name).join(FOLDER).join("agent.pid")).ok()?.trim().parse().ok()?;
        let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        (!words.is_empty()).then_some((pid, words))
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.script("fleet-stop", &["hosts"]);
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// The files and folders below `folder` to which users other than the owner have any permission.
fn open_to_others(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("an entry").path();
        if fs::metadata(&path).expect("it is there").permissions().mode() & 0o077 != 0 {
            found.push(path.clone());
        }
        if path.is_dir() {
            found.extend(open_to_others(&path));
        }
    }
    found
}

#[test]
fn a_fleet_is_started_runs_and_is_stopped_over_ssh() {
    need_root!();
    need_programs!("ssh", "sshd", "ssh-keygen", "unshare", "setpriv", "bash", "tar", "sha256sum");
    let _beside = beside_others();
    let world = World::new();
    let hosts = Hosts::start(&["alpha", "beta"]);
    let fleet = hosts.path("fleet").display().to_string();
    world
        .run(&["fleet", "init", &fleet, "--coordinator", "desk", "--host", "alpha", "--host", "beta"])
        .code(0);
    let listen = format!("tls/127.0.0.1:{}", free_port());
    let started = hosts.fleet_start(&listen).code(0);
    assert!(
        started.stdout.contains("alpha: started") && started.stdout.contains("beta: started"),
        "{started:?}"
    );
    let first = hosts.agent("alpha").expect("an agent");
    assert!(first.1.contains(&format!("--join {listen}")), "{}", first.1);
    let open = open_to_others(&hosts.home("alpha").join(FOLDER));
    assert!(open.is_empty(), "only the owner may look: {open:?}");
    // Once more: nothing changes.
    let again = hosts.fleet_start(&listen).code(0);
    assert!(again.stdout.contains("alpha: already runs"), "{again:?}");
    assert_eq!(hosts.agent("alpha"), Some(first));
    // They work: a plan runs on them.
    let words =
        ["stream", "--place", "server=alpha", "--place", "viewers=beta", "--streams", "1", "--hold", "1s"];
    let more = ["--bitrate", "2Mbit/s", "--listen", &listen, "--credentials"];
    let coordinator = format!("{fleet}/bundles/coordinator");
    let words = [&words[..], &more[..], &[&coordinator, "--json"]].concat();
    let (ended, document) = valid(|| world.measure(&words, PATIENCE));
    let ended = ended.code(0);
    assert!(document["trials"][0]["metrics"]["frames_played"].as_f64() > Some(0.0), "{}", ended.stdout);
    // Other credentials: the agent of that host is replaced, the other one stays.
    world.run(&["fleet", "init", &fleet, "--host", "beta", "--replace"]).code(0);
    let (alpha, beta) = (hosts.agent("alpha"), hosts.agent("beta"));
    // As a copy that broke off left it.
    let folder = hosts.home("beta").join(FOLDER);
    fs::create_dir_all(folder.join("next/bundle")).expect("a folder");
    fs::write(folder.join("next/bundle/login"), "of an earlier fleet").expect("a file");
    hosts.fleet_start(&listen).code(0);
    assert_eq!(hosts.agent("alpha"), alpha);
    assert_ne!(hosts.agent("beta"), beta);
    assert!(folder.join("now/bundle/key.pem").exists() && !folder.join("now/bundle/login").exists());
    let running = ["alpha", "beta"].map(|name| hosts.agent(name).expect("an agent").0);
    let stopped = hosts.script("fleet-stop", &["hosts"]).code(0);
    assert!(stopped.stdout.contains("beta: stopped"), "{stopped:?}");
    for pid in running {
        assert!(!Path::new(&format!("/proc/{pid}/exe")).exists(), "process {pid} runs on");
    }
    assert_eq!(hosts.script("fleet-stop", &["hosts"]).code(0).stdout, "", "nothing to stop is no failure");
    hosts.script("fleet-stop", &["--purge", "hosts"]).code(0);
    assert!(!hosts.home("alpha").join(FOLDER).exists(), "the credentials are gone, too");
}

#[test]
fn a_host_that_fails_is_named_and_the_others_start() {
    need_root!();
    need_programs!("ssh", "sshd", "ssh-keygen", "unshare", "setpriv", "bash", "tar", "sha256sum");
    let world = World::new();
    let hosts = Hosts::start(&["alpha"]);
    let fleet = hosts.path("fleet").display().to_string();
    world
        .run(&["fleet", "init", &fleet, "--coordinator", "desk", "--host", "alpha", "--host", "gone"])
        .code(0);
    // No program listens there: the listener of this port is closed again.
    let config = fs::read_to_string(hosts.path("ssh_config")).expect("a file");
    let gone = format!("{config}Host gone\n HostName 127.0.0.1\n Port {}\n", free_port());
    fs::write(hosts.path("ssh_config"), gone).expect("a file");
    fs::write(hosts.path("hosts"), "alpha\ngone\n").expect("a file");
    let join = format!("tls/127.0.0.1:{}", free_port());
    let started = hosts.fleet_start(&join).code(1).says(&["gone: failed", "1 of 2 hosts failed"]);
    assert!(started.stdout.contains("alpha: started"), "{started:?}");
    assert!(started.stdout.contains("gone: ssh: connect to host 127.0.0.1"), "{started:?}");
    assert!(hosts.agent("alpha").is_some());
    // Words that a shell would take for its own, a name that leads elsewhere, a bundle that is missing.
    hosts.fleet_start("tls/$(id):7447").code(2).says(&["characters that a shell would take for its own"]);
    fs::write(hosts.path("hosts"), "../alpha\n").expect("a file");
    hosts.fleet_start(&join).code(2).says(&["'../alpha' is no name of a host"]);
    fs::write(hosts.path("hosts"), "alpha\nother\n").expect("a file");
    hosts.fleet_start(&join).code(2).says(&["fleet/bundles/other: no bundle for host other"]);
    fs::write(hosts.path("hosts"), "alpha\n").expect("a file");
}
