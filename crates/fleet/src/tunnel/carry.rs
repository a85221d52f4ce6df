//! Carries bytes between a TLS link and zenoh's socket, on threads of its own.

use std::io;
use std::pin::pin;
use std::sync::OnceLock;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy, split};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How long the other direction may still send after one has ended.
const LINGER: Duration = Duration::from_secs(2);
/// A host that acknowledges nothing for so long is gone. zenoh's lease ends its session sooner.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Bytes travel fast enough with two threads on any machine.
const THREADS: usize = 2;

/// The threads of all links in this process, apart from zenoh's: those block while they open sessions.
pub(super) fn runtime() -> io::Result<&'static Runtime> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    match RUNTIME.get() {
        Some(runtime) => Ok(runtime),
        None => {
            let mut builder = Builder::new_multi_thread();
            let runtime = builder.worker_threads(THREADS).thread_name("tunnel").enable_all().build()?;
            Ok(RUNTIME.get_or_init(|| runtime))
        }
    }
}

/// A running tunnel; dropping it closes its links and sockets.
#[derive(Debug)]
pub struct Tunnel {
    pub(super) tasks: Vec<JoinHandle<()>>,
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        let Ok(runtime) = runtime() else { return };
        for task in self.tasks.drain(..) {
            // Aborted: it returns nothing.
            let _ = runtime.block_on(task);
        }
    }
}

pub(super) fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let socket = SockRef::from(socket);
    socket.set_tcp_user_timeout(Some(SILENCE_MAX))?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(SILENCE_MAX).with_interval(SILENCE_MAX / 4))
}

/// Carries bytes in both directions until one ends, or until a certificate expires. Holds a few KiB per
/// direction: a slow reader stops the writer.
pub(super) async fn carry<S>(link: S, bus: UnixStream, valid: Duration) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite,
{
    // The two halves share a lock: one TLS session is never used from two threads at once.
    let (mut link_reader, mut link_writer) = split(link);
    let (mut bus_reader, mut bus_writer) = bus.into_split();
    let mut inwards = pin!(async {
        let copied = copy(&mut link_reader, &mut bus_writer).await;
        bus_writer.shutdown().await?;
        copied
    });
    let mut outwards = pin!(async {
        let copied = copy(&mut bus_reader, &mut link_writer).await;
        link_writer.shutdown().await?;
        copied
    });
    tokio::select! {
        ended = &mut inwards => {
            // Whatever could be sent was sent.
            let _ = timeout(LINGER, &mut outwards).await;
            ended.map(drop)
        }
        ended = &mut outwards => {
            let _ = timeout(LINGER, &mut inwards).await;
            ended.map(drop)
        }
        () = sleep(valid) => Err(io::Error::other("the other side's certificate has expired")),
    }
}

/// Whether the other side's TLS is the cause, rather than a connection that ended.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::Other)
}
