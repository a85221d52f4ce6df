//! Hosts made of network namespaces: one bridge, and a cable to each. Nothing of them touches the machine's
//! own network.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The hosts' network: addresses that the machine itself neither has nor reaches.
const PREFIX: &str = "10.213.77";
static MADE: AtomicU32 = AtomicU32::new(1);

/// Namespaces that are deleted when dropped. Needs root and `ip`.
pub struct Namespaces {
    mark: String,
    hosts: Vec<String>,
}

#[track_caller]
fn ip(words: &str) {
    let output = Command::new("ip").args(words.split(' ')).output().expect("ip can be started");
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Namespaces {
    /// Hosts of these names, joined by a bridge of their own.
    pub fn new(names: &[&str]) -> Self {
        let mark = format!("kgt-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let mut made = Self { mark, hosts: Vec::new() };
        let hub = made.of("hub");
        made.hosts.push("hub".to_owned());
        ip(&format!("netns add {hub}"));
        ip(&format!("-n {hub} link add name hub0 type bridge"));
        ip(&format!("-n {hub} link set hub0 up"));
        for (index, name) in names.iter().enumerate() {
            made.hosts.push((*name).to_owned());
            let own = made.of(name);
            ip(&format!("netns add {own}"));
            ip(&format!("-n {hub} link add name to-{index} type veth peer name eth0 netns {own}"));
            ip(&format!("-n {hub} link set to-{index} master hub0 up"));
            ip(&format!("-n {own} link set lo up"));
            ip(&format!("-n {own} link set eth0 up"));
            ip(&format!("-n {own} address add {}/24 dev eth0", made.address(name)));
        }
        made
    }

    fn of(&self, name: &str) -> String {
        format!("{}-{name}", self.mark)
    }

    fn index(&self, name: &str) -> usize {
        self.hosts.iter().position(|host| host == name).expect("a host of this network")
    }

    pub fn address(&self, name: &str) -> String {
        format!("{PREFIX}.{}", self.index(name))
    }

    /// A command as it runs on a host, with its folder and its environment.
    pub fn on(&self, name: &str, command: &Command) -> Command {
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", &self.of(name)]).arg(command.get_program()).args(command.get_args());
        crate::set_like(&mut inside, command);
        inside.stdin(std::process::Stdio::null());
        inside
    }

    /// [`Self::on`], with the mounts of this process: `ip netns exec` hides the control groups.
    pub fn on_with_mounts(&self, name: &str, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        inside.arg(format!("--net=/run/netns/{}", self.of(name)));
        inside.arg(command.get_program()).args(command.get_args());
        crate::set_like(&mut inside, command);
        inside.stdin(std::process::Stdio::null());
        inside
    }

    /// Pull the cable of a host at the bridge, or put it back.
    pub fn cable(&self, name: &str, is_in: bool) {
        let state = if is_in { "up" } else { "down" };
        // Cables are counted from the first host, which stands behind the hub.
        ip(&format!("-n {} link set to-{} {state}", self.of("hub"), self.index(name) - 1));
    }

    /// Choose a host's congestion control.
    pub fn congestion_control(&self, name: &str, algorithm: &str) {
        let file = "/proc/sys/net/ipv4/tcp_congestion_control";
        let set =
            format!("netns exec {} sysctl -qw net.ipv4.tcp_congestion_control={algorithm}", self.of(name));
        ip(&set);
        let own = self.of(name);
        let read = Command::new("ip").args(["netns", "exec", &own, "cat", file]).output().expect("ip");
        assert_eq!(String::from_utf8_lossy(&read.stdout).trim(), algorithm);
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for host in &self.hosts {
            // One that was never made cannot be deleted.
            let _ = Command::new("ip").args(["netns", "delete", &self.of(host)]).output();
        }
    }
}
