//! A server of HTTP/2 with planted delays and faults, which counts what it sees.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use h2::server::SendResponse;
use tokio::net::TcpListener;

/// What happens to a request.
#[derive(Debug, Clone, Copy)]
pub enum Answer {
    /// A response after a while.
    After(Duration),
    /// The same, and the connection takes no more requests (GOAWAY).
    Last(Duration),
    /// The stream is reset (RST_STREAM).
    Reset(Reason),
    /// No response.
    Never,
}

#[derive(Debug, Default)]
struct Counts {
    connections: AtomicUsize,
    requests: AtomicUsize,
    in_progress: AtomicUsize,
    in_progress_max: AtomicUsize,
    cancelled: AtomicUsize,
}

/// The server; it ends with the test program.
pub struct Http2Server {
    pub address: SocketAddr,
    counts: Arc<Counts>,
}

type Plan = Arc<dyn Fn(usize) -> Answer + Send + Sync>;

impl Http2Server {
    /// `plan`: the answer to each request, by its number on all connections. `streams_max`: how many streams
    /// the server allows on a connection.
    pub fn start(streams_max: Option<u32>, plan: impl Fn(usize) -> Answer + Send + Sync + 'static) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let (address, counts) = (listener.local_addr().unwrap(), Arc::<Counts>::default());
        let (plan, own): (Plan, _) = (Arc::new(plan), counts.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                while let Ok((socket, _)) = listener.accept().await {
                    socket.set_nodelay(true).unwrap();
                    own.connections.fetch_add(1, Ordering::Relaxed);
                    tokio::spawn(serve(socket, streams_max, plan.clone(), own.clone()));
                }
            });
        });
        Self { address, counts }
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub fn connections(&self) -> usize {
        self.counts.connections.load(Ordering::Relaxed)
    }

    /// Requests that came, whatever became of them.
    pub fn requests(&self) -> usize {
        self.counts.requests.load(Ordering::Relaxed)
    }

    /// Most requests that were in progress at a time, on all connections.
    pub fn in_progress_max(&self) -> usize {
        self.counts.in_progress_max.load(Ordering::Relaxed)
    }

    /// Requests without an answer that the client cancelled.
    pub fn cancelled(&self) -> usize {
        self.counts.cancelled.load(Ordering::Relaxed)
    }
}

async fn serve(socket: tokio::net::TcpStream, streams_max: Option<u32>, plan: Plan, counts: Arc<Counts>) {
    let mut builder = h2::server::Builder::new();
    if let Some(streams_max) = streams_max {
        builder.max_concurrent_streams(streams_max);
    }
    let Ok(mut connection) = builder.handshake::<_, Bytes>(socket).await else { return };
    while let Some(Ok((_, mut response))) = connection.accept().await {
        let number = counts.requests.fetch_add(1, Ordering::Relaxed);
        let counts = counts.clone();
        match plan(number) {
            Answer::Reset(reason) => response.send_reset(reason),
            Answer::After(pause) => drop(tokio::spawn(reply(response, pause, counts))),
            Answer::Last(pause) => {
                connection.graceful_shutdown();
                tokio::spawn(reply(response, pause, counts));
            }
            Answer::Never => {
                tokio::spawn(async move {
                    if matches!(poll_fn(|cx| response.poll_reset(cx)).await, Ok(Reason::CANCEL)) {
                        counts.cancelled.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        }
    }
}

async fn reply(mut response: SendResponse<Bytes>, pause: Duration, counts: Arc<Counts>) {
    let in_progress = counts.in_progress.fetch_add(1, Ordering::Relaxed) + 1;
    counts.in_progress_max.fetch_max(in_progress, Ordering::Relaxed);
    tokio::time::sleep(pause).await;
    counts.in_progress.fetch_sub(1, Ordering::Relaxed);
    if let Ok(mut body) = response.send_response(http::Response::new(()), false) {
        let _ = body.send_data(Bytes::from_static(b"ok"), true);
    }
}
