//! What is in force, as a document: `kagiri qos status` reads what `kagiri qos run` writes.

use serde::{Deserialize, Serialize};

use super::Daemon;
use super::discovery::Found;
use super::groups::ClassGroup;

/// State of a policy in force. Rates in bit/s of payload; `None` is unknown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub interface: String,
    /// What the law sees; `None` before its first step.
    pub state: Option<String>,
    /// Payload that the bottleneck carries: as a queue has shown, or 97 % of what the policy gives.
    pub capacity_bit_per_s: Option<f64>,
    /// Rate of all bulk classes together.
    pub bulk_bit_per_s: Option<f64>,
    /// Delay by the queue, from round-trip times.
    pub queue_ms: Option<f64>,
    /// In the order of the policy.
    pub classes: Vec<ClassStatus>,
    /// Sockets of classes that have a rate: bulk, less urgent ones, and those with a ceiling.
    pub sockets: Vec<SocketStatus>,
    /// Readings of TCP sockets with a rate that was asked for, since the start.
    #[serde(default)]
    pub socket_readings: u64,
    /// Those where the kernel reported the rate that was set.
    #[serde(default)]
    pub socket_readings_verified: u64,
    /// Programs that state their own class, size or target.
    #[serde(default)]
    pub programs: Vec<ProgramStatus>,
    /// This host's place among others at the bottleneck; `None`: the policy has no coordinator.
    #[serde(default)]
    pub hosts: Option<HostsStatus>,
    /// Why classes have no control group.
    #[serde(default)]
    pub groups_problem: Option<String>,
    /// Why rates of sockets could not be set.
    pub problems: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassStatus {
    pub name: String,
    pub target_ms: Option<f64>,
    /// TCP sockets now.
    pub sockets: u64,
    /// UDP sockets now.
    pub udp_sockets: u64,
    /// Their rate; `None`: it is not limited.
    pub udp: Option<DatagramStatus>,
    /// Folder of the control group whose programs belong to the class.
    pub group: Option<String>,
    /// What new connections of programs in the group are paced at, from their first packet on.
    pub new_sockets_bit_per_s: Option<f64>,
    /// Why they are not: they are paced at the next tick.
    pub new_sockets_problem: Option<String>,
    /// Congestion control that was set on its TCP sockets.
    #[serde(default)]
    pub congestion: Option<CongestionStatus>,
    /// Acknowledged by TCP since the start, bytes.
    pub acked_bytes: u64,
    /// Messages since the start; 0 for bulk.
    pub messages: u64,
    /// Those that were transferred within the target less the overhead.
    pub in_time: u64,
    /// Of recent messages: from the first byte in the kernel to the last acknowledgement.
    pub transfer_p50_ms: Option<f64>,
    pub transfer_p99_ms: Option<f64>,
}

/// A congestion control that was set, and on how many sockets the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CongestionStatus {
    pub name: String,
    pub sockets: u64,
}

/// A host's place among others at the bottleneck.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostsStatus {
    /// Endpoint.
    pub coordinator: String,
    pub state: LeaseState,
    /// For how long the state has been this.
    pub since_s: f64,
    /// That shared the bottleneck when the last lease was granted; 0: none was.
    pub hosts: u32,
    /// This host's share of bulk, of the last lease.
    pub bulk_bit_per_s: Option<f64>,
    /// From the sending of a report to the grant that answers it.
    pub delay_ms: Option<f64>,
    /// Why there is no lease, or was none the last time.
    pub problem: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LeaseState {
    /// The coordinator sets the rates.
    Leased,
    /// This host continues on its own.
    Alone,
}

/// UDP of a class. Rates in bit/s on the link, as the queueing discipline counts them: with all headers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DatagramStatus {
    /// Sockets whose packets the kernel puts into the class, by the priority that it reports.
    pub sockets_in_class: u64,
    /// The most that the class is to send.
    pub asked_bit_per_s: Option<f64>,
    /// What was set last.
    pub enforced_bit_per_s: Option<f64>,
    /// What the kernel reports (as `tc class show`).
    pub verified_bit_per_s: Option<f64>,
    /// Over the last second.
    pub sent_bit_per_s: Option<f64>,
    /// Since the start.
    pub sent_bytes: u64,
    /// Packets that the queue of the class had no room for, since the start.
    pub drops: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SocketStatus {
    pub class: String,
    pub pid: i32,
    pub program: String,
    pub local: String,
    pub peer: String,
    /// What the law had asked for when the socket was read; `None`: it was new.
    pub asked_bit_per_s: Option<f64>,
    /// What had been set then.
    pub enforced_bit_per_s: Option<f64>,
    /// What the kernel reported then (`tcpi_max_pacing_rate`); `None`: no limit.
    pub verified_bit_per_s: Option<f64>,
}

/// A program that states something itself, and what is in force for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProgramStatus {
    pub pid: i32,
    pub user_id: u32,
    /// `None`: it has no socket in a class yet.
    pub class: Option<String>,
    /// Of a message, within the bounds of the policy; `None`: bulk, or not known yet.
    pub size_bytes: Option<f64>,
    pub target_ms: Option<f64>,
    /// Rate at which one message arrives within its target.
    pub need_bit_per_s: Option<f64>,
    /// TCP sockets now.
    pub sockets: u64,
    /// Sum of the limits that the kernel reports; `None`: not all sockets have one.
    pub rate_bit_per_s: Option<f64>,
    /// Since the program connected.
    pub messages: u64,
    pub in_time: u64,
}

pub fn of(daemon: &Daemon) -> Status {
    let control = daemon.control.as_ref();
    let paced = daemon.found.iter().filter(|found| daemon.is_paced(found));
    Status {
        interface: daemon.policy.bottleneck.interface.clone(),
        state: control.map(|control| control.state.name().to_owned()),
        capacity_bit_per_s: control
            .filter(|control| control.is_known)
            .map(|control| control.capacity_bit_per_s),
        bulk_bit_per_s: control.map(|control| control.bulk_bit_per_s),
        queue_ms: control.and_then(|control| control.queue_s).map(|s| s * 1e3),
        classes: (0..daemon.policy.classes.len()).map(|at| class(daemon, at)).collect(),
        sockets: paced.map(|found| socket(daemon, found)).collect(),
        socket_readings: daemon.readings.all,
        socket_readings_verified: daemon.readings.verified,
        programs: daemon.clients.status(&daemon.seen()),
        hosts: None,
        groups_problem: daemon.groups_problem.clone(),
        problems: daemon.problems.shown(),
    }
}

fn class(daemon: &Daemon, at: usize) -> ClassStatus {
    let class = &daemon.policy.classes[at];
    let messages = daemon.messages.of_class(at);
    let sockets = |is_tcp| {
        let is_one = |found: &&Found| found.class == at && found.flow.tcp.is_some() == is_tcp;
        daemon.found.iter().filter(is_one).count() as u64
    };
    let group = daemon.groups.get(at);
    let transfer_ms = |q| messages.transfer_s(q).map(|s| s * 1e3);
    ClassStatus {
        name: class.name.clone(),
        target_ms: class.target.map(|target| target.s() * 1e3),
        sockets: sockets(true),
        udp_sockets: sockets(false),
        udp: udp(daemon, at),
        group: group.map(ClassGroup::folder),
        new_sockets_bit_per_s: group.and_then(ClassGroup::bit_per_s),
        new_sockets_problem: group.and_then(|group| group.problem.clone()),
        congestion: congestion(daemon, at),
        acked_bytes: messages.acked_bytes,
        messages: messages.count,
        in_time: messages.in_time,
        transfer_p50_ms: transfer_ms(0.5),
        transfer_p99_ms: transfer_ms(0.99),
    }
}

fn congestion(daemon: &Daemon, at: usize) -> Option<CongestionStatus> {
    let set = |found: &Found| {
        let ours = daemon.sockets.applied(found.flow.cookie)?.congestion?;
        (found.class == at && found.flow.congestion == Some(ours)).then_some(ours)
    };
    let mut set = daemon.found.iter().filter_map(set);
    let first = set.next()?;
    Some(CongestionStatus { name: first.name().to_owned(), sockets: 1 + set.count() as u64 })
}

fn udp(daemon: &Daemon, at: usize) -> Option<DatagramStatus> {
    let class = daemon.datagrams.of_class(at);
    let priority = daemon.datagrams.priority(at);
    if priority.is_none() && class.sent_bytes() == 0 {
        return None;
    }
    let is_in_class = |found: &&Found| {
        found.class == at && found.flow.tcp.is_none() && priority.is_some() && found.flow.priority == priority
    };
    Some(DatagramStatus {
        sockets_in_class: daemon.found.iter().filter(is_in_class).count() as u64,
        asked_bit_per_s: class.asked_bit_per_s(),
        enforced_bit_per_s: class.enforced_bit_per_s(),
        verified_bit_per_s: class.reading().map(|reading| 8.0 * reading.ceil_bytes_per_s as f64),
        sent_bit_per_s: class.sent_bit_per_s(),
        sent_bytes: class.sent_bytes(),
        drops: class.drops(),
    })
}

fn socket(daemon: &Daemon, found: &Found) -> SocketStatus {
    let rates = found.at_reading;
    let reported = found.flow.tcp.as_ref().and_then(|info| info.pacing_max_bytes_per_s);
    SocketStatus {
        class: daemon.policy.classes[found.class].name.clone(),
        pid: found.holder.pid,
        program: daemon.discovery.program(found).map(|program| program.name.clone()).unwrap_or_default(),
        local: found.flow.local.to_string(),
        peer: found.flow.peer.to_string(),
        asked_bit_per_s: rates.map(|rates| rates.asked),
        enforced_bit_per_s: rates.and_then(|rates| rates.enforced),
        verified_bit_per_s: reported.filter(|rate| *rate != u64::MAX).map(|rate| 8.0 * rate as f64),
    }
}
