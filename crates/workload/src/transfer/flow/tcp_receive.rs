//! TCP receivers: `copy` reads into this program's memory, `discard` lets the kernel free what came unread.

use sys::net::{Moved, NetError, TcpSocket};
use sys::thread::thread_cpu_ns;

use super::asking::Asking;
use super::calls::{RECV, RECV_TRUNCATED};
use super::course::{Course, Turn};
use super::order::{Ended, Mode};
use super::tcp_send::failed;
use super::vigil::Vigil;

/// A receiver.
#[derive(Debug)]
pub(super) struct TcpReceiver {
    mode: Mode,
    asking: Asking,
    /// The low-water mark that the socket has.
    lowat_bytes: u32,
    pub(super) vigil: Vigil,
}

impl TcpReceiver {
    /// A receiver that asks for `size_bytes` a call (0: as many as turns out best). `is_one_of_few`: so few flows share
    /// the host that it is worth finding out.
    pub(super) fn new(mode: Mode, size_bytes: usize, is_one_of_few: bool) -> Self {
        Self {
            mode,
            asking: Asking::new(mode, size_bytes, is_one_of_few),
            lowat_bytes: 1,
            vigil: Vigil::default(),
        }
    }

    /// The room that a call may need, bytes.
    pub(super) fn room_bytes(&self) -> usize {
        if self.mode == Mode::Copy { self.asking.read_bytes_most() } else { 0 }
    }

    pub(super) fn turn(&mut self, socket: &TcpSocket, course: &mut Course, room: &mut [u8]) -> Turn {
        let asked = self.asking.way().read_bytes;
        let allowed = match course.allow(asked) {
            Ok(allowed) => allowed,
            Err(turn) => return turn,
        };
        let came = |moved: &Result<Moved, NetError>| !matches!(moved, Ok(Moved::WouldBlock));
        let moved = match self.mode {
            Mode::Copy => {
                let fits = allowed.min(room.len());
                self.vigil.time(&RECV, || socket.recv_waiting(&mut room[..fits]), came)
            }
            Mode::Discard => self.vigil.time(&RECV_TRUNCATED, || socket.discard_waiting(allowed), came),
        };
        let (bytes, turn) = match moved {
            Ok(Moved::Bytes(bytes)) => (bytes, Turn::Moved),
            Ok(Moved::WouldBlock) => (0, Turn::Blocked),
            Ok(Moved::End) => return Turn::Over(Ended::ByPeer),
            Err(error) => return Turn::Over(failed(&error, course.bytes())),
        };
        if bytes > 0 {
            course.moved(bytes);
        }
        match self.adapt(socket, course, bytes) {
            Ok(()) => turn,
            Err(error) => Turn::Over(failed(&error, course.bytes())),
        }
    }

    /// Asks differently from now on, if that is better.
    fn adapt(&mut self, socket: &TcpSocket, course: &Course, came: usize) -> Result<(), NetError> {
        let margin = 2 * self.asking.read_bytes_most() as u64;
        if course.left_bytes().is_some_and(|left| left < margin) {
            self.asking.near_end();
        } else if came < self.lowat_bytes as usize {
            self.asking.came_short(course.now_ns());
        } else {
            self.asking.moved(course.bytes(), course.now_ns(), thread_cpu_ns);
        }
        let lowat_bytes = self.asking.way().lowat_bytes;
        if lowat_bytes != self.lowat_bytes {
            socket.set_receive_lowat(lowat_bytes)?;
            self.lowat_bytes = lowat_bytes;
        }
        Ok(())
    }
}
