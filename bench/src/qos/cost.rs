//! What a policy in force costs beside many sockets.

use std::time::Duration;

use sys::child::Child;

use crate::fleet::fixture::Watched;
use crate::record::Row;
use crate::suite::Found;

use super::{LAB, Peer, Scene, Settings, WITHIN, text};

/// Connections that send nothing; iperf3 has the others.
const IDLE: &str = "984";
const BUSY: &str = "16";
const SETTLE: Duration = Duration::from_secs(3);

const ACCEPT: &str = "import socket, sys\n\
    server = socket.create_server((sys.argv[1], 7001), backlog=2000)\n\
    print('ready', flush=True)\nheld = []\nwhile True: held.append(server.accept()[0])\n";
const CONNECT: &str = "import resource, socket, sys, time\n\
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n\
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))\n\
    held = [socket.create_connection((sys.argv[1], 7001)) for _ in range(int(sys.argv[2]))]\n\
    print('connected', flush=True)\ntime.sleep(600)\n";

/// CPU time of `kagiri qos run` with 1000 sockets of bulk, 16 of which send: all have their rates set anew
/// whenever what is left for bulk changes.
pub fn measure(settings: &Settings) -> anyhow::Result<Found> {
    let lab = settings.labs.lab("bench-qos", LAB)?;
    let scene = Scene::open(settings, &lab, "20Mbit/s", Peer::None)?;
    let seconds = settings.pace.full_or(20, 3);
    let mut row = Row::new("kagiri qos run with 1000 sockets, 16 of them sending", "% of a core");
    let _idle = scene.hold_connections(IDLE)?;
    for _ in 0..settings.pace.full_or(settings.pairs, 1) {
        let (percent, noise) = settings.pace.measured(|| {
            let mut iperf3 =
                scene.start("base", "iperf3", &["-s", "-1", "-B", &scene.base, "--forceflush"])?;
            iperf3.wait_line(WITHIN, |line| line.contains("listening"))?;
            let length = (seconds + 2 * SETTLE.as_secs()).to_string();
            let words = ["-c", &scene.base, "-P", BUSY, "-t", &length, "--forceflush"];
            let _bulk = scene.start("robots", "iperf3", &words)?;
            let daemon = scene.enforce(seconds + 2 * SETTLE.as_secs())?;
            std::thread::sleep(SETTLE);
            let mut watched = Watched::open(&[&daemon])?;
            let before = watched.read()?;
            std::thread::sleep(Duration::from_secs(seconds));
            let used = watched.read()?.cpu_ns - before.cpu_ns;
            Ok(100.0 * used as f64 / Duration::from_secs(seconds).as_nanos() as f64)
        })?;
        row.ours.push(percent);
        row.noise.push(noise);
    }
    drop(scene);
    lab.down()?;
    Ok(Found::about(format!(
        "CPU time of `kagiri qos run` (without its guardian) over {seconds} s, from /proc, with 984 \
         connections of a Python program and 16 of iperf3 in classes of a policy. With more than 500 \
         sockets it looks every 100 ms."
    ))
    .with_rows([row.goal_ours("<= 3 % of a core")]))
}

impl Scene<'_> {
    /// Opens this number of connections of a Python program, which send nothing. They end with
    /// these processes.
    pub fn hold_connections(&self, count: &str) -> anyhow::Result<[Child; 2]> {
        let [accept, connect] = [self.file("accept.py", ACCEPT)?, self.file("connect.py", CONNECT)?];
        let mut server = self.start("base", "python3", &[&text(&accept)?, &self.base])?;
        server.wait_line(WITHIN, |line| line == "ready")?;
        let mut client = self.start("robots", "python3", &[&text(&connect)?, &self.base, count])?;
        client.wait_line(WITHIN, |line| line == "connected")?;
        Ok([server, client])
    }
}
