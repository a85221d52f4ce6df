//! kagiri's server of messages: an event loop that reads messages, replies, and counts background load, and a
//! thread for the only connection with messages ([`receive_thread`]).

mod connection;
mod machine;
pub mod part;
mod receive_thread;
mod trials;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ipnet::IpNet;
use reactor::{ThreadError, ThreadGroup, ThreadSpec};
use serde::{Deserialize, Serialize};
use sys::clock::Deadline;
use sys::net::{ListenOptions, Listener, NetError, SocketOptions, UdpPort};

use self::connection::Buffers;
use self::machine::Machine;
pub use self::trials::BackgroundCount;

/// Room for background datagrams that arrive while messages are served.
const DATAGRAM_QUEUE_BYTES: u64 = 4 << 20;
/// Free ports of TCP that are tried until the same one of UDP is free, too.
const PORTS_TRIED: u32 = 20;
/// A connection whose peer's host is silent for so long is closed: clients may send nothing for longer.
const SILENCE_MAX: Duration = Duration::from_secs(120);
const FILES: u64 = 1 << 20;
const END_WITHIN: Duration = Duration::from_secs(1);

/// How a server serves.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    pub listen: SocketAddr,
    /// Further ports for messages, at the same address.
    pub more_ports: Vec<u16>,
    /// What clients have to know; 0 for all.
    pub key: u64,
    /// What is waited before each reply, ns.
    pub service_ns: u64,
    pub receive_buffer_bytes: Option<u64>,
    /// The networks whose hosts are served; `None`: all.
    pub admitted: Option<Vec<IpNet>>,
    /// Whether each message is logged, for tests.
    pub keeps_log: bool,
}

impl ServerSettings {
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            more_ports: Vec::new(),
            key: 0,
            service_ns: 0,
            receive_buffer_bytes: None,
            admitted: None,
            keeps_log: false,
        }
    }
}

/// One message as the server saw it; times of the monotonic clock, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEntry {
    pub first_byte_ns: u64,
    pub last_byte_ns: u64,
    /// The kernel had the whole reply.
    pub replied_ns: u64,
}

/// What a server did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerReport {
    pub messages: u64,
    pub received_bytes: u64,
    /// Connections that were closed because they spoke something else, or were not admitted.
    pub refused: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(transparent)]
    Net(#[from] NetError),
    #[error(transparent)]
    Thread(#[from] ThreadError),
}

type Log = Arc<Mutex<Vec<LogEntry>>>;

/// A running server; dropping it stops it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    group: ThreadGroup<Result<ServerReport, NetError>>,
    log: Log,
}

impl Server {
    pub fn start(settings: &ServerSettings) -> Result<Self, ServerError> {
        // With fewer, the acceptor waits until one is free.
        let _ = sys::thread::raise_file_limit(FILES);
        let (listener, datagrams) = bind(settings)?;
        let mut listeners = vec![listener];
        for port in &settings.more_ports {
            let address = SocketAddr::new(settings.listen.ip(), *port);
            listeners.push(Listener::bind(address, &listen_options(settings))?);
        }
        // Without a larger buffer more datagrams are lost, which are counted as not delivered.
        let _ = datagrams.set_receive_buffer(DATAGRAM_QUEUE_BYTES);
        let address = listeners[0].local_addr();
        let mut group = ThreadGroup::new(0)?;
        let (log, settings) = (Log::default(), settings.clone());
        let own_log = settings.keeps_log.then(|| log.clone());
        let thread = |name: &str| ThreadSpec { name: name.into(), is_precise: true, ..ThreadSpec::default() };
        let (receive_thread, thread_end) = receive_thread::pair();
        let mut buffers = Buffers::new(settings.service_ns, own_log.clone());
        group.spawn(thread("exchange-server"), move |control| {
            let mut events = reactor::EventLoop::new(control.stop_handle(), 256)?;
            let mut machine =
                Machine::new(listeners, datagrams, settings, own_log, receive_thread, events.reactor())?;
            events.run(&mut machine)?;
            Ok(machine.report())
        })?;
        group.spawn(thread("exchange-receive"), move |control| {
            thread_end.run(control, &mut buffers);
            Ok(buffers.report())
        })?;
        Ok(Self { address, group, log })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Whether its loop has ended, which it does only by an error.
    pub fn has_failed(&self) -> bool {
        self.group.is_finished()
    }

    /// The messages since the last call, if they are logged.
    pub fn take_log(&self) -> Vec<LogEntry> {
        std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Stops it, and reports what it did.
    pub fn stop(mut self) -> Result<ServerReport, ServerError> {
        self.group.stop();
        let mut total = ServerReport::default();
        for ended in self.group.finish(Deadline::after(END_WITHIN)) {
            let ServerReport { messages, received_bytes, refused } = ended??;
            total.messages += messages;
            total.received_bytes += received_bytes;
            total.refused += refused;
        }
        Ok(total)
    }
}

fn listen_options(settings: &ServerSettings) -> ListenOptions {
    let socket = SocketOptions {
        receive_buffer_bytes: settings.receive_buffer_bytes,
        silence_limit: Some(SILENCE_MAX),
        ..SocketOptions::default()
    };
    ListenOptions { socket, ..ListenOptions::default() }
}

/// A port of TCP for messages, and the same one of UDP for background load.
fn bind(settings: &ServerSettings) -> Result<(Listener, UdpPort), NetError> {
    let options = listen_options(settings);
    for tried in 1.. {
        let listener = Listener::bind(settings.listen, &options)?;
        match UdpPort::bind(listener.local_addr()) {
            Ok(datagrams) => return Ok((listener, datagrams)),
            Err(error) if settings.listen.port() != 0 || tried >= PORTS_TRIED => return Err(error),
            Err(_) => {}
        }
    }
    unreachable!("the loop ends by a return")
}
