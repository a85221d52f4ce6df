//! The sending ends of a host as a part of a run: kind `daq.bulk_senders`.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use base::part::{HostContext, PartError, Progress};
use reactor::{ThreadControl, ThreadGroup, ThreadSpec};
use sys::clock::{Deadline, monotonic_ns};
use sys::net::{Moved, TcpSocket};
use workload::part::{Part, Peers};

use super::{Clocked, Sent, ThreadTimes, WAIT_MS, message_bytes};
use crate::listen_addresses::PortPart;
use crate::part_settings::SourcesTask;

const CONNECT: Duration = Duration::from_secs(5);
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Sources send so much longer than the receiver holds, whose clock may be behind.
const BEYOND_NS: u64 = 100_000_000;

pub struct SendersPart {
    task: SourcesTask,
    threads: Option<ThreadGroup<Result<OfThread, String>>>,
}

#[derive(Debug, Default)]
struct OfThread {
    threads: ThreadTimes,
    retransmits: Option<u64>,
}

/// Writes the message again and again, for `lasts_ns` from the start.
fn send(
    socket: &TcpSocket,
    message: &[u8],
    lasts_ns: u64,
    control: &ThreadControl,
) -> Result<OfThread, String> {
    if !control.sleep_until_start().map_err(|error| error.to_string())? {
        return Ok(OfThread::default());
    }
    let clocked = Clocked::now();
    let until_ns = control.start_ns().saturating_add(lasts_ns);
    let mut written = 0;
    while !control.is_stopped() && monotonic_ns() < until_ns {
        match socket.send_waiting(&message[written..]).map_err(|error| error.to_string())? {
            Moved::Bytes(bytes) => written = (written + bytes) % message.len(),
            Moved::WouldBlock | Moved::End => {}
        }
    }
    let retransmits = socket.info().ok().and_then(|info| info.retransmits_total).map(u64::from);
    Ok(OfThread { threads: clocked.times(), retransmits })
}

/// Connects a source of a run to its receiver.
fn connect(
    address: SocketAddr,
    run: u32,
    source: u32,
    congestion: Option<&str>,
) -> Result<TcpSocket, String> {
    let failed = |error: &dyn std::fmt::Display| format!("connect source {source} to {address}: {error}");
    let stream = TcpStream::connect_timeout(&address, CONNECT).map_err(|error| failed(&error))?;
    let socket = TcpSocket::try_from(stream).map_err(|error| failed(&error))?;
    if let Some(name) = congestion {
        socket.set_congestion(name).map_err(|error| failed(&error))?;
    }
    socket.set_wait(Some(Duration::from_millis(WAIT_MS))).map_err(|error| failed(&error))?;
    let hello = [run.to_be_bytes(), source.to_be_bytes()].concat();
    match socket.send_waiting(&hello).map_err(|error| failed(&error))? {
        Moved::Bytes(bytes) if bytes == hello.len() => Ok(socket),
        _ => Err(failed(&"its first bytes were not taken")),
    }
}

impl Part for SendersPart {
    const KIND: &'static str = "daq.bulk_senders";
    type Task = SourcesTask;
    type Endpoint = ();
    type Report = Sent;

    fn new(task: SourcesTask) -> Result<Self, PartError> {
        Ok(Self { task, threads: None })
    }

    fn prepare(&mut self, peers: &Peers<'_>, host: &HostContext) -> Result<(), PartError> {
        let SourcesTask { settings, ports, source_first, sources, .. } = &self.task;
        let port = ports.first().ok_or_else(|| PartError::new("there is no receiver to send to"))?;
        let port = peers.get::<PortPart>(port)?;
        let address = *port.addresses.first().ok_or_else(|| PartError::new("the receiver has no address"))?;
        host.permit.peer(address)?;
        host.permit.rate(u64::MAX)?;
        let message: Arc<[u8]> = vec![0; message_bytes(settings)].into();
        let lasts_ns = settings.omit.ns() + settings.time.ns() + BEYOND_NS;
        let mut threads = ThreadGroup::new(u64::MAX).map_err(PartError::new)?;
        for source in (*source_first..).take(*sources as usize) {
            let socket = connect(address, port.run, source, settings.congestion_control.as_deref());
            let (socket, message) = (socket.map_err(PartError::new)?, message.clone());
            let spec = ThreadSpec { name: format!("send-{source}"), ..ThreadSpec::default() };
            let work = move |control: &ThreadControl| send(&socket, &message, lasts_ns, control);
            threads.spawn(spec, work).map_err(PartError::new)?;
        }
        self.threads = Some(threads);
        Ok(())
    }

    fn start(&mut self, at_monotonic_ns: u64) -> Result<(), PartError> {
        let threads = self.threads.as_ref();
        threads.ok_or_else(|| PartError::new("the senders were not prepared"))?.begin(at_monotonic_ns);
        Ok(())
    }

    fn progress(&mut self) -> Progress {
        match &self.threads {
            Some(threads) if !threads.is_finished() => Progress::Running { done: None },
            _ => Progress::Finished,
        }
    }

    fn stop(&mut self) -> Result<Sent, PartError> {
        let mut all = Sent { boot: sys::proc::boot_id(), ..Sent::default() };
        let Some(mut threads) = self.threads.take() else { return Ok(all) };
        threads.stop();
        for found in threads.finish(Deadline::after(STOP_TIMEOUT)) {
            match found.map_err(PartError::new)? {
                Err(why) => all.broke_off = Some(why),
                Ok(found) => {
                    all.threads = all.threads.busiest(found.threads);
                    all.retransmits =
                        all.retransmits.into_iter().chain(found.retransmits).reduce(|a, b| a + b);
                }
            }
        }
        Ok(all)
    }
}
