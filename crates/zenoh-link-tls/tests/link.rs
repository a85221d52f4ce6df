//! Two links of one TLS connection, used as zenoh uses them: one task reads while another writes.
#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use zenoh_link_commons::{LinkAuthId, LinkManagerUnicastTrait, LinkUnicast, NewLinkChannelSender};
use zenoh_link_tls::{LinkManagerUnicastTls, Listener, SecuredStream, Socket, deliver, offer};

/// Nothing here takes this long.
const GUARD: Duration = Duration::from_secs(30);

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async { timeout(GUARD, test).await.expect("the test ends") })
}

/// Both ends of a new TLS connection.
async fn connection() -> (TlsStream<Socket>, TlsStream<Socket>) {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let server = server.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let server = server.with_single_cert(vec![certificate.clone()], key).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let client = client.with_root_certificates(roots).with_no_client_auth();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    let (connector, acceptor) = (TlsConnector::from(Arc::new(client)), TlsAcceptor::from(Arc::new(server)));
    let name = ServerName::try_from("localhost").unwrap();
    let (near, far) =
        tokio::join!(connector.connect(name, Socket::new(socket)), acceptor.accept(Socket::new(accepted)));
    (near.unwrap().into(), far.unwrap().into())
}

fn secured(stream: TlsStream<Socket>) -> SecuredStream {
    SecuredStream { stream, peer: Some("nas".to_owned()), guard: Box::new(()), on_error: Box::new(|_| {}) }
}

/// zenoh's part: takes what is offered and what is delivered.
async fn links(near: SecuredStream, far: SecuredStream) -> (LinkUnicast, LinkUnicast) {
    let (sender, delivered) = channel();
    let manager = LinkManagerUnicastTls::new(sender);
    let listener = Listener::default();
    manager.new_listener(listener.endpoint().parse().unwrap()).await.unwrap();
    deliver(&listener, far).await.unwrap();
    let offer = offer(near);
    let near = manager.new_link(offer.endpoint().parse().unwrap()).await.unwrap();
    (near, delivered.recv().unwrap())
}

fn channel() -> (NewLinkChannelSender, flume::Receiver<LinkUnicast>) {
    flume::bounded(4)
}

/// Byte `at` of a stream.
fn byte(at: usize, seed: usize) -> u8 {
    (at.wrapping_mul(31).wrapping_add(seed) >> 3) as u8
}

const BATCH: usize = 40_000;
const BATCHES: usize = 500;

async fn write(link: LinkUnicast, seed: usize) {
    for batch in 0..BATCHES {
        let bytes: Vec<u8> = (0..BATCH).map(|at| byte(batch * BATCH + at, seed)).collect();
        link.write_all(&bytes, None).await.unwrap();
    }
}

async fn read(link: LinkUnicast, seed: usize) {
    let mut bytes = vec![0; BATCH / 2];
    for half in 0..2 * BATCHES {
        link.read_exact(&mut bytes, None).await.unwrap();
        let first = half * bytes.len();
        let wrong = bytes.iter().enumerate().find(|(at, value)| **value != byte(first + at, seed));
        assert_eq!(wrong, None, "half batch {half}");
    }
}

#[test]
fn both_directions_at_once_lose_and_mix_nothing() {
    run(async {
        let (near, far) = connection().await;
        let (near, far) = links(secured(near), secured(far)).await;
        let tasks = [
            tokio::spawn(write(near.clone(), 1)),
            tokio::spawn(write(far.clone(), 2)),
            tokio::spawn(read(near, 2)),
            tokio::spawn(read(far, 1)),
        ];
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn verified_name_is_the_links_name() {
    run(async {
        let (near, far) = connection().await;
        let (near, far) = links(secured(near), SecuredStream { peer: None, ..secured(far) }).await;
        assert_eq!(*near.get_auth_id(), LinkAuthId::Tls(Some("nas".to_owned())));
        assert_eq!(*far.get_auth_id(), LinkAuthId::Tls(None));
        assert_ne!(near, far, "links with equal ends count as one");
    });
}

/// Counts how often it is dropped.
struct Counted(Arc<AtomicU32>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn stream_is_taken_once_and_its_guard_ends_with_it() {
    run(async {
        let ended = Arc::new(AtomicU32::new(0));
        let guarded =
            |stream| SecuredStream { guard: Box::new(Counted(Arc::clone(&ended))), ..secured(stream) };
        let manager = LinkManagerUnicastTls::new(channel().0);
        let (near, far) = connection().await;
        let unused = offer(guarded(near));
        let endpoint = unused.endpoint();
        drop(unused);
        assert_eq!(ended.load(Ordering::Relaxed), 1);
        let error = manager.new_link(endpoint.parse().unwrap()).await.unwrap_err().to_string();
        assert!(error.contains("no stream waits at"), "{error}");
        let offered = offer(guarded(far));
        let link = manager.new_link(offered.endpoint().parse().unwrap()).await.unwrap();
        assert!(manager.new_link(offered.endpoint().parse().unwrap()).await.is_err());
        drop(offered);
        assert_eq!(ended.load(Ordering::Relaxed), 1, "the link still uses it");
        drop(link);
        assert_eq!(ended.load(Ordering::Relaxed), 2);
        let (near, _far) = connection().await;
        let nobody = deliver(&Listener::default(), secured(near)).await.unwrap_err();
        assert_eq!(nobody.kind(), io::ErrorKind::NotConnected);
    });
}

#[test]
fn errors_are_reported_and_a_peer_that_reads_nothing_does_not_hold_up_the_end() {
    run(async {
        let (near, far) = connection().await;
        let (failed, errors) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (is_failed, seen) = (Arc::clone(&failed), Arc::clone(&errors));
        let on_error = move |error: &io::Error| {
            is_failed.store(true, Ordering::Relaxed);
            seen.lock().unwrap().push(error.kind());
        };
        let near = SecuredStream { on_error: Box::new(on_error), ..secured(near) };
        let (near, far) = links(near, secured(far)).await;
        // More than the buffers of both sockets hold, and never read.
        let writer = near.clone();
        let stuck = tokio::spawn(async move { writer.write_all(&vec![0; 64 << 20], None).await });
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!stuck.is_finished());
        timeout(Duration::from_secs(5), near.close()).await.expect("it closes").unwrap();
        assert!(!failed.load(Ordering::Relaxed));
        drop(far);
        assert!(stuck.await.unwrap().is_err());
        assert!(near.read_exact(&mut [0; 1], None).await.is_err());
        assert!(errors.lock().unwrap().len() >= 2, "{errors:?}");
    });
}
