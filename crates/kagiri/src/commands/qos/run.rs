//! `kagiri qos run`: a policy in force.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use base::units::Span;
use clap::Args;
use qos::daemon::Daemon;
use qos::policy::Policy;
use report::text::plain;
use sys::clock::Deadline;
use sys::journal::Journal;
use sys::shaping::Guardian;

use super::host_link::HostLink;
use super::metrics::Metrics;
use super::record::{self, InterfaceLock, Record};
use super::{check_root, read_policy, status};
use crate::dirs::journal_dir;
use crate::exit::{Code, Failure, Outcome};
use crate::guardian::start_guardian;
use crate::hosts::Identity;
use crate::json_document::Document;
use crate::leftovers::clean_leftovers;
use crate::output;
use crate::stop::stop_flag;

/// How often the record is written and the guardian is looked at.
const RECORD_EVERY: Duration = Duration::from_secs(1);
const FILES_MAX: u64 = 1 << 16;

/// Enforce a policy on running programs until Ctrl-C.
#[derive(Args)]
#[command(after_help = "Paces the TCP sockets of bulk classes (SO_MAX_PACING_RATE), on programs that run \
    unmodified, and those of urgent classes so that what more urgent ones need stays free. UDP sockets of \
    bulk classes are held to a rate by an HTB in \
    front of the interface (tc-htb(8)), unless it has a queueing discipline of another program. Needs root. \
    At the end, and if this program is killed, every socket gets back what it had before.\n\n\
    Examples:\n  \
    kagiri qos run policy.toml --metrics 127.0.0.1:9464\n  \
    kagiri qos run policy.toml --for 10min --json")]
pub struct Run {
    /// Policy; an example is plans/qos/robots.toml of kagiri's sources
    #[arg(value_name = "POLICY.toml")]
    policy: PathBuf,
    /// End after this time instead of at Ctrl-C
    #[arg(long = "for", value_name = "TIME", value_parser = crate::args::time)]
    length: Option<Span>,
    /// Serve metrics for Prometheus at http://ADDRESS:PORT/metrics
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Allow metrics at an address that other hosts reach, without authentication
    #[arg(long, requires = "metrics")]
    open: bool,
    /// Coordinator of the hosts that share the bottleneck [default: the policy's coordinator]
    #[arg(long, value_name = "ENDPOINT")]
    coordinator: Option<String>,
    /// This host's credentials, if the coordinator is at tls/...: a copy of the directory bundles/NAME that
    /// 'kagiri fleet init' made
    #[arg(long, value_name = "DIR")]
    credentials: Option<PathBuf>,
    /// Print one JSON document at the end
    #[arg(long)]
    json: bool,
    /// Leave single sockets and programs out of the document
    #[arg(long, hide = true)]
    no_sockets: bool,
}

/// What stands beside the policy in force.
struct Running {
    record: Record,
    interface_number: u32,
    metrics: Option<Metrics>,
    guardian: Guardian,
    /// To the coordinator of several hosts.
    hosts: Option<HostLink>,
}

impl Run {
    pub fn run(self) -> Outcome {
        let mut policy = read_policy(&self.policy)?;
        let interface_number = check_host(&policy, &self.policy)?;
        if let Some(coordinator) = &self.coordinator {
            policy.bottleneck.coordinator = Some(coordinator.clone());
        }
        let hosts = self.host_link(&policy)?;
        let namespace = record::own_namespace()?;
        let interface = sys::proc::interface_name(interface_number).unwrap_or_default();
        // It may be an alternative name.
        policy.bottleneck.interface = interface.clone();
        let Some(_lock) = InterfaceLock::try_take(namespace, interface_number)? else {
            return Err(in_force_already(namespace, &interface)?);
        };
        // It holds a handle of each program whose sockets it paces.
        let _ = sys::thread::raise_file_limit(FILES_MAX);
        let stop = stop_flag()?;
        clean_leftovers(&stop, &|line| output::say(line));
        let journal = Journal::open(&journal_dir())?;
        // Before anything is changed; it ends after the last change is undone.
        let guardian = start_guardian("qos", &journal)?;
        let mut daemon = Daemon::new(policy, &journal).context("cannot list the sockets of this host")?;
        let record = self.record(&daemon, namespace)?;
        record.write()?;
        let metrics = self.metrics.map(|listen| Metrics::start(listen, self.open, &record)).transpose();
        let metrics = metrics.inspect_err(|_| record.remove())?;
        if let Some(metrics) = &metrics {
            output::say(&format!("Metrics at http://{}/metrics", metrics.address()));
        }
        let classes = daemon.policy().classes.len();
        output::say(&format!(
            "{interface}: {} is in force for {classes} classes; Ctrl-C ends it",
            self.policy.display()
        ));
        let mut running = Running { record, interface_number, metrics, guardian, hosts };
        let enforced = self.enforce(&mut daemon, &mut running, &journal, &stop);
        let Running { mut record, metrics, guardian, mut hosts, .. } = running;
        record.status = daemon.status();
        record.status.hosts = hosts.as_mut().map(HostLink::status);
        drop(hosts);
        drop((daemon, metrics));
        record.remove();
        let left = journal.pending();
        drop(guardian);
        let undone = match left {
            0 => Ok(()),
            _ => Err(format!("{left} changes could not be put back; 'kagiri undo' says why")),
        };
        if let (Err(_), Err(left)) = (&enforced, &undone) {
            output::say(left);
        }
        enforced?;
        if self.no_sockets {
            record.status.sockets.clear();
            record.status.programs.clear();
        }
        self.present(&record)?;
        undone.map_err(Failure::runtime)?;
        let was_cut = self.length.is_some() && stop.load(Ordering::Relaxed);
        Ok(if was_cut { Code::Interrupted } else { Code::Measured })
    }

    fn host_link(&self, policy: &Policy) -> Result<Option<HostLink>, Failure> {
        let Some(coordinator) = &policy.bottleneck.coordinator else {
            let Some(_) = &self.credentials else { return Ok(None) };
            return Err(Failure::usage(format!(
                "--credentials are for the policy's coordinator, and {} names none; add coordinator = \
                 \"tls/HOST:7448\" to its bottleneck, or give --coordinator tls/HOST:7448",
                self.policy.display()
            )));
        };
        let identity = Identity::load_of_host(self.credentials.as_deref())?;
        identity.warn_of_expiry();
        HostLink::new(coordinator, policy, &identity).map(Some)
    }

    fn record(&self, daemon: &Daemon, namespace: u64) -> anyhow::Result<Record> {
        let pid = std::process::id().cast_signed();
        let start_ticks = sys::proc::start_ticks(Path::new("/"), pid).context("cannot read this process")?;
        let policy = std::path::absolute(&self.policy)?.display().to_string();
        Ok(Record { pid, start_ticks, policy, namespace, age_s: 0.0, status: daemon.status() })
    }

    /// Ticks until Ctrl-C, or until the time is over.
    fn enforce(
        &self,
        daemon: &mut Daemon,
        running: &mut Running,
        journal: &Journal,
        stop: &AtomicBool,
    ) -> Result<(), Failure> {
        let Running { record, interface_number, metrics, guardian, hosts } = running;
        let begun = Instant::now();
        let deadline = self.length.map(|length| Deadline::after(length.duration()));
        let mut recorded = begun;
        let mut next = begun;
        let mut is_told = false;
        while !stop.load(Ordering::Relaxed) && !deadline.is_some_and(|deadline| deadline.passed()) {
            if let Some(lease) = hosts.as_mut().and_then(HostLink::receive) {
                daemon.set_lease(lease);
            }
            daemon.tick()?;
            if let Some(hosts) = hosts {
                hosts.report(&daemon.host_facts());
            }
            if recorded.elapsed() >= RECORD_EVERY {
                recorded = Instant::now();
                record.age_s = begun.elapsed().as_secs_f64();
                record.status = daemon.status();
                record.status.hosts = hosts.as_mut().map(HostLink::status);
                daemon.take_new_problems().iter().for_each(|problem| output::say(&plain(problem)));
                let written = record.write();
                let served = metrics.as_ref().map_or(Ok(()), |metrics| metrics.update(record));
                if let Err(error) = written.and(served)
                    && !std::mem::replace(&mut is_told, true)
                {
                    output::say(&format!("'kagiri qos status' is out of date: {error:#}"));
                }
                let interface = &record.status.interface;
                if sys::proc::interface_number(interface) != Some(*interface_number) {
                    return Err(Failure::runtime(format!(
                        "the interface {interface} was removed or renamed; the policy has ended"
                    )));
                }
                if !guardian.is_running() {
                    *guardian = start_guardian("qos", journal)?;
                }
            }
            // After a stall no ticks are made up for.
            let period = Duration::from_secs_f64(daemon.period_s());
            next = (next + period).max(Instant::now());
            daemon.wait(next)?;
        }
        record.age_s = begun.elapsed().as_secs_f64();
        Ok(())
    }

    fn present(&self, record: &Record) -> Result<(), Failure> {
        match self.json {
            true => output::print(&Document::new(record).text()?),
            false => output::print(&status::answer(record, "was in force", output::style())),
        }
    }
}

/// What must hold before anything is changed.
/// Returns the number of the policy's interface.
fn check_host(policy: &Policy, path: &Path) -> Result<u32, Failure> {
    check_root("qos run changes the sockets of other programs ('qos check' judges a policy without)")?;
    let wrong = |problem: String| Failure::usage(format!("{}: {problem}", path.display()));
    for congestion_control in policy.classes.iter().filter_map(|class| class.congestion_control) {
        let available = congestion_control.check_available();
        available.map_err(|error| wrong(format!("class.congestion_control: {error}")))?;
    }
    let interface = &policy.bottleneck.interface;
    sys::proc::interface_number(interface).ok_or_else(|| {
        let lists = "'ip link' lists them";
        wrong(format!("bottleneck.interface: this host has no interface {interface:?}; {lists}"))
    })
}

fn in_force_already(namespace: u64, interface: &str) -> anyhow::Result<Failure> {
    let is_same = |other: &Record| other.namespace == namespace && other.status.interface == interface;
    // It may have no record yet.
    let other = match record::in_force()?.into_iter().find(is_same) {
        Some(other) => format!("process {} enforces {}", other.pid, other.policy),
        None => "another process enforces a policy".to_owned(),
    };
    Ok(Failure::runtime(format!(
        "{other} on {interface} already; end it with 'kagiri qos clear', or with Ctrl-C where it runs"
    )))
}
