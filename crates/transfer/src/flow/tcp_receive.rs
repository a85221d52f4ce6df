//! TCP receivers: `copy` reads into this program's memory, `discard` lets the kernel free what came unread.

use sys::net::{Moved, NetError, TcpSocket};
use sys::thread::thread_cpu_ns;

use super::flow_state::FlowState;
use super::read_size::ReadSizeTuner;
use crate::driver::span_names::{RECV, RECV_TRUNCATED, WaitSpan};
use crate::driver::{EndReason, Mode, Step, broken};

#[derive(Debug)]
pub(super) struct TcpReceiver {
    mode: Mode,
    tuner: ReadSizeTuner,
    lowat_bytes: u32,
    pub(super) wait_span: WaitSpan,
}

impl TcpReceiver {
    /// A receiver that asks for `size_bytes` a call (0: as many as turns out best). `is_one_of_few`: so few
    /// flows share the host that it is worth finding out.
    pub(super) fn new(mode: Mode, size_bytes: usize, is_one_of_few: bool) -> Self {
        Self {
            mode,
            tuner: ReadSizeTuner::new(mode, size_bytes, is_one_of_few),
            lowat_bytes: 1,
            wait_span: WaitSpan::default(),
        }
    }

    /// The largest buffer that a call may need, bytes.
    pub(super) fn buffer_bytes(&self) -> usize {
        if self.mode == Mode::Copy { self.tuner.read_bytes_most() } else { 0 }
    }

    pub(super) fn step(&mut self, socket: &TcpSocket, state: &mut FlowState, buffer: &mut [u8]) -> Step {
        let asked = self.tuner.mode().read_bytes;
        let allowed = match state.allow(asked) {
            Ok(allowed) => allowed,
            Err(step) => return step,
        };
        let came = |moved: &Result<Moved, NetError>| !matches!(moved, Ok(Moved::WouldBlock));
        let moved = match self.mode {
            Mode::Copy => {
                let fits = allowed.min(buffer.len());
                self.wait_span.time(&RECV, || socket.recv_waiting(&mut buffer[..fits]), came)
            }
            Mode::Discard => self.wait_span.time(&RECV_TRUNCATED, || socket.discard_waiting(allowed), came),
        };
        let (bytes, step) = match moved {
            Ok(Moved::Bytes(bytes)) => (bytes, Step::Moved),
            Ok(Moved::WouldBlock) => (0, Step::Blocked),
            Ok(Moved::End) => return Step::Over(EndReason::ByPeer),
            Err(error) => return Step::Over(broken(&error, state.bytes())),
        };
        if bytes > 0 {
            state.add_bytes(bytes);
        }
        match self.adapt(socket, state, bytes) {
            Ok(()) => step,
            Err(error) => Step::Over(broken(&error, state.bytes())),
        }
    }

    /// Asks differently from now on, if that is better.
    fn adapt(&mut self, socket: &TcpSocket, state: &FlowState, came: usize) -> Result<(), NetError> {
        let margin = 2 * self.tuner.read_bytes_most() as u64;
        if state.left_bytes().is_some_and(|left| left < margin) {
            self.tuner.near_end();
        } else if came < self.lowat_bytes as usize {
            self.tuner.came_short(state.now_ns());
        } else {
            self.tuner.moved(state.bytes(), state.now_ns(), thread_cpu_ns);
        }
        let lowat_bytes = self.tuner.mode().lowat_bytes;
        if lowat_bytes != self.lowat_bytes {
            socket.set_receive_lowat(lowat_bytes)?;
            self.lowat_bytes = lowat_bytes;
        }
        Ok(())
    }
}
