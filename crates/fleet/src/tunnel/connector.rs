//! The joining side: one link to a coordinator, or to an external router.

use std::io;
use std::net::ToSocketAddrs;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustls::pki_types::ServerName;
use sys::clock::Deadline;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use zenoh_link_tls::{Offer, SecuredStream, Socket};

use super::runtime::{Report, Task, end_after, prepare, report_refusal, runtime};
use super::tls;
use super::welcome::Welcome;
use crate::identity::Credentials;

/// A link that waits for this process's zenoh.
#[derive(Debug)]
pub struct Joined {
    pub offer: Offer,
    /// Why the link ended.
    end: Arc<OnceLock<String>>,
}

impl Joined {
    /// Logs why the link ended, if the other side refused this one: the newest line in the log counts, and
    /// zenoh only saw that its link ended.
    pub fn log_end(&self) {
        if let Some(end) = self.end.get() {
            tracing::warn!("{end}");
        }
    }
}

/// Connects and checks the listener's certificate against `host`.
/// Errors: What failed, as logged.
pub fn connect(host: &str, port: u16, credentials: &Credentials, within: Duration) -> io::Result<Joined> {
    let joined = link(host, port, credentials, within);
    joined.inspect_err(|error| tracing::warn!("cannot join tls/{host}:{port}: {error}"))
}

fn link(host: &str, port: u16, credentials: &Credentials, within: Duration) -> io::Result<Joined> {
    let deadline = Deadline::after(within);
    let connector = TlsConnector::from(Arc::new(tls::client(credentials, tls::PROTOCOL_NAME)?));
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let socket = socket(host, port, &deadline)?;
    let end = Arc::new(OnceLock::new());
    let ended = Arc::clone(&end);
    let report: Report = Arc::new(move |why| {
        tracing::warn!("the link ended: {why}");
        // The first reason counts.
        let _ = ended.set(format!("the link ended: {why}"));
    });
    let opened = runtime()?.block_on(async {
        let socket = TcpStream::from_std(socket)?;
        timeout(deadline.left(), open(&connector, name, socket, &report)).await?
    });
    let (link, expiry) = opened?;
    let stream = SecuredStream {
        stream: link.into(),
        // zenoh's access control is the listener's.
        peer: None,
        guard: Box::new(expiry),
        on_error: Box::new(move |error| report_refusal(&report, error)),
    };
    Ok(Joined { offer: zenoh_link_tls::offer(stream), end })
}

/// Tries all addresses of a host name in turn.
fn socket(host: &str, port: u16, deadline: &Deadline) -> io::Result<std::net::TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in (host, port).to_socket_addrs()? {
        match std::net::TcpStream::connect_timeout(&address, deadline.left().max(Duration::from_millis(1))) {
            Ok(socket) => {
                socket.set_nonblocking(true)?;
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn open(
    connector: &TlsConnector,
    name: ServerName<'static>,
    socket: TcpStream,
    report: &Report,
) -> io::Result<(TlsStream<Socket>, Option<Task>)> {
    prepare(&socket)?;
    // Before it is known whether it is needed: afterwards TLS owns the socket.
    let watched = socket2::SockRef::from(&socket).try_clone()?;
    let mut link = connector.connect(name, Socket::new(socket)).await?;
    if link.get_ref().1.alpn_protocol() == Some(tls::PROTOCOL_NAME) {
        Welcome::receive(&mut link).await?;
    }
    let valid = tls::left(tls::peer(link.get_ref().1.peer_certificates()).as_ref());
    let expiry = valid.map(|valid| end_after(valid, watched, Arc::clone(report))).transpose()?;
    Ok((link, expiry))
}
