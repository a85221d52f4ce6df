//! Servers that misbehave.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::SockRef;

#[derive(Debug, Clone)]
pub enum Manner {
    /// Sends this, whatever was asked for, and closes.
    Says(Vec<u8>),
    SaysAndResets(Vec<u8>),
    /// Accepts and says nothing.
    Silent,
    /// Serves a film and its index with ranges, but resets every answer of the film after this number of
    /// bytes.
    BreaksFilm {
        film: Vec<u8>,
        /// What lies beside it under the name that ends in `.kgi`.
        index: Vec<u8>,
        /// Bytes of a body before the reset.
        after_bytes: usize,
    },
}

/// A server that misbehaves on every connection, on a free port of loopback.
pub struct HostileServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl HostileServer {
    /// Start it. `make` gets the address, for answers that name it.
    pub fn start(make: impl FnOnce(SocketAddr) -> Manner) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a socket can be made not to block");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (manner, stop) = (make(address), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || serve(&listener, &manner, &stopped));
        Self { address, stop, thread: Some(thread) }
    }

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
    let asked = stream.read(&mut request).unwrap_or(0);
    match manner {
        Manner::Silent => return Some(stream),
        Manner::Says(bytes) => {
            let _ = stream.write_all(bytes);
            let _ = stream.shutdown(Shutdown::Both);
        }
        Manner::SaysAndResets(bytes) => {
            let _ = stream.write_all(bytes);
            reset(&stream);
        }
        Manner::BreaksFilm { film, index, after_bytes } => {
            let asked = String::from_utf8_lossy(&request[..asked]).into_owned();
            if asked.starts_with("GET /film.ts.kgi") {
                let _ = stream.write_all(&part(&asked, index));
            } else {
                let answer = part(&asked, film);
                let whole = answer.len() <= *after_bytes;
                // A reset throws away what was not received yet: with a small buffer little of it is under
                // way.
                let _ = SockRef::from(&stream).set_send_buffer_size(32 * 1024);
                let _ = stream.write_all(&answer[..answer.len().min(*after_bytes)]);
                if !whole {
                    reset(&stream);
                }
            }
        }
    }
    None
}

/// Closing with a linger time of zero resets (SO_LINGER in socket(7)).
fn reset(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

/// The answer to a request for a range (RFC 9110, section 14) of `whole`.
fn part(request: &str, whole: &[u8]) -> Vec<u8> {
    let range = request
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("range: bytes=").map(str::to_owned));
    let (from, to) = range.as_deref().and_then(|range| range.trim().split_once('-')).unwrap_or(("0", ""));
    let from = from.parse().unwrap_or(0).min(whole.len());
    let to = to.parse::<usize>().map_or(whole.len(), |last| (last + 1).min(whole.len()));
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\nContent-Range: bytes {from}-{}/{}\r\n\
         Connection: close\r\n\r\n",
        to - from,
        to.max(1) - 1,
        whole.len()
    );
    [head.as_bytes(), &whole[from..to]].concat()
}
