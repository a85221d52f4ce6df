//! `kagiri qos coordinate`: one law for several hosts at one bottleneck.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::format::quantity;
use base::units::Span;
use clap::Args;
use fleet::channel::{self, Listener};
use fleet::endpoint::{Endpoint, check_listen};
use qos::hosts::PROTOCOL;
use qos::law::Settings;
use serde::Serialize;
use sys::clock::Deadline;

use super::members::Members;
use super::{fitted, read_policy};
use crate::exit::{Code, Failure, Outcome};
use crate::hosts::Identity;
use crate::json_document::Document;
use crate::output;
use crate::stop::stop_flag;

const HOSTS_SHOWN: usize = 10;

/// Share one bottleneck among several hosts until Ctrl-C.
#[derive(Args)]
#[command(after_help = "Each host runs 'kagiri qos run' with the same policy, whose bottleneck names this \
    coordinator. Hosts report every 50 ms what they send and the delay that they see, and get rates that \
    hold for 0.5 s. A host that gets none continues on its own, with less. Beyond this machine, both sides \
    show certificates of 'kagiri fleet init'. Needs no root.\n\n\
    Examples:\n  \
    kagiri qos coordinate policy.toml --credentials fleet/bundles/coordinator\n  \
    kagiri qos coordinate policy.toml --listen tcp/127.0.0.1:7448")]
pub struct Coordinate {
    /// Policy of all hosts
    #[arg(value_name = "POLICY.toml")]
    policy: PathBuf,
    /// Where hosts connect: tls/ADDRESS:PORT; on this machine also tcp/127.0.0.1:PORT, or
    /// unixsock-stream/PATH in a private folder [default: the policy's coordinator]
    #[arg(long, value_name = "ENDPOINT")]
    listen: Option<String>,
    /// This machine's credentials: a copy of the directory bundles/coordinator that 'kagiri fleet init' made
    #[arg(long, value_name = "DIR")]
    credentials: Option<PathBuf>,
    /// End after this time instead of at Ctrl-C
    #[arg(long = "for", value_name = "TIME", value_parser = crate::args::time)]
    length: Option<Span>,
    /// Print one JSON document at the end
    #[arg(long)]
    json: bool,
}

/// The answer. Rates in bit/s.
#[derive(Serialize)]
struct Coordinated {
    coordinator: String,
    policy: String,
    age_s: f64,
    state: Option<&'static str>,
    capacity_bit_per_s: Option<f64>,
    bulk_bit_per_s: Option<f64>,
    queue_ms: Option<f64>,
    /// Steps so far, and those that came too late to measure.
    steps: u64,
    late_steps: u64,
    hosts: Vec<HostEntry>,
    /// Connections that were refused, since the start.
    refused: u64,
}

#[derive(Serialize)]
struct HostEntry {
    name: String,
    bulk_bit_per_s: f64,
    delivered_bit_per_s: f64,
    delay_ms: Option<f64>,
    is_stale: bool,
}

impl Coordinate {
    pub fn run(self) -> Outcome {
        let policy = read_policy(&self.policy)?;
        let identity = Identity::load(self.credentials.as_deref())?;
        identity.warn_of_expiry();
        let text = self.listen.as_ref().or(policy.bottleneck.coordinator.as_ref()).ok_or_else(|| {
            Failure::usage(format!(
                "{}: the bottleneck names no coordinator; add coordinator = \"tls/HOST:7448\" there, or give \
                 --listen ENDPOINT",
                self.policy.display()
            ))
        })?;
        let endpoint: Endpoint = text.parse().map_err(Failure::usage)?;
        let credentials = identity.credentials();
        check_listen(&endpoint, credentials.as_ref()).map_err(Failure::usage)?;
        channel::check_credentials(credentials.as_ref()).map_err(Failure::usage)?;
        let stop = stop_flag()?;
        let listener = Listener::bind(&endpoint, credentials.as_ref(), PROTOCOL)
            .map_err(|error| cannot_listen(&endpoint, &error))?;
        output::say(&format!("{endpoint} coordinates {}; Ctrl-C ends it", self.policy.display()));
        let mut members = Members::new(listener, &policy);
        let begun = Instant::now();
        self.coordinate(&mut members, &stop);
        self.present(&endpoint, &members, begun.elapsed())?;
        let was_cut = self.length.is_some() && stop.load(Ordering::Relaxed);
        Ok(if was_cut { Code::Interrupted } else { Code::Measured })
    }

    fn coordinate(&self, members: &mut Members, stop: &AtomicBool) {
        let deadline = self.length.map(|length| Deadline::after(length.duration()));
        let period = Duration::from_secs_f64(Settings::PERIOD_S);
        let mut next = Instant::now();
        while !stop.load(Ordering::Relaxed) && !deadline.as_ref().is_some_and(Deadline::passed) {
            members.step();
            // After a stall no steps are made up for.
            next = (next + period).max(Instant::now());
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }

    fn present(&self, endpoint: &Endpoint, members: &Members, age: Duration) -> Result<(), Failure> {
        let seen = members.seen();
        let host = |host: &qos::hosts::HostSeen| HostEntry {
            name: host.name.clone(),
            bulk_bit_per_s: host.bulk_bit_per_s,
            delivered_bit_per_s: host.delivered_bit_per_s,
            delay_ms: host.round_trip.map(|took| took.as_secs_f64() * 1e3),
            is_stale: host.is_stale,
        };
        let answer = Coordinated {
            coordinator: endpoint.to_string(),
            policy: self.policy.display().to_string(),
            age_s: age.as_secs_f64(),
            state: seen.state.map(qos::law::State::name),
            capacity_bit_per_s: seen.capacity_bit_per_s,
            bulk_bit_per_s: seen.bulk_bit_per_s,
            queue_ms: seen.queue_s.map(|s| s * 1e3),
            steps: seen.steps,
            late_steps: seen.late_steps,
            hosts: seen.hosts.iter().map(host).collect(),
            refused: members.refused(),
        };
        match self.json {
            true => output::print(&Document::new(&answer).text()?),
            false => output::print(&fitted(&lines(&answer))),
        }
    }
}

fn lines(answer: &Coordinated) -> Vec<String> {
    let mut lines = vec![
        format!(
            "{}: coordinated {} for {}",
            answer.coordinator,
            answer.policy,
            quantity(Some(answer.age_s), "s")
        ),
        format!(
            "Carries {} ({}); bulk may send {}",
            quantity(answer.capacity_bit_per_s, "bit/s"),
            answer.state.unwrap_or("no host"),
            quantity(answer.bulk_bit_per_s, "bit/s")
        ),
    ];
    for host in answer.hosts.iter().take(HOSTS_SHOWN) {
        lines.push(format!(
            "{}: sends {}, bulk may send {}, delay {}{}",
            host.name,
            quantity(Some(host.delivered_bit_per_s), "bit/s"),
            quantity(Some(host.bulk_bit_per_s), "bit/s"),
            quantity(host.delay_ms.map(|ms| ms / 1e3), "s"),
            if host.is_stale { ": too late" } else { "" }
        ));
    }
    if answer.hosts.len() > HOSTS_SHOWN {
        lines.push(format!("{} more hosts: --json lists all.", answer.hosts.len() - HOSTS_SHOWN));
    }
    lines
}

fn cannot_listen(endpoint: &Endpoint, error: &std::io::Error) -> Failure {
    Failure::runtime(match error.kind() {
        std::io::ErrorKind::AddrInUse => format!(
            "{endpoint}: another program listens there; a bottleneck has one coordinator: end the other, or \
             give --listen"
        ),
        _ => format!("cannot listen on {endpoint}: {error}"),
    })
}
