//! A policy on programs that are not ours: a copy by scp over ssh, an upload by curl, and a client in Python
//! that sends alarms beside them.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use kagiri_tests::{Live, UpLab, World, beside_others, need_programs, need_root, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::commands::{ALARM, ONE, SERVER, field, on};

const PATIENCE: Duration = Duration::from_secs(60);
const LAB: &str = "[host.robots]\n[host.base]\n[switch.s]\n[[link]]\nbetween = ['robots', 's']\n\
    [[link]]\nbetween = ['s', 'base']\nrate = '50Mbit/s'\nbuffer = '256KiB'\n";
const POLICY: &str = "[bottleneck]\ninterface = 'eth0'\ncapacity = '50Mbit/s'\n[[class]]\nname = 'alarm'\n\
    match = { command = 'alarm.py' }\npriority = 1\ntarget = '200ms'\nsize = '50kB'\noverhead = '5ms'\n\
    [[class]]\nname = 'copies'\nmatch = { process = 'ssh' }\npriority = 5\nceiling = '12Mbit/s'\n[[class]]\n\
    name = 'uploads'\nmatch = { process = 'curl' }\npriority = 5\nceiling = '6Mbit/s'\n";
/// Keeps what is put to it.
const UPLOADS: &str = "
import http.server, sys
class Put(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_PUT(self):
        left = int(self.headers['Content-Length'])
        with open('uploaded', 'wb') as f:
            while left:
                got = self.rfile.read(min(left, 65536)); f.write(got); left -= len(got)
        self.send_response(204); self.end_headers()
    def log_message(self, *_): pass
s = http.server.ThreadingHTTPServer((sys.argv[1], 8080), Put)
print('ready', flush=True)
s.serve_forever()
";
/// Each takes 10 s at its ceiling.
const COPY_BYTES: usize = 15_000_000;
const UPLOAD_BYTES: usize = 7_500_000;
const CEILINGS_MBIT: [f64; 2] = [12.0, 6.0];

struct Scene<'a> {
    world: &'a World,
    lab: UpLab<'a>,
    base: String,
    _servers: Vec<Live>,
}

impl<'a> Scene<'a> {
    fn new(world: &'a World) -> Self {
        let lab = UpLab::new(world, "prog", LAB);
        let base = field(world, &lab, "base", 3).split('/').next().expect("an address").to_owned();
        for (name, text) in
            [("p.toml", POLICY), ("server.py", SERVER), ("alarm.py", ALARM), ("uploads.py", UPLOADS)]
        {
            world.write(name, text);
        }
        world.write("copy", content(COPY_BYTES, 251));
        world.write("upload", content(UPLOAD_BYTES, 241));
        for key in ["host-key", "user-key"] {
            let made = std::process::Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(world.path(key))
                .status();
            assert!(made.is_ok_and(|status| status.success()), "ssh-keygen");
        }
        let own = world.path("").display().to_string();
        let own = own.trim_end_matches('/');
        world.write(
            "sshd_config",
            format!(
                "ListenAddress {base}:2222\nHostKey {own}/host-key\nAuthorizedKeysFile {own}/user-key.pub\n\
                 StrictModes no\nPidFile none\nUsePAM no\nPasswordAuthentication no\n\
                 KbdInteractiveAuthentication no\nSubsystem sftp internal-sftp\n"
            ),
        );
        let key = std::fs::read_to_string(world.path("host-key.pub")).expect("a key");
        world.write("known", format!("[{base}]:2222 {key}"));
        // sshd insists on /run/sshd.
        let script =
            "mount -t tmpfs none /run && mkdir /run/sshd && exec /usr/sbin/sshd -D -e -f sshd_config";
        let mut servers = vec![
            on(world, &lab, "base", &["unshare", "--mount", "sh", "-c", script]),
            on(world, &lab, "base", &["python3", "server.py", &base]),
            on(world, &lab, "base", &["python3", "uploads.py", &base]),
        ];
        servers[0].wait_for("Server listening", PATIENCE);
        servers[1].wait_for("ready", PATIENCE);
        servers[2].wait_for("ready", PATIENCE);
        Self { world, lab, base, _servers: servers }
    }

    fn on_robots(&self, words: &[&str]) -> Live {
        on(self.world, &self.lab, "robots", words)
    }

    fn copy(&self) -> Live {
        let to = format!("root@{}:{}", self.base, self.world.path("copied").display());
        let words = ["scp", "-q", "-P", "2222", "-i", "user-key", "-F", "/dev/null"];
        let options = ["-o", "UserKnownHostsFile=known", "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes"];
        self.on_robots(&[&words[..], &options, &["copy", &to]].concat())
    }

    fn upload(&self) -> Live {
        let to = format!("http://{}:8080/upload", self.base);
        self.on_robots(&["curl", "-sS", "--fail", "-H", "Expect:", "-T", "upload", &to])
    }

    /// How much of the copy and of the upload has arrived, in bytes.
    fn arrived(&self) -> [f64; 2] {
        ["copied", "uploaded"]
            .map(|name| std::fs::metadata(self.world.path(name)).map_or(0.0, |file| file.len() as f64))
    }

    /// Response times of 15 alarms, in milliseconds.
    fn alarms(&self) -> Vec<f64> {
        let ended = self.on_robots(&["python3", "alarm.py", &self.base, "15", "0.2"]).end(PATIENCE).code(0);
        ended.stdout.split_whitespace().skip(1).map(|word| word.parse().expect("a time")).collect()
    }
}

fn content(bytes: usize, period: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % period) as u8).collect()
}

/// Waits for the end of a program, and returns its time since `begun`, in seconds.
fn time_of(program: Live, begun: Instant) -> f64 {
    program.end(PATIENCE).code(0);
    begun.elapsed().as_secs_f64()
}

#[test]
fn scp_and_curl_keep_their_ceilings_and_alarms_are_in_time_beside_them() {
    need_root!();
    need_programs!("scp", "sshd", "curl", "python3");
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _beside = beside_others();
    let world = World::new();
    let scene = Scene::new(&world);
    let begun = Instant::now();
    let (copy, upload) = (scene.copy(), scene.upload());
    // 180 Mbit at 50 Mbit/s.
    let without_s = time_of(copy, begun).max(time_of(upload, begun));
    let program = kagiri_tests::program();
    let program = program.to_str().expect("a path");
    let mut daemon = scene.on_robots(&[program, "qos", "run", "p.toml", "--json"]);
    daemon.wait_for("is in force", PATIENCE);
    for name in ["copied", "uploaded"] {
        std::fs::remove_file(world.path(name)).expect("it arrived");
    }
    let begun = Instant::now();
    let (copy, upload) = (scene.copy(), scene.upload());
    let verified = |name: &str| {
        let status = world.run(&["qos", "status", "--json"]).code(0).json();
        let sockets = status["policies"][0]["status"]["sockets"].as_array().cloned().unwrap_or_default();
        let is_one = |socket: &Value| {
            let rate = |of: &str| socket[of].as_f64();
            socket["program"] == name
                && rate("verified_bit_per_s").is_some()
                && rate("verified_bit_per_s") == rate("enforced_bit_per_s")
        };
        sockets.iter().any(is_one)
    };
    wait_until("the kernel paces scp's ssh and curl", Duration::from_secs(5), || {
        verified("ssh") && verified("curl")
    });
    // Their rates by what the receivers have stored: a time of the whole program has its start in it, too.
    let (before, at) = (scene.arrived(), Instant::now());
    let alarms = scene.alarms();
    let (after, seconds) = (scene.arrived(), at.elapsed().as_secs_f64());
    let rates = [0, 1].map(|n| 8.0 * (after[n] - before[n]) / seconds / 1e6);
    let upload_s = time_of(upload, begun);
    let copy_s = time_of(copy, begun);
    daemon.signal(Signal::SIGINT);
    let ended = daemon.end(PATIENCE).code(0).json();
    let words = format!("{rates:?} Mbit/s, {alarms:?} ms; both without: {without_s} s; {ended}");
    for (rate, ceiling) in rates.iter().zip(CEILINGS_MBIT) {
        // Headers and ssh's own frames are in the ceiling; receivers store in blocks.
        assert!((0.8 * ceiling..1.05 * ceiling).contains(rate), "{words}");
    }
    assert!(without_s < 0.75 * copy_s.max(upload_s), "{words}");
    assert!(alarms.iter().filter(|ms| **ms <= 200.0).count() >= 13, "{words}");
    assert!(std::fs::read(world.path("copied")).is_ok_and(|found| found == content(COPY_BYTES, 251)));
    assert!(std::fs::read(world.path("uploaded")).is_ok_and(|found| found == content(UPLOAD_BYTES, 241)));
}
