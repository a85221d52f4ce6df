//! Two network namespaces and a switch between them, which loses packets on request. Needs root.

use std::net::Ipv4Addr;
use std::path::Path;

use sys::journal::Journal;
use sys::netns::Namespace;
use sys::proc::{TcpCounters, TcpCountersReading};

pub const BUILDER: Ipv4Addr = Ipv4Addr::new(10, 177, 3, 2);

/// Two namespaces joined by a bridge in a third.
pub struct Wire {
    pub sources: Namespace,
    pub builder: Namespace,
    switch: Namespace,
    address: String,
    _folder: tempfile::TempDir,
}

impl Wire {
    /// `test` is part of the namespaces' names.
    pub fn new(test: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path()).unwrap();
        let name = |end| format!("kagiri-test-{test}-{}-{end}", std::process::id());
        let [sources, builder, switch] =
            ["s", "b", "w"].map(|end| Namespace::create(&journal, &name(end)).expect("a namespace"));
        switch.ip("link add bridge type bridge\nlink set bridge up\n").unwrap();
        for (namespace, port, address) in
            [(&sources, "sources", "10.177.3.1/24"), (&builder, "builder", "10.177.3.2/24")]
        {
            let peer = namespace.name();
            let commands = format!(
                "link add {port} type veth peer name wire netns {peer}\nlink set {port} master bridge up\n"
            );
            switch.ip(&commands).unwrap();
            let commands = format!("link set lo up\naddress add {address} dev wire\nlink set wire up\n");
            namespace.ip(&commands).unwrap();
        }
        let hardware = builder.within(hardware_address).unwrap();
        Self { sources, builder, switch, address: hardware, _folder: folder }
    }

    /// Sends the sources' frames to a wrong hardware address, or to the builder's.
    pub fn cut(&self, is_cut: bool) {
        let hardware = if is_cut { "02:00:00:00:00:01" } else { &self.address };
        let command = format!("neighbour replace {BUILDER} lladdr {hardware} dev wire nud permanent\n");
        self.sources.ip(&command).unwrap();
    }

    /// The longest packet that the switch's port to the builder sends; longer ones are lost.
    pub fn pass_to_builder(&self, bytes: u32) {
        self.switch.ip(&format!("link set builder mtu {bytes}\n")).unwrap();
    }

    /// TCP's counters of the sources' host.
    pub fn counters(&self) -> TcpCountersReading {
        let read = || TcpCounters::open_of_thread(Path::new("/")).and_then(|mut counters| counters.read());
        self.sources.within(read).unwrap().unwrap()
    }

    /// Segments sent and retransmitted by the sources' host.
    pub fn segments(&self) -> (u64, u64) {
        let reading = self.counters();
        (reading.segments_sent.unwrap(), reading.segments_retransmitted.unwrap())
    }
}

/// The hardware address of the veth end in this thread's namespace, as `ip` prints it.
fn hardware_address() -> String {
    let shown = std::process::Command::new("ip").args(["-o", "link", "show", "wire"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    shown.split_once("link/ether ").unwrap().1.split(' ').next().unwrap().to_owned()
}
