//! The receiving end as a part of a run: kind `daq.bulk_receiver`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::part::{HostContext, Live, PartError, Progress};
use reactor::{ThreadControl, ThreadGroup, ThreadSpec};
use sys::clock::{Deadline, monotonic_ns, sleep_until_ns};
use sys::net::{ListenOptions, Listener, Moved, TcpSocket};
use workload::part::{Part, Peers};

use super::{Clocked, HELLO_BYTES, INTERVALS, Received, ThreadTimes, WAIT_MS, message_bytes};
use crate::builder::part::link_rate;
use crate::fd_limit;
use crate::listen_addresses::PortPart;
use crate::part_settings::BuilderTask;

const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two looks for a connection, which all are made before the trial starts.
const ACCEPT_PAUSE_NS: u64 = 2_000_000;
/// How long after the start a source may take to connect, and a connection to say whose it is.
const CONNECT_TIMEOUT_NS: u64 = 5_000_000_000;
/// How long after the hold the senders may take to close their connections.
const DRAIN_NS: u64 = 2_000_000_000;
/// Files that a process has open besides the connections.
const FILES_BESIDES: u64 = 256;

pub struct ReceiverPart {
    task: BuilderTask,
    threads: Option<ThreadGroup<Result<OfSource, String>>>,
    /// Bytes of the hold so far, and when they were last looked at.
    bytes: Arc<AtomicU64>,
    seen: (u64, u64),
    start_ns: u64,
    link_bit_per_s: Option<f64>,
}

/// What came over one connection.
#[derive(Debug, Default)]
struct OfSource {
    source: u32,
    bytes: u64,
    intervals: Vec<u64>,
    threads: ThreadTimes,
    ended_early: bool,
}

/// What the threads share.
struct Shared {
    listener: Listener,
    run: u32,
    sources: u64,
    message_bytes: usize,
    omit_ns: u64,
    hold_ns: u64,
    bytes: Arc<AtomicU64>,
}

impl Shared {
    /// Serves one connection, to its end.
    fn receive(&self, control: &ThreadControl) -> Result<OfSource, String> {
        let Some((source, socket)) = self.accept(control)? else {
            return Ok(OfSource { ended_early: true, ..OfSource::default() });
        };
        if !control.sleep_until_start().map_err(|error| error.to_string())? {
            return Ok(OfSource { source, ended_early: true, ..OfSource::default() });
        }
        let from_ns = control.start_ns().saturating_add(self.omit_ns);
        let mut buffer = vec![0; self.message_bytes];
        if !read_until(&socket, &mut buffer, from_ns, control, |_, _| {})? {
            return Ok(OfSource { source, ended_early: true, ..OfSource::default() });
        }
        let clocked = Clocked::now();
        let mut found = OfSource { source, intervals: vec![0; INTERVALS], ..OfSource::default() };
        let until_ns = from_ns + self.hold_ns;
        let is_whole = read_until(&socket, &mut buffer, until_ns, control, |now_ns, bytes| {
            found.bytes += bytes;
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            let share = now_ns.saturating_sub(from_ns) as f64 / self.hold_ns.max(1) as f64;
            let at = ((share * INTERVALS as f64) as usize).min(INTERVALS - 1);
            found.intervals[at] += bytes;
        })?;
        (found.threads, found.ended_early) = (clocked.times(), !is_whole);
        // A connection that is closed with data in it is reset, which the sender would report.
        let _ = read_until(&socket, &mut buffer, until_ns + DRAIN_NS, control, |_, _| {});
        Ok(found)
    }

    /// Waits for a connection of a source of this run; `None`: the trial was stopped.
    fn accept(&self, control: &ThreadControl) -> Result<Option<(u32, TcpSocket)>, String> {
        loop {
            let now_ns = monotonic_ns();
            if control.is_stopped() {
                return Ok(None);
            }
            if now_ns > control.start_ns().saturating_add(CONNECT_TIMEOUT_NS) {
                return Err("a source did not connect within 5 s after the start".to_owned());
            }
            match self.listener.accept().map_err(|error| error.to_string())? {
                Some((socket, _)) => match self.hello(&socket, control) {
                    Some(source) => return Ok(Some((source, socket))),
                    // Some other program's connection, which is closed.
                    None => continue,
                },
                None => sleep_until_ns(now_ns + ACCEPT_PAUSE_NS),
            }
        }
    }

    /// The number of the source at the other end, if it is one of this run.
    fn hello(&self, socket: &TcpSocket, control: &ThreadControl) -> Option<u32> {
        socket.set_wait(Some(Duration::from_millis(WAIT_MS))).ok()?;
        let (mut hello, mut read) = ([0; HELLO_BYTES], 0);
        let until_ns = monotonic_ns() + CONNECT_TIMEOUT_NS;
        while read < HELLO_BYTES && !control.is_stopped() && monotonic_ns() < until_ns {
            match socket.recv_waiting(&mut hello[read..]).ok()? {
                Moved::Bytes(bytes) => read += bytes,
                Moved::WouldBlock => {}
                Moved::End => return None,
            }
        }
        let (run, source) = hello.split_at(4);
        let number = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_be_bytes);
        let source = number(source).filter(|source| u64::from(*source) < self.sources)?;
        (read == HELLO_BYTES && number(run) == Some(self.run)).then_some(source)
    }
}

/// Reads until a moment, and counts each piece with the time of its arrival; `false`: the trial was stopped,
/// or the sender closed the connection before.
fn read_until(
    socket: &TcpSocket,
    buffer: &mut [u8],
    until_ns: u64,
    control: &ThreadControl,
    mut count: impl FnMut(u64, u64),
) -> Result<bool, String> {
    loop {
        let moved = socket.recv_waiting(buffer).map_err(|error| error.to_string())?;
        let now_ns = monotonic_ns();
        if now_ns >= until_ns {
            return Ok(true);
        }
        match moved {
            Moved::Bytes(bytes) => count(now_ns, bytes as u64),
            Moved::WouldBlock => {}
            Moved::End => return Ok(false),
        }
        if control.is_stopped() {
            return Ok(false);
        }
    }
}

impl ReceiverPart {
    fn done(&self) -> Option<f64> {
        let settings = &self.task.settings;
        let all_ns = settings.omit.ns() + settings.time.ns();
        let passed_ns = monotonic_ns().checked_sub(self.start_ns)?;
        Some((passed_ns as f64 / all_ns.max(1) as f64).min(1.0))
    }
}

impl Part for ReceiverPart {
    const KIND: &'static str = "daq.bulk_receiver";
    type Task = BuilderTask;
    type Endpoint = ();
    type Report = Received;

    fn report_items(task: &BuilderTask) -> u64 {
        task.settings.sources
    }

    fn new(task: BuilderTask) -> Result<Self, PartError> {
        Ok(Self {
            task,
            threads: None,
            bytes: Arc::default(),
            seen: (0, 0),
            start_ns: u64::MAX,
            link_bit_per_s: None,
        })
    }

    fn prepare(&mut self, peers: &Peers<'_>, host: &HostContext) -> Result<(), PartError> {
        let port = peers.get::<PortPart>(&self.task.port)?;
        let address = *port.addresses.first().ok_or_else(|| {
            PartError::new(format!("the endpoint '{}' has no address for a receiver", self.task.port))
        })?;
        host.permit.peer(address)?;
        let settings = &self.task.settings;
        fd_limit::raise_for(settings.sources, true, FILES_BESIDES)?;
        self.link_bit_per_s = link_rate(address.ip());
        let options = ListenOptions { reuse_port: true, ..ListenOptions::default() };
        let shared = Arc::new(Shared {
            listener: Listener::bind(address, &options).map_err(PartError::new)?,
            run: port.run,
            sources: settings.sources,
            message_bytes: message_bytes(settings),
            omit_ns: settings.omit.ns(),
            hold_ns: settings.time.ns(),
            bytes: self.bytes.clone(),
        });
        let mut threads = ThreadGroup::new(u64::MAX).map_err(PartError::new)?;
        for number in 0..settings.sources {
            let shared = shared.clone();
            let spec = ThreadSpec { name: format!("receive-{number}"), ..ThreadSpec::default() };
            threads.spawn(spec, move |control| shared.receive(control)).map_err(PartError::new)?;
        }
        self.threads = Some(threads);
        Ok(())
    }

    fn start(&mut self, at_monotonic_ns: u64) -> Result<(), PartError> {
        self.start_ns = at_monotonic_ns;
        let threads = self.threads.as_ref();
        threads.ok_or_else(|| PartError::new("the receiver was not prepared"))?.begin(at_monotonic_ns);
        Ok(())
    }

    fn progress(&mut self) -> Progress {
        match &self.threads {
            Some(threads) if !threads.is_finished() => Progress::Running { done: self.done() },
            _ => Progress::Finished,
        }
    }

    fn live(&mut self) -> Live {
        let (now_ns, bytes) = (monotonic_ns(), self.bytes.load(Ordering::Relaxed));
        let (then_ns, before) = std::mem::replace(&mut self.seen, (now_ns, bytes));
        let per_s = (bytes - before) as f64 * 1e9 / now_ns.saturating_sub(then_ns).max(1) as f64;
        Live::from([("payload_bit_per_s".to_owned(), per_s * 8.0)])
    }

    fn stop(&mut self) -> Result<Received, PartError> {
        let settings = &self.task.settings;
        let from_s = settings.omit.s();
        let mut all = Received {
            hold_s: (from_s, from_s + settings.time.s()),
            intervals: vec![0; INTERVALS],
            link_bit_per_s: self.link_bit_per_s,
            boot: sys::proc::boot_id(),
            ..Received::default()
        };
        let Some(mut threads) = self.threads.take() else { return Ok(all) };
        threads.stop();
        for found in threads.finish(Deadline::after(STOP_TIMEOUT)) {
            match found.map_err(PartError::new)? {
                Err(why) => all.broke_off = Some(why),
                Ok(found) => {
                    all.ended_early |= found.ended_early;
                    all.threads = all.threads.busiest(found.threads);
                    all.bytes.push((found.source, found.bytes));
                    all.intervals.iter_mut().zip(&found.intervals).for_each(|(sum, bytes)| *sum += bytes);
                }
            }
        }
        all.bytes.sort_unstable();
        Ok(all)
    }
}
