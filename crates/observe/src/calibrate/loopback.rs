//! TCP throughput over this host's loopback: the ceiling of a server with players on the same host.

use std::fs::File;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base::outcome::Ceiling;
use base::statistics::median;
use sys::clock::{Deadline, monotonic_ns};
use sys::file::{Directory, PendingFile};
use sys::net::{
    ConnectState, Epoll, Events, Interest, ListenOptions, Listener, Moved, NetError, SocketOptions, TcpSocket,
};

use super::{CalibrateError, REPEATS, spread_percent};

/// Content that stays in the processor's cache: the ceiling is that of the network stack.
const FILE_BYTES: usize = 1 << 20;
const SEND_BYTES: usize = 128 << 10;
const DISCARD_BYTES: usize = 1 << 20;
/// Windows grow and caches fill before the count begins.
const WARM_UP: Duration = Duration::from_millis(200);
const COUNT_FOR: Duration = Duration::from_secs(1);
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
const WATCH_EVERY: Duration = Duration::from_millis(5);
const PAIRS_MOST: usize = 16;

/// The ceiling of TCP over loopback in bit/s: the median of 3 times 1 s, a connection for every two cores,
/// `sendfile` of 128 KiB to readers that discard (`MSG_TRUNC`). `directory` takes a file of 1 MiB, which is
/// removed afterwards.
/// Errors: No file in `directory`, no sockets, or `stopped` said so.
pub fn loopback(
    directory: &Path,
    say: &mut dyn FnMut(&str),
    stopped: &dyn Fn() -> bool,
) -> Result<Ceiling, CalibrateError> {
    let failed = |source: io::Error| CalibrateError::File {
        action: "write a file in",
        path: directory.display().to_string(),
        source,
    };
    let content = PendingFile::create(Directory::open(directory)?).map_err(failed)?;
    let mut file = content.file();
    file.write_all(&vec![0x47; FILE_BYTES]).map_err(failed)?;
    let cores = sys::thread::online_cpus().map_or(1, |cpus| cpus.len());
    let pairs = (cores / 2).clamp(1, PAIRS_MOST);
    let mut rates = Vec::with_capacity(REPEATS);
    for round in 1..=REPEATS {
        say(&format!("loopback: sending for {} s, {round} of {REPEATS}", COUNT_FOR.as_secs()));
        rates.push(round_bit_per_s(content.file(), pairs, stopped)?);
    }
    let value = median(&rates).expect("REPEATS is not 0");
    let spread = spread_percent(&rates);
    let connections = if pairs == 1 { "1 connection".to_owned() } else { format!("{pairs} connections") };
    let source =
        format!("calibrated: median of 3 x 1 s over loopback, {connections}, sendfile, spread {spread:.0} %");
    Ok(Ceiling { value, source })
}

fn round_bit_per_s(content: &File, pairs: usize, stopped: &dyn Fn() -> bool) -> Result<f64, CalibrateError> {
    let sockets = (0..pairs).map(|_| connected()).collect::<Result<Vec<_>, _>>()?;
    let received = AtomicU64::new(0);
    let end = AtomicBool::new(false);
    let counted = std::thread::scope(|scope| {
        let mut threads = Vec::with_capacity(2 * pairs);
        for (sender, receiver) in &sockets {
            threads.push(scope.spawn(|| ended(&end, send(sender, content, &end))));
            threads.push(scope.spawn(|| ended(&end, discard(receiver, &received, &end))));
        }
        let counted = count(&received, &end, stopped);
        end.store(true, Ordering::Relaxed);
        for thread in threads {
            match thread.join() {
                Ok(result) => result?,
                Err(_) => {
                    return Err(CalibrateError::NotMeasured("a thread died; please report this".into()));
                }
            }
        }
        Ok(counted)
    })?;
    if stopped() {
        return Err(CalibrateError::Stopped);
    }
    counted.ok_or_else(|| CalibrateError::NotMeasured("the connection ended before its time".into()))
}

/// Received rate after the warm-up; `None` if it was stopped before.
fn count(received: &AtomicU64, end: &AtomicBool, stopped: &dyn Fn() -> bool) -> Option<f64> {
    let wait = |within| {
        let deadline = Deadline::after(within);
        while !stopped() && !end.load(Ordering::Relaxed) && deadline.pause(WATCH_EVERY) {}
        deadline.passed().then_some(())
    };
    wait(WARM_UP)?;
    let (from_bytes, from_ns) = (received.load(Ordering::Relaxed), monotonic_ns());
    wait(COUNT_FOR)?;
    let (to_bytes, to_ns) = (received.load(Ordering::Relaxed), monotonic_ns());
    let elapsed_ns = to_ns.saturating_sub(from_ns).max(1);
    Some((to_bytes - from_bytes) as f64 * 8e9 / elapsed_ns as f64)
}

/// A thread that fails ends the others too, so that they do not wait for it.
fn ended(end: &AtomicBool, result: Result<(), NetError>) -> Result<(), NetError> {
    if result.is_err() {
        end.store(true, Ordering::Relaxed);
    }
    result
}

fn connected() -> Result<(TcpSocket, TcpSocket), CalibrateError> {
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = Listener::bind(here, &ListenOptions::default())?;
    let sender = TcpSocket::connect_start(listener.local_addr(), None, &SocketOptions::default())?;
    let epoll = Epoll::new()?;
    let mut events = Events::with_capacity(1);
    epoll.add(&listener, 0, Interest::READ)?;
    let deadline = Deadline::after(CONNECT_WITHIN);
    let own = sender.local_addr()?;
    while !deadline.passed() {
        epoll.wait(&mut events, Some(deadline.left()))?;
        if let Some((receiver, peer)) = listener.accept()?
            && peer == own
            && sender.connect_result()? == ConnectState::Connected
        {
            return Ok((sender, receiver));
        }
    }
    let within = CONNECT_WITHIN.as_secs();
    Err(CalibrateError::NotMeasured(format!("no connection over loopback within {within} s; is `lo` up?")))
}

fn send(socket: &TcpSocket, content: &File, end: &AtomicBool) -> Result<(), NetError> {
    let mut ready = Ready::of(socket, Interest::WRITE)?;
    let mut offset = 0;
    while !end.load(Ordering::Relaxed) {
        match socket.send_file(content.as_fd(), offset as u64, SEND_BYTES.min(FILE_BYTES - offset))? {
            Moved::Bytes(bytes) => offset = (offset + bytes) % FILE_BYTES,
            Moved::WouldBlock => ready.wait()?,
            Moved::End => break,
        }
    }
    Ok(())
}

fn discard(socket: &TcpSocket, received: &AtomicU64, end: &AtomicBool) -> Result<(), NetError> {
    let mut ready = Ready::of(socket, Interest::READ)?;
    while !end.load(Ordering::Relaxed) {
        match socket.recv_discard(DISCARD_BYTES)? {
            Moved::Bytes(bytes) => {
                received.fetch_add(bytes as u64, Ordering::Relaxed);
            }
            Moved::WouldBlock => ready.wait()?,
            Moved::End => break,
        }
    }
    Ok(())
}

/// Waits for one socket, and returns regularly so that the caller checks for the end.
struct Ready {
    epoll: Epoll,
    events: Events,
}

impl Ready {
    fn of(socket: &TcpSocket, interest: Interest) -> Result<Self, NetError> {
        let epoll = Epoll::new()?;
        epoll.add(socket, 0, interest)?;
        Ok(Self { epoll, events: Events::with_capacity(1) })
    }

    fn wait(&mut self) -> Result<(), NetError> {
        self.epoll.wait(&mut self.events, Some(WATCH_EVERY)).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_belong_to_one_connection() {
        let (sender, receiver) = connected().unwrap();
        assert_eq!(sender.local_addr().unwrap(), receiver.peer_addr().unwrap());
        assert_eq!(sender.send(b"x", false).unwrap(), Moved::Bytes(1));
    }

    #[test]
    fn calibration_stops_on_request() {
        let directory = tempfile::tempdir().unwrap();
        let error = loopback(directory.path(), &mut |_| {}, &|| true).unwrap_err();
        assert!(matches!(error, CalibrateError::Stopped), "{error}");
    }
}
