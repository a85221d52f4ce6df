//! Programs that state class, size and target themselves (crate `kagiri-qos-client`), over a socket. The
//! kernel says which process speaks (`SO_PEERCRED`): a program speaks for itself only. Nothing here waits:
//! each step reads what has arrived.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use qos_client::FOLDER;
use qos_client::wire::{Kind, Outcome, REQUEST_BYTES, Reply, Request, UNLIMITED};
use sys::clock::Deadline;
use sys::journal::Journal;
use sys::netlink::NamespaceId;
use sys::process::is_running;
use sys::seq_packet::{SeqPacketConnection, SeqPacketListener};

use super::discovery::{Discovery, Found, Joined};
use super::messages::Messages;
use super::statement::{InForce, Statement};
use super::status::ProgramStatus;
use crate::law::{ClassSettings, Law, SocketSample};
use crate::policy::Policy;

/// Connections at the same time, of all users and of one: one user does not take all places.
const CLIENTS_MAX: usize = 256;
const CLIENTS_OF_USER_MAX: usize = 64;
/// Per step. More waits for the next one.
const ACCEPTED_MAX: usize = 256;
const REQUESTS_MAX: usize = 4;
/// A connection without a request by then is closed.
const FIRST_REQUEST_WITHIN: Duration = Duration::from_secs(10);
/// How often it is looked at whether the process of a connection still runs: another may keep its descriptor.
const PROCESS_EVERY: Duration = Duration::from_secs(1);

/// What a step of a policy in force knows.
pub struct TickView<'a> {
    pub policy: &'a Policy,
    pub discovery: &'a Discovery,
    pub found: &'a [Found],
    pub messages: &'a Messages,
}

#[derive(Debug)]
pub struct Clients {
    /// `None`: it could not be opened.
    listener: Option<SeqPacketListener>,
    /// In the order of their last statements: of several of one process, the last one holds.
    clients: Vec<Client>,
    joined: HashMap<i32, Joined>,
    /// Class in the law of a socket whose program states its own need, by the socket's cookie.
    law_classes: HashMap<u64, usize>,
    /// Classes of programs in the law.
    needs: Vec<ClassSettings>,
    /// Message sizes of the policy's classes, in bytes, as far as the law is to use them.
    class_bytes: Vec<f64>,
}

#[derive(Debug)]
struct Client {
    connection: SeqPacketConnection,
    pid: i32,
    uid: u32,
    start_ticks: u64,
    has_asked: bool,
    /// By when it has to have asked.
    first_request: Deadline,
    process_due: Deadline,
    statement: Option<Statement>,
    messages: u64,
    in_time: u64,
}

impl Clients {
    /// Listens for programs of this network namespace; without, and why, if that cannot be.
    pub fn open(policy: &Policy, journal: &Journal) -> (Self, Option<String>) {
        let listener = listen(&policy.bottleneck.interface, journal);
        let problem = listener.as_ref().err().map(|error| {
            format!("programs cannot state their own class, size and target: {FOLDER}: {error}")
        });
        (Self::new(listener.ok()), problem)
    }

    fn new(listener: Option<SeqPacketListener>) -> Self {
        Self {
            listener,
            clients: Vec::new(),
            joined: HashMap::new(),
            law_classes: HashMap::new(),
            needs: Vec::new(),
            class_bytes: Vec::new(),
        }
    }

    /// Classes that processes have stated.
    pub fn joined(&self) -> &HashMap<i32, Joined> {
        &self.joined
    }

    /// Takes what programs say, and answers.
    pub fn serve(&mut self, seen: &TickView<'_>) {
        self.accept();
        self.count(seen);
        let mut stated = Vec::new();
        let mut at = 0;
        self.clients.retain_mut(|client| {
            let before = client.statement;
            let stays = client.serve(seen).is_some();
            if stays && client.statement != before {
                stated.push(at);
            }
            at += usize::from(stays);
            stays
        });
        // From the last, so that the places of the others hold.
        let moved: Vec<Client> = stated.iter().rev().map(|at| self.clients.remove(*at)).collect();
        self.clients.extend(moved.into_iter().rev());
        self.joined = self.clients.iter().filter_map(|client| Some((client.pid, client.joined()?))).collect();
        self.derive_needs(seen);
    }

    /// Gives the law the needs that programs state, and the sockets of these programs their classes.
    pub fn apply(&self, law: &mut Law, samples: &mut [SocketSample]) {
        for (class, bytes) in self.class_bytes.iter().enumerate() {
            law.set_message_bytes(class, *bytes);
        }
        law.set_programs(self.needs.iter().copied());
        for sample in samples {
            if let Some(class) = self.law_classes.get(&sample.id) {
                sample.class = *class;
            }
        }
    }

    /// Programs that have stated something.
    pub fn status(&self, seen: &TickView<'_>) -> Vec<ProgramStatus> {
        let stating = self.clients.iter().filter(|client| client.statement.is_some());
        stating.map(|client| client.status(seen)).collect()
    }

    fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        for _ in 0..ACCEPTED_MAX {
            let Ok(Some(connection)) = listener.accept() else { return };
            // A connection that is not kept is closed.
            let Some(client) = Client::new(connection) else { continue };
            let of_user = self.clients.iter().filter(|other| other.uid == client.uid).count();
            if self.clients.len() < CLIENTS_MAX && of_user < CLIENTS_OF_USER_MAX {
                self.clients.push(client);
            }
        }
    }

    /// Counts the messages that have ended for the clients of their processes.
    fn count(&mut self, seen: &TickView<'_>) {
        for ended in seen.messages.ended() {
            for client in self.clients.iter_mut().filter(|client| client.pid == ended.pid) {
                let Some(force) = client.in_force(seen, ended.class) else { continue };
                client.messages += 1;
                client.in_time += u64::from(ended.transfer_s <= force.transfer_s);
            }
        }
    }

    fn derive_needs(&mut self, seen: &TickView<'_>) {
        let first = seen.policy.classes.len();
        let stating: HashMap<i32, &Client> = self
            .clients
            .iter()
            .filter(|client| client.statement.is_some_and(|statement| statement.changes_need()))
            .map(|client| (client.pid, client))
            .collect();
        let (mut classes, mut needs, mut law_classes) = (HashMap::new(), Vec::new(), HashMap::new());
        let (mut sockets, mut of_stating) = (vec![0; first], vec![0; first]);
        for found in seen.found.iter().filter(|found| found.flow.tcp.is_some()) {
            sockets[found.class] += 1;
            let client = stating.get(&found.holder.pid).filter(|client| client.is_holder(found, seen));
            let force = client.and_then(|client| client.in_force(seen, found.class));
            let Some(force) = force else { continue };
            of_stating[found.class] += 1;
            let class = *classes.entry((found.holder.pid, found.class)).or_insert_with(|| {
                needs.push(force.settings(found.class));
                first + needs.len() - 1
            });
            law_classes.insert(found.flow.cookie, class);
        }
        let bytes = |class: usize| {
            // If all programs of a class have said what they need, no more is kept free for it.
            let is_stated = sockets[class] > 0 && sockets[class] == of_stating[class];
            if is_stated { 0.0 } else { class_bytes(seen, class).unwrap_or(0.0) }
        };
        self.class_bytes = (0..first).map(bytes).collect();
        (self.needs, self.law_classes) = (needs, law_classes);
    }
}

impl Client {
    /// `None`: the kernel does not say who it is, or it has ended.
    fn new(connection: SeqPacketConnection) -> Option<Self> {
        let peer = connection.peer().ok().filter(|peer| peer.pid > 0)?;
        let start_ticks = sys::proc::start_ticks(Path::new("/"), peer.pid).ok()?;
        Some(Self {
            connection,
            pid: peer.pid,
            uid: peer.uid,
            start_ticks,
            has_asked: false,
            first_request: Deadline::after(FIRST_REQUEST_WITHIN),
            process_due: Deadline::after(PROCESS_EVERY),
            statement: None,
            messages: 0,
            in_time: 0,
        })
    }

    /// Answers what has arrived. `None`: the connection is to be closed.
    fn serve(&mut self, seen: &TickView<'_>) -> Option<()> {
        if self.process_due.passed() {
            self.process_due = Deadline::after(PROCESS_EVERY);
            is_running(self.pid, self.start_ticks).then_some(())?;
        }
        // One byte more than a request has: what is longer is none.
        let mut bytes = [0; REQUEST_BYTES + 1];
        for _ in 0..REQUESTS_MAX {
            let Some(length) = self.connection.receive(&mut bytes).ok()? else { break };
            let request = Request::decode(bytes.get(..length)?)?;
            self.has_asked = true;
            let outcome = self.take(&request, seen.policy);
            // A program that does not read its answers is not waited for.
            self.connection.send(&self.reply(&request, outcome, seen).encode()).ok()?;
        }
        (self.has_asked || !self.first_request.passed()).then_some(())
    }

    fn take(&mut self, request: &Request, policy: &Policy) -> Outcome {
        match request.kind {
            Kind::Ask => return Outcome::Done,
            Kind::Withdraw => {
                self.statement = None;
                return Outcome::Done;
            }
            Kind::State => self.statement = None,
        }
        let class = policy.classes.iter().position(|class| class.name == request.class);
        match class.map(|class| policy.classes[class].join) {
            None if !request.class.is_empty() => return Outcome::UnknownClass,
            Some(false) => return Outcome::NotPermitted,
            _ => {}
        }
        let stated = |number: u64| (number > 0).then_some(number as f64);
        self.statement = Some(Statement {
            class,
            size_bytes: stated(request.size_bytes),
            target_s: stated(request.target_us).map(|us| us * 1e-6),
        });
        Outcome::Done
    }

    fn joined(&self) -> Option<Joined> {
        Some(Joined { uid: self.uid, class: self.statement?.class? })
    }

    /// Whether it holds the socket, and still runs as the user who connected: a program that has become
    /// another user's since is not the one that stated.
    fn is_holder(&self, found: &Found, seen: &TickView<'_>) -> bool {
        let is_user = || seen.discovery.program(found).is_some_and(|program| program.uid == self.uid);
        found.holder.pid == self.pid && is_user()
    }

    fn in_force(&self, seen: &TickView<'_>, class: usize) -> Option<InForce> {
        let statement = self.statement.unwrap_or_default();
        statement.in_force(&seen.policy.classes[class], learned_bytes(seen, class))
    }

    fn reply(&self, request: &Request, outcome: Outcome, seen: &TickView<'_>) -> Reply {
        let own = self.own(seen);
        Reply {
            outcome,
            sequence: request.sequence,
            class: own.class.map_or_else(String::new, |class| seen.policy.classes[class].name.clone()),
            sockets: own.sockets,
            paced: own.paced,
            rate_bit_per_s: own.rate_bit_per_s.map_or(UNLIMITED, |rate| rate as u64),
            need_bit_per_s: own.force.map_or(0, |force| force.need_bit_per_s() as u64),
            size_bytes: own.force.map_or(0, |force| force.message_bytes as u64),
            target_us: own.force.map_or(0, |force| (force.target_s * 1e6).round() as u64),
            messages: self.messages,
            in_time: self.in_time,
        }
    }

    fn status(&self, seen: &TickView<'_>) -> ProgramStatus {
        let own = self.own(seen);
        ProgramStatus {
            pid: self.pid,
            user_id: self.uid,
            class: own.class.map(|class| seen.policy.classes[class].name.clone()),
            size_bytes: own.force.map(|force| force.message_bytes).filter(|bytes| *bytes > 0.0),
            target_ms: own.force.map(|force| force.target_s * 1e3),
            need_bit_per_s: own.force.map(|force| force.need_bit_per_s()),
            sockets: u64::from(own.sockets),
            rate_bit_per_s: own.rate_bit_per_s,
            messages: self.messages,
            in_time: self.in_time,
        }
    }

    /// What its process has now.
    fn own(&self, seen: &TickView<'_>) -> Own {
        let mut own = Own { class: self.joined().map(|joined| joined.class), ..Own::default() };
        let mut rate = 0.0;
        let sockets = seen.found.iter().filter(|found| found.flow.tcp.is_some());
        for found in sockets.filter(|found| self.is_holder(found, seen)) {
            own.class.get_or_insert(found.class);
            own.sockets += 1;
            let limit = found.flow.tcp.as_ref().and_then(|info| info.pacing_max_bytes_per_s);
            if let Some(limit) = limit.filter(|limit| *limit != u64::MAX) {
                own.paced += 1;
                rate += 8.0 * limit as f64;
            }
        }
        own.rate_bit_per_s = (own.sockets > 0 && own.paced == own.sockets).then_some(rate);
        own.force = own.class.and_then(|class| self.in_force(seen, class));
        own
    }
}

/// What a process has: its first class, and its TCP sockets through the bottleneck.
#[derive(Debug, Default)]
struct Own {
    class: Option<usize>,
    sockets: u32,
    paced: u32,
    /// `None` unless all sockets have a limit.
    rate_bit_per_s: Option<f64>,
    /// `None`: bulk, or no class.
    force: Option<InForce>,
}

fn class_bytes(seen: &TickView<'_>, class: usize) -> Option<f64> {
    seen.policy.classes[class].size.map(|size| size.bytes() as f64).or_else(|| learned_bytes(seen, class))
}

fn learned_bytes(seen: &TickView<'_>, class: usize) -> Option<f64> {
    seen.messages.learned().find(|(learned, _)| *learned == class).map(|(_, bytes)| bytes)
}

fn listen(interface: &str, journal: &Journal) -> io::Result<SeqPacketListener> {
    let namespace = NamespaceId::of_this_thread()?.inode();
    SeqPacketListener::bind(journal, &Path::new(FOLDER).join(format!("{namespace}-{interface}")))
}

#[cfg(test)]
mod tests;
