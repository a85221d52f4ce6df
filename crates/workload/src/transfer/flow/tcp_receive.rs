//! TCP receivers: `copy` reads into this program's memory, `discard` lets the kernel free what came unread.

use sys::net::{Moved, NetError, TcpSocket};

use super::course::{Course, Turn};
use super::order::{Ended, Mode};
use super::tcp_send::failed;

/// What a receiver asks for in one call unless the order says: it grows while calls come back full, as a larger read
/// takes more of what a fast sender queues, and a smaller buffer stays in the core's own cache.
const READ_BYTES_LEAST: usize = 128 << 10;
pub(super) const READ_BYTES_MOST: usize = 1 << 20;
/// So many full reads in a row make the next one larger.
const FULL_READS: u32 = 8;

/// What wakes a discarding receiver that has few others beside it (`SO_RCVLOWAT`): a wake-up is the dearest part of
/// receiving without a copy.
const LOWAT_BYTES: u32 = 1 << 20;
/// It is set once so much came within [`LOWAT_WITHIN_NS`]: on a slower path it would only make the counts late.
const LOWAT_AFTER_BYTES: u64 = 16 << 20;
const LOWAT_WITHIN_NS: u64 = 20_000_000;

/// A receiver.
#[derive(Debug)]
pub(super) struct TcpReceiver {
    mode: Mode,
    read_bytes: usize,
    read_bytes_most: usize,
    full_reads: u32,
    lowat: Lowat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lowat {
    /// Not to be used.
    Off,
    /// Used when the path turns out to be fast: what had come at some moment.
    Watching { bytes: u64, at_ns: u64 },
    /// Set.
    On,
}

impl TcpReceiver {
    /// A receiver that asks for `size_bytes` a call (0: as many as is cheapest). `is_one_of_few`: so few flows share
    /// the host that each is worth waking up rarely.
    pub(super) fn new(mode: Mode, size_bytes: usize, is_one_of_few: bool) -> Self {
        let chosen = if mode == Mode::Discard {
            (READ_BYTES_MOST, READ_BYTES_MOST)
        } else {
            (READ_BYTES_LEAST, READ_BYTES_MOST)
        };
        let (read_bytes, read_bytes_most) = if size_bytes == 0 { chosen } else { (size_bytes, size_bytes) };
        let is_rare = is_one_of_few && mode == Mode::Discard && size_bytes == 0;
        let lowat = if is_rare { Lowat::Watching { bytes: 0, at_ns: 0 } } else { Lowat::Off };
        Self { mode, read_bytes, read_bytes_most, full_reads: 0, lowat }
    }

    /// The room that a call may need, bytes.
    pub(super) fn room_bytes(&self) -> usize {
        if self.mode == Mode::Copy { self.read_bytes_most } else { 0 }
    }

    pub(super) fn turn(&mut self, socket: &TcpSocket, course: &mut Course, room: &mut [u8]) -> Turn {
        let allowed = match course.allow(self.read_bytes) {
            Ok(allowed) => allowed,
            Err(turn) => return turn,
        };
        let moved = match self.mode {
            Mode::Copy => {
                let fits = allowed.min(room.len());
                socket.recv_waiting(&mut room[..fits])
            }
            Mode::Discard => socket.discard_waiting(allowed),
        };
        match moved {
            Ok(Moved::Bytes(bytes)) => {
                course.moved(bytes);
                self.adapt(bytes);
                match self.watch(socket, course, bytes) {
                    Ok(()) => Turn::Moved,
                    Err(error) => Turn::Over(failed(&error, course.bytes())),
                }
            }
            Ok(Moved::WouldBlock) => match self.set_lowat(socket, false) {
                Ok(()) => Turn::Blocked,
                Err(error) => Turn::Over(failed(&error, course.bytes())),
            },
            Ok(Moved::End) => Turn::Over(Ended::ByPeer),
            Err(error) => Turn::Over(failed(&error, course.bytes())),
        }
    }

    fn adapt(&mut self, bytes: usize) {
        self.full_reads = if bytes == self.read_bytes { self.full_reads + 1 } else { 0 };
        if self.full_reads >= FULL_READS && self.read_bytes < self.read_bytes_most {
            self.read_bytes = (self.read_bytes * 2).min(self.read_bytes_most);
            self.full_reads = 0;
        }
    }

    /// Sets the low-water mark on a fast path, and takes it away when less came in time, and before the end: what is left
    /// then may be less than the mark, and nothing would wake the receiver.
    fn watch(&mut self, socket: &TcpSocket, course: &Course, came: usize) -> Result<(), NetError> {
        let is_near_end = course.left_bytes().is_some_and(|left| left < 2 * u64::from(LOWAT_BYTES));
        match self.lowat {
            Lowat::Off => Ok(()),
            Lowat::On if is_near_end => {
                self.set_lowat(socket, false)?;
                self.lowat = Lowat::Off;
                Ok(())
            }
            Lowat::On if came < LOWAT_BYTES as usize => self.set_lowat(socket, false),
            Lowat::On => Ok(()),
            Lowat::Watching { bytes, at_ns } => {
                let since = Lowat::Watching { bytes: course.bytes(), at_ns: course.now_ns() };
                if course.now_ns() - at_ns > LOWAT_WITHIN_NS {
                    self.lowat = since;
                } else if course.bytes() - bytes >= LOWAT_AFTER_BYTES && !is_near_end {
                    self.set_lowat(socket, true)?;
                }
                Ok(())
            }
        }
    }

    fn set_lowat(&mut self, socket: &TcpSocket, on: bool) -> Result<(), NetError> {
        if on != (self.lowat == Lowat::On) {
            socket.set_receive_lowat(if on { LOWAT_BYTES } else { 1 })?;
            self.lowat = if on { Lowat::On } else { Lowat::Watching { bytes: 0, at_ns: 0 } };
        }
        Ok(())
    }
}
