//! One end of a session's connection, and its thread.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use quinn::{
    ClientConfig, Connection, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig, VarInt,
};
use sys::clock::Deadline;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::flow::QuicGroup;
use super::{QuicError, QuicFacts, tls};
use crate::control::StopHandle;
use crate::flow::FlowSpec;

/// A stream may be this far ahead of its reader unless the order says otherwise, bytes.
const STREAM_WINDOW: u64 = 8 << 20;
/// All streams together may be this far ahead of their readers, bytes: the memory that a peer can occupy at
/// this end.
const CONNECTION_WINDOW: u64 = 64 << 20;
/// Default limit of unacknowledged bytes, queued ones included: 1 Gbit/s over 30 ms.
const SEND_WINDOW: u64 = 4 << 20;
/// A connection without received packets for this time is lost, ms.
const IDLE_MS: u32 = 15_000;
/// Interval of keep-alives: a connection is idle only when its peer is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(3);
/// Time for a client to prove that it knows the session; others may connect meanwhile.
const HANDSHAKE: Duration = Duration::from_secs(2);
/// Time for the closing packet to leave.
const FAREWELL: Duration = Duration::from_millis(20);
const STOP: Duration = Duration::from_secs(1);

/// What both ends of a session know of their connection beforehand.
#[derive(Debug, Clone)]
pub(crate) struct QuicPlan {
    /// The session's name, which a client must know.
    pub(crate) name: String,
    /// Streams that each end may open.
    pub(crate) flows: u32,
    /// Bytes that may be sent and not acknowledged.
    pub(crate) send_window_bytes: Option<u64>,
    /// Bytes that a stream may be ahead of its reader.
    pub(crate) receive_window_bytes: Option<u64>,
    /// How long connecting may take.
    pub(crate) within: Duration,
}

/// The connection or the reason of its failure, once it is known.
type Outcome = OnceLock<Result<Connection, String>>;

/// One end of a session's connection. Dropping it closes the connection.
pub(crate) struct QuicEndpoint {
    peer: SocketAddr,
    runtime: Handle,
    outcome: Arc<Outcome>,
    /// CPU time of the thread that groups have reported, ns.
    reported_cpu_ns: Arc<AtomicU64>,
    /// The thread ends when this is dropped.
    wanted: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl QuicEndpoint {
    /// Waits at the address `local`, on a free port, for the client whose control connection comes from
    /// `peer`. The stop handle wakes when the client has connected, or failed to.
    pub(crate) fn listen(
        mut local: SocketAddr,
        peer: SocketAddr,
        plan: &QuicPlan,
        stop_handle: Arc<StopHandle>,
    ) -> Result<(Self, QuicFacts), QuicError> {
        let (crypto, certificate) = tls::server(&plan.name)?;
        let mut config = ServerConfig::with_crypto(Arc::new(crypto));
        config.transport_config(Arc::new(transport(plan))).migration(false);
        local.set_port(0);
        let (end, endpoint) = Self::start(local, peer, Some(config))?;
        let port = endpoint.local_addr().map_err(failed("find the port"))?.port();
        let within = plan.within;
        end.come_together(stop_handle, async move {
            let admitted = timeout(within, admit(&endpoint, peer)).await;
            let within_s = within.as_secs_f64();
            let late = || format!("it did not come within {within_s} s; is UDP port {port} open here?");
            admitted.unwrap_or_else(|_| Err(late()))
        });
        Ok((end, QuicFacts { port, certificate }))
    }

    /// Connects to the server that sent these facts over the control connection to `server`. The stop handle
    /// wakes when it is connected or has failed to.
    pub(crate) fn connect(
        mut server: SocketAddr,
        facts: &QuicFacts,
        plan: &QuicPlan,
        stop_handle: Arc<StopHandle>,
    ) -> Result<Self, QuicError> {
        let mut config = ClientConfig::new(Arc::new(tls::client(&plan.name, &facts.certificate)?));
        config.transport_config(Arc::new(transport(plan)));
        server.set_port(facts.port);
        let any: SocketAddr = match server {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let (end, endpoint) = Self::start(any, server, None)?;
        let within = plan.within;
        end.come_together(stop_handle, async move {
            let connecting = endpoint.connect_with(config, server, tls::SERVER_NAME);
            match timeout(within, connecting.map_err(|error| error.to_string())?).await {
                Ok(connected) => connected.map_err(|error| error.to_string()),
                Err(_) => Err(format!(
                    "no answer within {} s; does a firewall drop UDP to that port?",
                    within.as_secs_f64()
                )),
            }
        });
        Ok(end)
    }

    /// A socket, and the thread that serves it.
    fn start(
        local: SocketAddr,
        peer: SocketAddr,
        config: Option<ServerConfig>,
    ) -> Result<(Self, Endpoint), QuicError> {
        let socket = UdpSocket::bind(local).map_err(failed("open a UDP socket"))?;
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed("make a runtime"))?;
        let handle = runtime.handle().clone();
        let endpoint = {
            let _within = handle.enter();
            Endpoint::new(EndpointConfig::default(), config, socket, Arc::new(TokioRuntime))
                .map_err(failed("use a UDP socket"))?
        };
        let (wanted, unwanted) = oneshot::channel::<()>();
        let last = endpoint.clone();
        let serve = move || {
            runtime.block_on(async move {
                // Nothing is sent on this channel: it ends when the sender is dropped.
                let _ = unwanted.await;
                last.close(VarInt::from_u32(0), b"");
                // Best effort.
                let _ = timeout(FAREWELL, last.wait_idle()).await;
            });
        };
        let thread = std::thread::Builder::new().name("transfer-quic".to_owned()).spawn(serve);
        let end = Self {
            peer,
            runtime: handle,
            outcome: Arc::default(),
            reported_cpu_ns: Arc::default(),
            wanted: Some(wanted),
            thread: Some(thread.map_err(failed("start a thread"))?),
        };
        Ok((end, endpoint))
    }

    /// Stores the result of `connection`, and wakes the session.
    fn come_together(
        &self,
        stop_handle: Arc<StopHandle>,
        connection: impl Future<Output = Result<Connection, String>> + Send + 'static,
    ) {
        let outcome = self.outcome.clone();
        self.runtime.spawn(async move {
            // It is set here only.
            let _ = outcome.set(connection.await);
            stop_handle.wake();
        });
    }

    /// Whether the ends are connected.
    pub(crate) fn is_connected(&self) -> Result<bool, QuicError> {
        Ok(self.connection()?.is_some())
    }

    fn connection(&self) -> Result<Option<Connection>, QuicError> {
        match self.outcome.get() {
            None => Ok(None),
            Some(Ok(connection)) => Ok(Some(connection.clone())),
            Some(Err(why)) => Err(QuicError::Connection { peer: self.peer, why: why.clone() }),
        }
    }

    /// Starts the flows of one direction: receivers at once, senders at `start_ns` of the monotonic clock.
    pub(crate) fn begin(&self, control: Vec<FlowSpec>, start_ns: u64) -> Result<QuicGroup, QuicError> {
        let why = || QuicError::Connection { peer: self.peer, why: "not yet".to_owned() };
        let connection = self.connection()?.ok_or_else(why)?;
        Ok(QuicGroup::start(&self.runtime, connection, control, start_ns, self.reported_cpu_ns.clone()))
    }
}

impl Drop for QuicEndpoint {
    fn drop(&mut self) {
        drop(self.wanted.take());
        let Some(thread) = self.thread.take() else { return };
        let until = Deadline::after(STOP);
        while !thread.is_finished() && until.pause(Duration::from_millis(1)) {}
        if thread.is_finished() {
            // An error is a panic of the thread, which was printed.
            let _ = thread.join();
        }
    }
}

/// Takes the first connection from the peer's address that knows the session's name.
async fn admit(endpoint: &Endpoint, peer: SocketAddr) -> Result<Connection, String> {
    let of_peer = |address: SocketAddr| address.ip().to_canonical() == peer.ip().to_canonical();
    while let Some(incoming) = endpoint.accept().await {
        if !of_peer(incoming.remote_address()) {
            incoming.ignore();
            continue;
        }
        let Ok(connecting) = incoming.accept() else { continue };
        if let Ok(Ok(connection)) = timeout(HANDSHAKE, connecting).await {
            endpoint.set_server_config(None);
            return Ok(connection);
        }
    }
    Err("this end was closed".to_owned())
}

fn transport(plan: &QuicPlan) -> TransportConfig {
    let window = |bytes: u64| VarInt::from_u64(bytes).unwrap_or(VarInt::MAX);
    let stream = plan.receive_window_bytes.unwrap_or(STREAM_WINDOW);
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_uni_streams(VarInt::from_u32(plan.flows))
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .stream_receive_window(window(stream))
        .receive_window(window(stream.max(CONNECTION_WINDOW)))
        .send_window(plan.send_window_bytes.unwrap_or(SEND_WINDOW))
        .datagram_receive_buffer_size(None)
        .max_idle_timeout(Some(VarInt::from_u32(IDLE_MS).into()))
        .keep_alive_interval(Some(KEEP_ALIVE));
    transport
}

fn failed(action: &'static str) -> impl FnOnce(io::Error) -> QuicError {
    move |source| QuicError::System { action, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(name: &str) -> QuicPlan {
        let within = Duration::from_secs(2);
        QuicPlan { name: name.into(), flows: 1, send_window_bytes: None, receive_window_bytes: None, within }
    }

    fn outcome(end: &QuicEndpoint) -> Result<bool, String> {
        let until = Deadline::after(Duration::from_secs(5));
        loop {
            match end.is_connected() {
                Ok(false) if until.pause(Duration::from_millis(1)) => {}
                ended => return ended.map_err(|error| error.to_string()),
            }
        }
    }

    #[test]
    fn quic_accepts_only_its_session() {
        let stop_handle = || Arc::new(StopHandle::new().unwrap());
        let loopback: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
        let (server, facts) =
            QuicEndpoint::listen(loopback, loopback, &plan("session"), stop_handle()).unwrap();
        let stranger = QuicEndpoint::connect(loopback, &facts, &plan("another"), stop_handle()).unwrap();
        assert!(outcome(&stranger).unwrap_err().contains("known protocol"), "{:?}", outcome(&stranger));
        assert!(!server.is_connected().unwrap(), "it waits on");
        let client = QuicEndpoint::connect(loopback, &facts, &plan("session"), stop_handle()).unwrap();
        assert_eq!((outcome(&client), outcome(&server)), (Ok(true), Ok(true)));
        let hasty = QuicPlan { within: Duration::from_millis(200), ..plan("session") };
        let late = QuicEndpoint::connect(loopback, &facts, &hasty, stop_handle()).unwrap();
        assert!(outcome(&late).is_err(), "there is one connection");
    }

    #[test]
    fn quic_reports_a_missing_peer_in_time() {
        let stop_handle = Arc::new(StopHandle::new().unwrap());
        let loopback: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
        let plan = QuicPlan { within: Duration::from_millis(200), ..plan("session") };
        let (server, facts) = QuicEndpoint::listen(loopback, loopback, &plan, stop_handle.clone()).unwrap();
        assert!(outcome(&server).unwrap_err().contains("did not come within 0.2 s"));
        drop(server);
        let client = QuicEndpoint::connect(loopback, &facts, &plan, stop_handle).unwrap();
        assert!(outcome(&client).unwrap_err().contains("no answer within 0.2 s"));
    }
}
