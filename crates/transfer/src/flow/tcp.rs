//! TCP senders: `write`, large calls that copy from a block in the cache, and `splice`, references to pages
//! that a pipe holds. TCP receivers: `copy` reads into this program's memory, `discard` lets the kernel free
//! what came unread.

use sys::net::{Moved, NetError, Pipe, TcpSocket};
use sys::span::time;
use sys::thread::thread_cpu_ns;

use super::flow_state::FlowState;
use super::read_size::ReadSizeTuner;
use crate::driver::span_names::{RECV, RECV_TRUNCATED, SENDMSG, SPLICE, TEE, WaitSpan};
use crate::driver::{BLOCK_BYTES, EndReason, Mode, Step, block, broken, slices};

/// What one call is given unless the spec says: enough that the cost of the call itself does not matter.
pub(super) const CALL_BYTES: usize = 1 << 20;

/// What the pipes hold; a user may have as much (`/proc/sys/fs/pipe-max-size`, pipe(7)).
const PIPE_BYTES: usize = 1 << 20;

/// A sender. What it sends is one message over and over: the first bytes of the payload.
#[derive(Debug)]
pub(super) struct TcpSender {
    message_bytes: usize,
    /// How far into the message it is.
    at: usize,
    pipes: Option<Pipes>,
}

impl TcpSender {
    /// A sender of messages of `message_bytes`, which copies unless it has `pipes`.
    pub(super) fn new(message_bytes: usize, pipes: Option<Pipes>) -> Self {
        let message_bytes = if pipes.is_some() { message_bytes.min(PIPE_BYTES) } else { message_bytes };
        Self { message_bytes, at: 0, pipes }
    }

    pub(super) fn step(&mut self, socket: &TcpSocket, state: &mut FlowState) -> Step {
        let allowed = match state.allow(self.message_bytes - self.at) {
            Ok(allowed) => allowed,
            Err(step) => return step,
        };
        let moved = match &mut self.pipes {
            None => time(&SENDMSG, || write(socket, self.at, allowed)),
            Some(pipes) => pipes.send(socket, self.message_bytes, allowed),
        };
        match moved {
            Ok(Moved::Bytes(bytes)) => {
                self.at = (self.at + bytes) % self.message_bytes;
                state.add_bytes(bytes);
                Step::Moved
            }
            Ok(Moved::WouldBlock) => Step::Blocked,
            Ok(Moved::End) => Step::Over(EndReason::ByPeer),
            Err(error) => Step::Over(broken(&error, state.bytes)),
        }
    }
}

fn write(socket: &TcpSocket, at: usize, bytes: usize) -> Result<Moved, NetError> {
    let (slices, used) = slices(at, bytes);
    socket.send_all_of(&slices[..used])
}

/// References to payload, ready to be sent: `full` is filled once and only ever duplicated, `work` holds what
/// is about to leave.
#[derive(Debug)]
pub(super) struct Pipes {
    full: Pipe,
    work: Pipe,
    left: usize,
}

impl Pipes {
    /// Pipes full of payload.
    pub(super) fn new() -> Result<Self, NetError> {
        // Of each sender's own: several that count references to the same pages slow each other down. One
        // block over and over, so that the receiver's copy finds it in a cache.
        let (one, full) = (Pipe::new(BLOCK_BYTES)?, Pipe::new(PIPE_BYTES)?);
        whole(one.append(block())?, BLOCK_BYTES)?;
        for at in (0..PIPE_BYTES).step_by(BLOCK_BYTES) {
            let bytes = BLOCK_BYTES.min(PIPE_BYTES - at);
            whole(one.tee(&full, bytes)?, bytes)?;
        }
        Ok(Self { full, work: Pipe::new(PIPE_BYTES)?, left: 0 })
    }

    /// Sends up to `bytes` of what is left of a message of `message_bytes`, or of the next one.
    fn send(&mut self, socket: &TcpSocket, message_bytes: usize, bytes: usize) -> Result<Moved, NetError> {
        if self.left == 0 {
            // Always a whole message, however little of it may leave now: a duplicate begins where the
            // message does.
            self.left = time(&TEE, || self.full.tee(&self.work, message_bytes))?;
            whole(self.left, message_bytes)?;
        }
        let moved = time(&SPLICE, || self.work.splice_to(socket, self.left.min(bytes)))?;
        if let Moved::Bytes(bytes) = moved {
            self.left = self.left.saturating_sub(bytes);
        }
        Ok(moved)
    }
}

/// A pipe that holds less than it was asked to would begin its messages anew within them.
fn whole(bytes: usize, asked: usize) -> Result<(), NetError> {
    if bytes == asked {
        return Ok(());
    }
    let source = std::io::Error::other(format!("a pipe took {bytes} bytes of {asked}"));
    Err(NetError { action: "duplicate", target: "the payload".into(), source })
}

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
        let tuner = ReadSizeTuner::new(mode, size_bytes, is_one_of_few);
        Self { mode, tuner, lowat_bytes: 1, wait_span: WaitSpan::default() }
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
            Err(error) => return Step::Over(broken(&error, state.bytes)),
        };
        if bytes > 0 {
            state.add_bytes(bytes);
        }
        match self.adapt(socket, state, bytes) {
            Ok(()) => step,
            Err(error) => Step::Over(broken(&error, state.bytes)),
        }
    }

    /// Asks differently from now on, if that is better.
    fn adapt(&mut self, socket: &TcpSocket, state: &FlowState, came: usize) -> Result<(), NetError> {
        let margin = 2 * self.tuner.read_bytes_most() as u64;
        if state.left_bytes().is_some_and(|left| left < margin) {
            self.tuner.near_end();
        } else if came < self.lowat_bytes as usize {
            self.tuner.came_short(state.now_ns);
        } else {
            self.tuner.moved(state.bytes, state.now_ns, thread_cpu_ns);
        }
        let lowat_bytes = self.tuner.mode().lowat_bytes;
        if lowat_bytes != self.lowat_bytes {
            socket.set_receive_lowat(lowat_bytes)?;
            self.lowat_bytes = lowat_bytes;
        }
        Ok(())
    }
}
