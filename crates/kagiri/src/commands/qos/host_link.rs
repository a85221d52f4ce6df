//! The link of `kagiri qos run` to the coordinator of several hosts. Nothing here waits: a thread connects,
//! and each step reads what has arrived.

use std::io;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::Duration;

use fleet::channel::{self, Channel};
use fleet::endpoint::{Endpoint, EndpointError, check_join};
use fleet::identity::Credentials;
use qos::daemon::{HostsStatus, LeaseState};
use qos::hosts::wire::{Hello, Malformed, Message, NAME_BYTES_MAX, Welcome};
use qos::hosts::{HostFacts, Member, PROTOCOL, digest};
use qos::law::Lease;
use qos::policy::Policy;
use report::text::plain;
use sys::clock::{Deadline, monotonic_ns};

use crate::exit::Failure;
use crate::host_facts::host_name;
use crate::hosts::Identity;
use crate::output;

const CONNECT_WITHIN: Duration = Duration::from_secs(1);
/// Until the coordinator has answered the first message: two round trips of TLS at its steps, and ours.
const WELCOME_WITHIN: Duration = Duration::from_secs(3);
/// A coordinator that grants nothing for this time is gone.
const SILENCE_MAX: Duration = Duration::from_secs(5);
const RETRY_AFTER: Duration = Duration::from_millis(250);
/// After a refusal: a configuration has to change first.
const REFUSED_RETRY_AFTER: Duration = Duration::from_secs(5);
/// Messages that one step reads.
const MESSAGES_MAX: usize = 64;

pub struct HostLink {
    endpoint: Endpoint,
    credentials: Option<Credentials>,
    hello: Message,
    member: Member,
    link: Link,
    problem: Option<String>,
    /// What was said to people last.
    is_leased_said: Option<bool>,
    problem_said: Option<String>,
}

enum Link {
    Waits(Deadline),
    Connects(Receiver<io::Result<Channel>>),
    /// `until`: when the other side must have answered.
    Open {
        channel: Box<Channel>,
        has_greeted: bool,
        is_accepted: bool,
        until: Deadline,
    },
}

/// Why a link ended, and when to try again.
struct Ended {
    why: String,
    retry_after: Duration,
}

impl Ended {
    fn broken(error: &io::Error) -> Self {
        Self { why: channel::explain(error), retry_after: RETRY_AFTER }
    }

    fn refused(why: impl Into<String>) -> Self {
        Self { why: why.into(), retry_after: REFUSED_RETRY_AFTER }
    }
}

impl HostLink {
    /// To the policy's coordinator.
    /// Errors: its endpoint, or the bundle that this needs, cannot be used.
    pub fn new(coordinator: &str, policy: &Policy, identity: &Identity) -> Result<Self, Failure> {
        let failed = |problem: String| Failure::usage(format!("bottleneck.coordinator: {problem}"));
        let endpoint: Endpoint =
            coordinator.parse().map_err(|error: EndpointError| failed(error.to_string()))?;
        let credentials = identity.credentials();
        check_join(&endpoint, credentials.as_ref()).map_err(|error| failed(error.to_string()))?;
        channel::check_credentials(credentials.as_ref()).map_err(Failure::usage)?;
        let name = identity.name().map_or_else(host_name, Ok)?;
        Ok(Self {
            endpoint,
            credentials,
            hello: Message::Hello(Hello {
                id: u64::from_le_bytes(sys::random::bytes()),
                digest: digest(policy),
                name: word(&name),
            }),
            member: Member::new(monotonic_ns()),
            link: Link::Waits(Deadline::after(Duration::ZERO)),
            problem: None,
            is_leased_said: None,
            problem_said: None,
        })
    }

    /// Takes what has arrived. Returns the lease of the newest grant, if one has come.
    pub fn receive(&mut self) -> Option<Lease> {
        let mut lease = None;
        let ended = match &mut self.link {
            Link::Waits(until) if !until.passed() => return None,
            Link::Waits(_) => Ok(Some(Link::Connects(self.connect()))),
            Link::Connects(connecting) => match connecting.try_recv() {
                Ok(Ok(channel)) => {
                    self.member.connected();
                    let until = Deadline::after(WELCOME_WITHIN);
                    let channel = Box::new(channel);
                    Ok(Some(Link::Open { channel, has_greeted: false, is_accepted: false, until }))
                }
                Ok(Err(error)) => Err(Ended::broken(&error)),
                Err(TryRecvError::Empty) => Ok(None),
                Err(TryRecvError::Disconnected) => Err(Ended::refused("no thread could be started")),
            },
            Link::Open { .. } => self.read(&mut lease).map(|()| None),
        };
        match ended {
            Ok(None) => {}
            Ok(Some(next)) => self.link = next,
            Err(ended) => {
                self.problem = Some(ended.why);
                self.link = Link::Waits(Deadline::after(ended.retry_after));
            }
        }
        lease
    }

    /// Sends what this host has seen. A report that cannot leave at once is not sent: the next is newer.
    pub fn report(&mut self, facts: &HostFacts) {
        let Link::Open { channel, is_accepted: true, .. } = &mut self.link else { return };
        let report = Message::Report(self.member.report(monotonic_ns(), facts));
        if let Err(error) = channel.send(&report.encode()) {
            let ended = Ended::broken(&error);
            self.problem = Some(ended.why);
            self.link = Link::Waits(Deadline::after(ended.retry_after));
        }
    }

    /// For the record; says on standard error what has changed.
    pub fn status(&mut self) -> HostsStatus {
        let state = self.member.state(monotonic_ns());
        let coordinator = self.endpoint.to_string();
        if self.is_leased_said != Some(state.is_leased) {
            match (state.is_leased, self.is_leased_said) {
                (true, _) => output::say(&format!("{coordinator} grants this host its share")),
                (false, Some(true)) => output::say(&format!(
                    "{coordinator} grants nothing any more; this host continues on its own"
                )),
                (false, _) => {}
            }
            self.is_leased_said = Some(state.is_leased);
        }
        let problem = self.problem.clone().filter(|_| !state.is_leased).map(|problem| plain(&problem));
        if problem.is_some() && problem != self.problem_said {
            output::say(&format!("{coordinator}: {}", problem.as_deref().unwrap_or_default()));
            self.problem_said.clone_from(&problem);
        }
        HostsStatus {
            coordinator,
            state: if state.is_leased { LeaseState::Leased } else { LeaseState::Alone },
            since_s: state.since.as_secs_f64(),
            hosts: state.hosts,
            bulk_bit_per_s: (state.hosts > 0).then_some(state.bulk_bit_per_s),
            delay_ms: state.round_trip.map(|took| took.as_secs_f64() * 1e3),
            problem,
        }
    }

    /// Connects in a thread: to resolve a name takes seconds at worst.
    fn connect(&self) -> Receiver<io::Result<Channel>> {
        let (sender, receiver) = mpsc::channel();
        let (endpoint, credentials) = (self.endpoint.clone(), self.credentials.clone());
        let connect = move || {
            let connected = Channel::connect(&endpoint, credentials.as_ref(), PROTOCOL, CONNECT_WITHIN);
            // The policy may have ended meanwhile.
            let _ = sender.send(connected);
        };
        // Without a thread, the receiver says so.
        let _ = std::thread::Builder::new().name("connect".into()).spawn(connect);
        receiver
    }

    fn read(&mut self, lease: &mut Option<Lease>) -> Result<(), Ended> {
        let Link::Open { channel, has_greeted, is_accepted, until } = &mut self.link else { return Ok(()) };
        for _ in 0..MESSAGES_MAX {
            let Some(bytes) = channel.receive().map_err(|error| Ended::broken(&error))? else { break };
            let message = Message::decode(&bytes);
            match message {
                Ok(Message::Welcome(welcome)) if *has_greeted && !*is_accepted => {
                    taken(welcome)?;
                    *is_accepted = true;
                }
                Ok(Message::Grant(grant)) if *is_accepted => {
                    self.problem = None;
                    *until = Deadline::after(SILENCE_MAX);
                    // The newest counts.
                    *lease = self.member.take(monotonic_ns(), &grant).or(lease.take());
                    continue;
                }
                Ok(_) => return Err(Ended::refused(Malformed::Other.to_string())),
                Err(malformed) => return Err(Ended::refused(malformed.to_string())),
            }
            *until = Deadline::after(SILENCE_MAX);
        }
        if !*has_greeted {
            let sent = channel.send(&self.hello.encode());
            *has_greeted = sent.map_err(|error| Ended::broken(&error))?;
        }
        match until.passed() {
            true => Err(Ended { why: "the coordinator does not answer".into(), retry_after: RETRY_AFTER }),
            false => Ok(()),
        }
    }
}

fn taken(welcome: Welcome) -> Result<(), Ended> {
    Err(Ended::refused(match welcome {
        Welcome::Accepted => return Ok(()),
        Welcome::OtherPolicy => {
            "the coordinator has another policy: capacity or classes differ; use one file on all hosts"
        }
        Welcome::OtherVersion => {
            "the coordinator has another version of kagiri; install the same on all hosts"
        }
        Welcome::TooManyHosts => "the coordinator has no place for another host",
    }))
}

/// A name as it can be in a message.
fn word(name: &str) -> String {
    let mut word: String = name.chars().filter(|c| !c.is_control() && !c.is_whitespace()).collect();
    while word.len() > NAME_BYTES_MAX {
        word.pop();
    }
    if word.is_empty() { "host".to_owned() } else { word }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_host_fits_into_a_message() {
        assert_eq!((word("robot-1").as_str(), word(" \n").as_str()), ("robot-1", "host"));
        let long = word(&"é".repeat(100));
        assert!(long.len() <= NAME_BYTES_MAX && long.chars().all(|c| c == 'é'), "{long}");
    }
}
