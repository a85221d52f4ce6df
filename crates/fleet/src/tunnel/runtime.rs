//! The threads of handshakes, and what every secured link needs of its socket.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use socket2::{SockRef, Socket, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// A host that acknowledges nothing for so long is gone. zenoh's lease ends its session sooner.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Enough for the handshakes of any machine.
const THREADS: usize = 2;

/// Apart from zenoh's threads, which block while they open sessions.
pub(super) fn runtime() -> io::Result<&'static Runtime> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    match RUNTIME.get() {
        Some(runtime) => Ok(runtime),
        None => {
            let mut builder = Builder::new_multi_thread();
            let runtime = builder.worker_threads(THREADS).thread_name("tls").enable_all().build()?;
            Ok(RUNTIME.get_or_init(|| runtime))
        }
    }
}

/// A task that ends when this is dropped.
#[derive(Debug)]
pub(super) struct Task(JoinHandle<()>);

impl Task {
    pub fn spawn(task: impl Future<Output = ()> + Send + 'static) -> io::Result<Self> {
        Ok(Self(runtime()?.spawn(task)))
    }

    /// Ends the task and waits until it has.
    pub fn end(&mut self) {
        self.0.abort();
        // Aborted: it returns nothing.
        let _ = runtime().map(|runtime| runtime.block_on(&mut self.0));
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(super) fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let socket = SockRef::from(socket);
    socket.set_tcp_user_timeout(Some(SILENCE_MAX))?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(SILENCE_MAX).with_interval(SILENCE_MAX / 4))
}

/// Receives why a link was refused or has ended.
pub(super) type Report = Arc<dyn Fn(&str) + Send + Sync>;

/// Ends a link when the other side's certificate expires.
pub(super) fn end_after(valid: Duration, socket: Socket, report: Report) -> io::Result<Task> {
    Task::spawn(async move {
        sleep(valid).await;
        report("the other side's certificate has expired");
        // A connection that has ended needs no end.
        let _ = socket.shutdown(std::net::Shutdown::Both);
    })
}

/// Reports an error whose cause is the other side's TLS, rather than a connection that ended.
pub(super) fn report_refusal(report: &Report, error: &io::Error) {
    if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::Other) {
        report(&error.to_string());
    }
}
