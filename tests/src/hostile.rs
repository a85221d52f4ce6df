//! Servers that misbehave.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::SockRef;

/// How a server misbehaves.
#[derive(Debug, Clone)]
pub enum Manner {
    /// Sends this, whatever was asked for, and closes.
    Says(Vec<u8>),
    /// Sends this and resets the connection.
    SaysAndResets(Vec<u8>),
    /// Accepts and says nothing.
    Silent,
}

/// A server that misbehaves on every connection, on a free port of loopback.
pub struct HostileServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl HostileServer {
    /// Start it. `make` is told the address, for answers that name it.
    pub fn start(make: impl FnOnce(SocketAddr) -> Manner) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a socket can be made not to block");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (manner, stop) = (make(address), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || serve(&listener, &manner, &stopped));
        Self { address, stop, thread: Some(thread) }
    }

    /// Where it misbehaves.
    pub fn url(&self) -> String {
        format!("http://{}/film.ts", self.address)
    }
}

impl Drop for HostileServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, manner: &Manner, stop: &AtomicBool) {
    let mut kept = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) => kept.extend(answer(stream, manner)),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Answer one connection; it is returned where it is to stay open.
fn answer(mut stream: TcpStream, manner: &Manner) -> Option<TcpStream> {
    let _ = stream.set_nonblocking(false);
    let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
    let mut request = [0; 4096];
    let _ = stream.read(&mut request);
    match manner {
        Manner::Silent => return Some(stream),
        Manner::Says(bytes) => {
            let _ = stream.write_all(bytes);
            let _ = stream.shutdown(Shutdown::Both);
        }
        Manner::SaysAndResets(bytes) => {
            let _ = stream.write_all(bytes);
            // Closing with a linger time of zero resets (tcp(7), SO_LINGER in socket(7)).
            let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        }
    }
    None
}
