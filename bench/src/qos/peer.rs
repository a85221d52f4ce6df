//! What else can put one program before others: nothing, an HTB made by hand, TrafficToll.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::ensure;
use nix::sys::signal::Signal;
use sys::child::Child;

use super::{Scene, WITHIN, text};

/// 97 % of the link, as `kagiri qos run` uses of a given capacity.
const RATE: &str = "19400kbit";
/// `$1` is the interface; port 7000 is the server's of the urgent program.
const HTB: &str = "tc qdisc add dev $1 root handle 1: htb default 20 && \
    tc class add dev $1 parent 1: classid 1:1 htb rate $2 && \
    tc class add dev $1 parent 1:1 classid 1:10 htb rate 10mbit ceil $2 prio 0 && \
    tc class add dev $1 parent 1:1 classid 1:20 htb rate 64kbit ceil $2 prio 1 && \
    tc filter add dev $1 parent 1: protocol ip u32 match ip dport 7000 0xffff flowid 1:10 && \
    echo is in force";
/// TrafficToll wants a device for incoming traffic, too.
const TRAFFICTOLL: &str = "ip link add ifb0 type ifb 2> /dev/null; exec $3 $1 $2 --delay 0.1";
const REMOVE: &str = "tc qdisc del dev $1 root; tc qdisc del dev $1 ingress; ip link del ifb0; echo removed";

/// What ours is compared with.
#[derive(Debug, Clone)]
pub enum Peer {
    None,
    Htb,
    /// Its program `tt`.
    TrafficToll(PathBuf),
}

impl Peer {
    pub const fn name(&self) -> &'static str {
        match self {
            Self::None => "without a policy",
            Self::Htb => "an HTB on the sender that was made by hand for these two programs and this rate",
            Self::TrafficToll(_) => "TrafficToll with this rate and two priorities, looking every 0.1 s",
        }
    }

    /// Puts it in force on the sender. Call [`remove`] afterwards.
    pub fn start(&self, scene: &Scene<'_>) -> anyhow::Result<Option<Child>> {
        let (script, words) = match self {
            Self::None => return Ok(None),
            Self::Htb => (HTB, vec![RATE.to_owned()]),
            Self::TrafficToll(program) => {
                let classes = format!(
                    "upload: {RATE}\nprocesses:\n  alarm:\n    upload-priority: 0\n    match:\n    - \
                     cmdline: .*alarm.py.*\n  bulk:\n    upload-priority: 1\n    match:\n    - name: iperf3\n"
                );
                let file = scene.file("traffictoll.yaml", &classes)?;
                (TRAFFICTOLL, vec![text(&file)?, text(program)?])
            }
        };
        let mut child = shell(scene, script, &words)?;
        let accept = |line: &str| line.contains("is in force") || line.contains("Shaping traffic for 'bulk'");
        child.wait_line(WITHIN, accept)?;
        Ok(Some(child))
    }
}

/// Takes away what [`Peer::start`] made.
pub fn remove(scene: &Scene<'_>, child: Option<Child>) -> anyhow::Result<()> {
    let Some(mut child) = child else { return Ok(()) };
    if child.try_wait()?.is_none() {
        // TrafficToll removes what it made only at Ctrl-C.
        child.signal(Signal::SIGINT)?;
        let ended = child.wait(Duration::from_secs(10));
        ensure!(ended.is_ok(), "TrafficToll does not end: {}", child.output_tail());
    }
    shell(scene, REMOVE, &[])?.wait_line(WITHIN, |line| line == "removed")?;
    Ok(())
}

fn shell(scene: &Scene<'_>, script: &str, words: &[String]) -> anyhow::Result<Child> {
    let arguments = ["-c", script, "sh", &scene.interface].map(str::to_owned).into_iter();
    let program = scene.lab.on("robots", Path::new("sh"));
    Ok(program.args(arguments.chain(words.iter().cloned())).start(scene.lab.journal())?)
}
