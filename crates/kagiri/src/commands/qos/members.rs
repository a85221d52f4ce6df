//! The connections of `kagiri qos coordinate`.

use std::time::Duration;

use fleet::channel::{self, Channel, Listener};
use qos::hosts::wire::{Malformed, Message, Welcome};
use qos::hosts::{Coordinator, CoordinatorView, HOSTS_MAX, HostId, digest};
use qos::policy::Policy;
use report::text::plain;
use sys::clock::{Deadline, monotonic_ns};

use crate::output;

/// A connection without a first message by then is closed.
const HELLO_WITHIN: Duration = Duration::from_secs(3);
/// One that is silent for this time is closed: its host has gone, or connects again.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Connections without a first message. The oldest is closed for a new one.
const STRANGERS_MAX: usize = 64;
/// Per step. More waits for the next one.
const ACCEPTED_MAX: usize = 64;
const MESSAGES_MAX: usize = 64;
/// Refusals that are said, and in which time.
const SAID_MAX: u32 = 10;
const SAID_WITHIN: Duration = Duration::from_secs(10);

pub struct Members {
    listener: Listener,
    coordinator: Coordinator,
    digest: [u8; 16],
    /// In the order in which they came.
    connections: Vec<Connection>,
    refused: u64,
    said: u32,
    said_until: Deadline,
}

struct Connection {
    channel: Channel,
    /// `None`: it has not said who it is.
    host: Option<HostId>,
    /// When it must have sent something.
    until: Deadline,
    is_over: bool,
}

impl Members {
    pub fn new(listener: Listener, policy: &Policy) -> Self {
        Self {
            listener,
            coordinator: Coordinator::new(policy),
            digest: digest(policy),
            connections: Vec::new(),
            refused: 0,
            said: 0,
            said_until: Deadline::after(SAID_WITHIN),
        }
    }

    pub fn seen(&self) -> CoordinatorView {
        self.coordinator.seen()
    }

    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Takes the reports that have arrived, makes a step of the law, and answers.
    pub fn step(&mut self) {
        self.accept();
        for at in 0..self.connections.len() {
            self.read(at);
        }
        for (host, grant) in self.coordinator.tick(monotonic_ns()) {
            let connection = self.connections.iter_mut().find(|one| one.host.as_ref() == Some(&host));
            let Some(connection) = connection.filter(|connection| !connection.is_over) else { continue };
            // A grant that cannot leave at once is not sent: the next is newer.
            connection.is_over = connection.channel.send(&Message::Grant(grant).encode()).is_err();
        }
        self.connections.retain(|connection| {
            if let (true, Some(host)) = (connection.is_over, &connection.host) {
                output::say(&plain(&format!("{} has left", host.name)));
            }
            !connection.is_over
        });
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTED_MAX {
            // Without room for a connection, it waits in the kernel.
            let Ok(Some(channel)) = self.listener.accept() else { return };
            let strangers = self.connections.iter().filter(|connection| connection.host.is_none()).count();
            if strangers >= STRANGERS_MAX
                && let Some(oldest) = self.connections.iter().position(|connection| connection.host.is_none())
            {
                self.connections.remove(oldest);
            }
            let until = Deadline::after(HELLO_WITHIN);
            self.connections.push(Connection { channel, host: None, until, is_over: false });
        }
    }

    fn read(&mut self, at: usize) {
        for _ in 0..MESSAGES_MAX {
            let connection = &mut self.connections[at];
            if connection.is_over {
                return;
            }
            let bytes = match connection.channel.receive() {
                Ok(Some(bytes)) => bytes,
                Ok(None) => {
                    connection.is_over = connection.until.passed();
                    return;
                }
                Err(error) => {
                    connection.is_over = true;
                    // A host that leaves is no news; one that was refused is.
                    let is_refusal =
                        matches!(error.kind(), std::io::ErrorKind::InvalidData | std::io::ErrorKind::Other);
                    if is_refusal {
                        let address = connection.channel.address();
                        self.refuse(&channel::explain_refusal(&address, &error));
                    }
                    return;
                }
            };
            connection.until = Deadline::after(SILENCE_MAX);
            let host = connection.host.clone();
            let taken = match (Message::decode(&bytes), host) {
                (Ok(Message::Hello(hello)), None) => self.greet(at, &hello),
                (Ok(Message::Report(report)), Some(host)) => {
                    match self.coordinator.report(monotonic_ns(), &host, report) {
                        true => Ok(()),
                        false => Err("its report does not fit the policy".to_owned()),
                    }
                }
                (Err(Malformed::Version(version)), None) => {
                    self.answer(at, Welcome::OtherVersion);
                    Err(Malformed::Version(version).to_string())
                }
                _ => Err(Malformed::Other.to_string()),
            };
            if let Err(why) = taken {
                let connection = &mut self.connections[at];
                connection.is_over = true;
                let name = connection.host.as_ref().map(|host| host.name.clone());
                let name = name.unwrap_or_else(|| connection.channel.address());
                self.refuse(&format!("{name}: {why}"));
            }
        }
    }

    /// Errors: why the host is not taken.
    fn greet(&mut self, at: usize, hello: &qos::hosts::wire::Hello) -> Result<(), String> {
        // The name in a certificate is proved.
        let name = self.connections[at].channel.peer().unwrap_or(&hello.name).to_owned();
        let host = HostId { name, id: hello.id };
        if hello.digest != self.digest {
            self.answer(at, Welcome::OtherPolicy);
            return Err(format!(
                "{} has another policy: capacity or classes differ; use one file on all hosts",
                host.name
            ));
        }
        if !self.coordinator.has_place(&host) || self.hosts() >= 2 * HOSTS_MAX {
            self.answer(at, Welcome::TooManyHosts);
            return Err(format!("{}: there are {HOSTS_MAX} hosts already", host.name));
        }
        // A host that connects again has given up the old connection.
        match self.connections.iter_mut().find(|connection| connection.host.as_ref() == Some(&host)) {
            Some(old) => (old.is_over, old.host) = (true, None),
            None => output::say(&plain(&format!("{} has joined", host.name))),
        }
        self.coordinator.connected(&host);
        self.connections[at].host = Some(host);
        self.answer(at, Welcome::Accepted);
        Ok(())
    }

    fn hosts(&self) -> usize {
        self.connections.iter().filter(|connection| connection.host.is_some()).count()
    }

    /// The other side reads it unless it has gone.
    fn answer(&mut self, at: usize, welcome: Welcome) {
        let sent = self.connections[at].channel.send(&Message::Welcome(welcome).encode());
        self.connections[at].is_over |= !sent.unwrap_or(false);
    }

    fn refuse(&mut self, why: &str) {
        self.refused += 1;
        if self.said_until.passed() {
            (self.said, self.said_until) = (0, Deadline::after(SAID_WITHIN));
        }
        self.said += 1;
        if self.said <= SAID_MAX {
            output::say(&plain(why));
        }
    }
}
