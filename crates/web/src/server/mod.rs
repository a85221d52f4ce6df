//! The listener: connections with bounds on their number and their time.

mod stall;
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tower::ServiceExt;

use self::stall::Stalling;
pub use self::tls::acceptor;

/// A browser has six connections to a server.
const CONNECTIONS_MAX: usize = 512;
const HEAD_WITHIN: Duration = Duration::from_secs(10);
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// How long a client may not take what it is sent.
const WRITE_WITHIN: Duration = Duration::from_secs(20);
const HEAD_BYTES_MAX: usize = 32 * 1024;
const STOP_POLL: Duration = Duration::from_millis(200);
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `stop` is set.
pub async fn serve(
    listener: TcpListener,
    tls: Option<tokio_rustls::TlsAcceptor>,
    router: Router,
    stop: Arc<AtomicBool>,
) -> anyhow::Result<()> {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let stopped = async {
        while !stop.load(Ordering::Relaxed) {
            tokio::time::sleep(STOP_POLL).await;
        }
    };
    tokio::pin!(stopped);
    loop {
        let accepted = tokio::select! {
            () = &mut stopped => return Ok(()),
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            // No descriptor is left; connections that end give some back.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Beyond the bound a connection is closed at once.
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else { continue };
        let (router, tls) = (router.clone(), tls.clone());
        tokio::spawn(async move {
            connection(stream, tls, router).await;
            drop(place);
        });
    }
}

/// Listens at an address.
/// Errors: it is in use, or none of this host.
pub async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!(
            "cannot listen at {address}; is another 'kagiri serve' running? Choose another port with --listen"
        )
    })
}

async fn connection(stream: TcpStream, tls: Option<tokio_rustls::TlsAcceptor>, router: Router) {
    // Events are small, and each of them is due at once.
    let _ = stream.set_nodelay(true);
    let stream = Stalling::new(stream, WRITE_WITHIN);
    match tls {
        None => requests(stream, router).await,
        Some(tls) => {
            let handshake = tokio::time::timeout(HANDSHAKE_WITHIN, tls.accept(stream));
            if let Ok(Ok(stream)) = handshake.await {
                requests(stream, router).await;
            }
        }
    }
}

async fn requests<T: AsyncRead + AsyncWrite + Unpin>(stream: T, router: Router) {
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        router.clone().oneshot(request.map(Body::new))
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN).max_buf_size(HEAD_BYTES_MAX);
    // A client that breaks off is no error of this server.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}
