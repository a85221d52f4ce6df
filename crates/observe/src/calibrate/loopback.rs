//! TCP throughput over this host's loopback: the ceiling of a server with players on the same host.

use std::fs::File;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base::format::plural;
use base::outcome::Ceiling;
use sys::clock::{Deadline, monotonic_ns};
use sys::file::{Directory, PendingFile};
use sys::net::{
    ConnectState, Epoll, Events, Interest, ListenOptions, Listener, Moved, NetError, SocketOptions, TcpSocket,
};

use super::CalibrateError;

/// Content that stays in the processor's cache: the ceiling is that of the network stack.
const FILE_BYTES: usize = 1 << 20;
const SEND_BYTES: usize = 128 << 10;
const DISCARD_BYTES: usize = 1 << 20;
/// Windows grow and caches fill before the count begins.
const WARM_UP: Duration = Duration::from_millis(100);
const COUNT_FOR: Duration = Duration::from_millis(350);
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
const WATCH_EVERY: Duration = Duration::from_millis(5);
/// A sender and a receiver for every two cores.
const PAIRS_MOST: usize = 16;
/// Connections of each pair of threads. The threads of one connection wait for each other; those of many find
/// more to do whenever they look, up to what the caches hold.
const CONNECTIONS: [usize; 4] = [1, 4, 16, 64];
const CONNECTIONS_MOST: usize = 256;
/// Further rounds with as many connections as moved the most.
const FURTHER_ROUNDS: usize = 2;

/// The ceiling of TCP over loopback in bit/s: the most of 6 times 350 ms with 1 to 64 connections for every
/// two cores, `sendfile` of 128 KiB to readers that discard (`MSG_TRUNC`); about 3 s. The most, because
/// others can only make it less. `directory` takes a file of 1 MiB, which is removed afterwards.
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
    let mut round = |each: usize| -> Result<(f64, usize), CalibrateError> {
        say(&format!("loopback: sending over {}", plural((pairs * each) as u64, "connection")));
        Ok((round_bit_per_s(content.file(), pairs, each, stopped)?, each))
    };
    let mut best = (0.0, CONNECTIONS[0]);
    for each in CONNECTIONS.into_iter().filter(|each| pairs * each <= CONNECTIONS_MOST) {
        best = most(best, round(each)?);
    }
    for _ in 0..FURTHER_ROUNDS {
        best = most(best, round(best.1)?);
    }
    let connections = plural((pairs * best.1) as u64, "connection");
    let source =
        format!("calibrated: the most of several times 0.35 s over loopback, {connections}, sendfile");
    Ok(Ceiling { value: best.0, source })
}

/// The round of the higher rate.
fn most(one: (f64, usize), other: (f64, usize)) -> (f64, usize) {
    if other.0 > one.0 { other } else { one }
}

/// What `pairs` of threads move over `each` connections.
fn round_bit_per_s(
    content: &File,
    pairs: usize,
    each: usize,
    stopped: &dyn Fn() -> bool,
) -> Result<f64, CalibrateError> {
    let group = || (0..each).map(|_| connected()).collect::<Result<(Vec<_>, Vec<_>), _>>();
    let groups = (0..pairs).map(|_| group()).collect::<Result<Vec<_>, _>>()?;
    let received = AtomicU64::new(0);
    let end = AtomicBool::new(false);
    let counted = std::thread::scope(|scope| {
        let mut threads = Vec::with_capacity(2 * pairs);
        for (senders, receivers) in &groups {
            threads.push(scope.spawn(|| ended(&end, send(senders, content, &end))));
            threads.push(scope.spawn(|| ended(&end, discard(receivers, &received, &end))));
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
    counted.ok_or_else(|| CalibrateError::NotMeasured("a connection ended before its time".into()))
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

fn send(sockets: &[TcpSocket], content: &File, end: &AtomicBool) -> Result<(), NetError> {
    let mut offsets = vec![0; sockets.len()];
    round_robin(sockets, Interest::WRITE, end, |index, socket| {
        let offset = offsets[index];
        let moved = socket.send_file(content.as_fd(), offset as u64, SEND_BYTES.min(FILE_BYTES - offset))?;
        if let Moved::Bytes(bytes) = moved {
            offsets[index] = (offset + bytes) % FILE_BYTES;
        }
        Ok(moved)
    })
}

fn discard(sockets: &[TcpSocket], received: &AtomicU64, end: &AtomicBool) -> Result<(), NetError> {
    round_robin(sockets, Interest::READ, end, |_, socket| {
        let moved = socket.recv_discard(DISCARD_BYTES)?;
        if let Moved::Bytes(bytes) = moved {
            received.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        Ok(moved)
    })
}

/// Moves bytes over each socket in turn, and waits when none has any to move; returns regularly to check for
/// the end.
fn round_robin(
    sockets: &[TcpSocket],
    interest: Interest,
    end: &AtomicBool,
    mut step: impl FnMut(usize, &TcpSocket) -> Result<Moved, NetError>,
) -> Result<(), NetError> {
    let epoll = Epoll::new()?;
    let mut events = Events::with_capacity(1);
    for socket in sockets {
        epoll.add(socket, 0, interest)?;
    }
    while !end.load(Ordering::Relaxed) {
        let mut has_moved = false;
        for (index, socket) in sockets.iter().enumerate() {
            match step(index, socket)? {
                Moved::Bytes(_) => has_moved = true,
                Moved::WouldBlock => {}
                Moved::End => return Ok(()),
            }
        }
        if !has_moved {
            epoll.wait(&mut events, Some(WATCH_EVERY))?;
        }
    }
    Ok(())
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
