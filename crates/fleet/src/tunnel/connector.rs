//! The joining side: one link to a coordinator, or to an external router.

use std::io;
use std::net::ToSocketAddrs;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustls::pki_types::ServerName;
use sys::clock::Deadline;
use tokio::net::{TcpStream, UnixListener};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::carry::{Tunnel, carry, is_refusal, prepare, runtime};
use super::private_dir::PrivateDir;
use super::tls;
use super::welcome::{Secret, Welcome};
use crate::identity::Credentials;

/// A link that waits for this process's zenoh.
#[derive(Debug)]
pub struct Joined {
    /// zenoh's endpoint; it accepts one connection.
    pub endpoint: String,
    /// zenoh's password of this member, from a coordinator of a fleet with certificates.
    pub secret: Option<String>,
    pub tunnel: Tunnel,
    /// Why the link ended.
    end: Arc<OnceLock<String>>,
}

impl Joined {
    /// Logs why the link ended, if the other side refused this one: the newest line in the log counts, and
    /// zenoh only saw that its socket ended.
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
    let config = Arc::new(tls::client(credentials)?);
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let socket = socket(host, port, &deadline)?;
    let runtime = runtime()?;
    let opened = runtime.block_on(async {
        let socket = TcpStream::from_std(socket)?;
        prepare(&socket)?;
        timeout(deadline.left(), open(TlsConnector::from(config), name, socket)).await?
    });
    let (link, secret) = opened?;
    let valid = tls::left(tls::peer(link.get_ref().1.peer_certificates()).as_ref());
    let dir = PrivateDir::create()?;
    let path = dir.join("bus.sock");
    let listener = {
        let _in_runtime = runtime.enter();
        UnixListener::bind(&path)?
    };
    let end = Arc::new(OnceLock::new());
    let ended = Arc::clone(&end);
    let task = runtime.spawn(async move {
        let accepted = timeout(within, listener.accept()).await;
        // No second connection.
        drop((listener, dir));
        let Ok(Ok((bus, _))) = accepted else { return };
        match carry(link, bus, valid).await {
            Err(error) if is_refusal(&error) => {
                tracing::warn!("the link ended: {error}");
                // Set once, here.
                let _ = ended.set(format!("the link ended: {error}"));
            }
            _ => {}
        }
    });
    let has_certificate = credentials.pair.is_some() && !credentials.uses_passwords();
    let secret = secret.filter(|_| has_certificate);
    Ok(Joined {
        endpoint: format!("unixsock-stream/{}", path.display()),
        secret: secret.map(|secret| secret.map(char::from).iter().collect()),
        tunnel: Tunnel { tasks: vec![task] },
        end,
    })
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
    connector: TlsConnector,
    name: ServerName<'static>,
    socket: TcpStream,
) -> io::Result<(TlsStream<TcpStream>, Option<Secret>)> {
    let mut link = connector.connect(name, socket).await?;
    let is_ours = link.get_ref().1.alpn_protocol() == Some(tls::PROTOCOL_NAME);
    let secret = match is_ours {
        true => Some(Welcome::receive(&mut link).await?),
        false => None,
    };
    Ok((link, secret))
}
