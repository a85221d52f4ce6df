//! The sending half: heads, files, and the end.

use std::os::fd::AsFd;

use sys::net::Moved;

use super::super::response::{Content, Response};
use super::super::stats::{Counters, add};
use super::{Bench, Connection, Next, Outgoing, Phase};

/// Bytes read and dropped at most after an error answer, so that the peer can read it before the reset.
const LINGER_BYTES_MAX: u64 = 16 << 20;

impl Connection {
    pub(super) fn respond(&mut self, bench: &mut Bench<'_>, response: Response, head_only: bool) -> Next {
        self.serving.keep_alive &= !response.close;
        self.serving.status = response.status;
        self.serving.reason = response.reason;
        self.deadline_stale = true;
        self.progress_ns = bench.now_ns;
        self.out.clear();
        self.out_sent = 0;
        response.write_head(&mut self.out, bench.date, self.serving.keep_alive);
        self.serving.head_bytes = self.out.len() as u64;
        let mut outgoing = Outgoing { file: None, offset_bytes: 0, left_bytes: 0 };
        match response.content {
            _ if head_only => {}
            Content::None => {}
            Content::Bytes(bytes) => self.out.extend_from_slice(&bytes),
            Content::File { file, offset_bytes, len_bytes } => {
                add(&bench.counters.streams, 1);
                if len_bytes > bench.slice_bytes as u64 {
                    // The slices are sent as one run of full segments. A socket that refuses only sends smaller ones.
                    self.corked = self.socket.set_cork(true).is_ok();
                }
                outgoing = Outgoing { file: Some(file), offset_bytes, left_bytes: len_bytes };
            }
        }
        add(&bench.counters.requests, 1);
        add(&bench.counters.refused, u64::from(response.status >= 400));
        self.phase = Phase::Respond(outgoing);
        self.step_respond(bench)
    }

    /// Sends `out`. `Some`: it is not all out yet.
    pub(super) fn flush(&mut self, counters: &Counters, now_ns: u64, more: bool) -> Option<Next> {
        while self.out_sent < self.out.len() {
            match self.socket.send(&self.out[self.out_sent..], more) {
                Ok(Moved::Bytes(n)) => {
                    self.out_sent += n;
                    self.serving.sent_bytes += n as u64;
                    self.progress_ns = now_ns;
                    add(&counters.sent_bytes, n as u64);
                }
                Ok(Moved::WouldBlock) => return Some(Next::Wait),
                Ok(Moved::End) | Err(_) => {
                    self.serving.reason = Some("client left before the answer was sent");
                    return Some(Next::Close);
                }
            }
        }
        if self.out_sent > 0 {
            // Give the memory back: a stream sends its head once and then files for minutes.
            self.out = Vec::new();
            self.out_sent = 0;
        }
        None
    }

    /// The hot path: for an established stream one `sendfile` and nothing else.
    pub(super) fn step_respond(&mut self, bench: &mut Bench<'_>) -> Next {
        let Phase::Respond(Outgoing { left_bytes, .. }) = self.phase else { return Next::Again };
        if let Some(next) = self.flush(bench.counters, bench.now_ns, left_bytes > 0) {
            return next;
        }
        let Phase::Respond(outgoing) = &mut self.phase else { return Next::Again };
        let Some(file) = outgoing.file.as_ref().filter(|_| outgoing.left_bytes > 0) else {
            return self.answered(bench);
        };
        let ask = usize::try_from(outgoing.left_bytes).unwrap_or(usize::MAX).min(bench.slice_bytes);
        match self.socket.send_file(file.as_fd(), outgoing.offset_bytes, ask) {
            Ok(Moved::Bytes(n)) => {
                outgoing.offset_bytes += n as u64;
                outgoing.left_bytes -= n as u64;
                self.serving.sent_bytes += n as u64;
                self.progress_ns = bench.now_ns;
                add(&bench.counters.sent_bytes, n as u64);
                bench.cost.burn(n);
                match outgoing.left_bytes {
                    0 => self.answered(bench),
                    // Less than asked for: the socket is full, and the kernel has noted that its room is waited
                    // for. (If it was the file that ended, the stall check finds out.)
                    _ if n < ask => Next::Wait,
                    _ => Next::Again,
                }
            }
            Ok(Moved::WouldBlock) => Next::Wait,
            Ok(Moved::End) => {
                self.serving.reason = Some("the file became shorter while it was sent");
                Next::Close
            }
            Err(e) => {
                let gone = "client left before the answer was sent";
                self.serving.reason = Some(if e.is_peer_gone() { gone } else { "the file cannot be read" });
                Next::Close
            }
        }
    }

    /// The answer is out: log it, and go on with the next request or the end.
    pub(super) fn answered(&mut self, bench: &mut Bench<'_>) -> Next {
        if std::mem::take(&mut self.corked) {
            // The last segment must not wait for more. Fails only when the peer is gone, which the next call tells.
            let _ = self.socket.set_cork(false);
        }
        self.log_answer(bench);
        self.answered += 1;
        self.deadline_stale = true;
        self.since_ns = bench.now_ns;
        if self.serving.keep_alive {
            self.phase = Phase::Head;
            return if self.readable || !self.received.is_empty() { Next::Again } else { Next::Wait };
        }
        if self.socket.shutdown_send().is_err() {
            return Next::Close;
        }
        self.received = Vec::new();
        self.phase = Phase::Linger(0);
        self.readable = true;
        Next::Again
    }

    pub(super) fn step_linger(&mut self) -> Next {
        let Phase::Linger(dropped) = &mut self.phase else { return Next::Close };
        match self.socket.recv_discard(1 << 20) {
            Ok(Moved::Bytes(n)) if *dropped + (n as u64) < LINGER_BYTES_MAX => {
                *dropped += n as u64;
                Next::Again
            }
            Ok(Moved::WouldBlock) => Next::Wait,
            _ => Next::Close,
        }
    }
}
