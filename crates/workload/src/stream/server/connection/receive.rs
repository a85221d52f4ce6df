//! The receiving half: request heads and uploads.

use sys::net::Moved;

use super::super::request::{self, Framing, Method, Parsed, Quoted, Refusal, Request};
use super::super::response::Response;
use super::super::stats::add;
use super::super::upload::Upload;
use super::{Bench, Connection, Next, Phase, Serving};

impl Connection {
    pub(super) fn step_head(&mut self, bench: &mut Bench<'_>) -> Next {
        loop {
            if !self.received.is_empty()
                && let Some(next) = self.parse(bench)
            {
                return next;
            }
            if !self.readable {
                return Next::Wait;
            }
            let room = bench.header_bytes_max.saturating_sub(self.received.len()).min(bench.scratch.len());
            match self.socket.recv(&mut bench.scratch[..room]) {
                Ok(Moved::Bytes(n)) => {
                    if self.received.is_empty() {
                        self.since_ns = bench.now_ns;
                    }
                    self.readable = n == room || self.peer_done;
                    self.received.extend_from_slice(&bench.scratch[..n]);
                }
                Ok(Moved::WouldBlock) => {
                    self.readable = false;
                    return Next::Wait;
                }
                Ok(Moved::End) | Err(_) => {
                    self.log_unfinished(bench, 400, "client left before its request was complete");
                    return Next::Close;
                }
            }
        }
    }

    /// Looks for a request in what was received. `None`: more is needed and there is room for it.
    pub(super) fn parse(&mut self, bench: &mut Bench<'_>) -> Option<Next> {
        let empty = request::leading_empty(&self.received);
        if empty > 0 {
            self.received.drain(..empty);
            self.searched = 0;
            self.received.first()?;
        }
        let full = self.received.len() >= bench.header_bytes_max;
        let parsed = match request::head_end(&self.received, self.searched) {
            Some(_) => request::parse(&self.received, bench.headers_max),
            None if full && !self.received.contains(&b'\n') => {
                request::refuse(414, "the request line is too long", &self.received)
            }
            None if full => request::refuse(431, "the request head is too long", &self.received),
            None if !self.received[0].is_ascii_alphabetic() => {
                request::refuse(400, "malformed request", &self.received)
            }
            None => Parsed::Incomplete,
        };
        self.searched = self.received.len();
        match parsed {
            Parsed::Incomplete if full => Some(self.refuse(
                bench,
                Refusal { status: 400, reason: "malformed request", quoted: Quoted::default() },
            )),
            Parsed::Incomplete => None,
            Parsed::Refused(refusal) => Some(self.refuse(bench, *refusal)),
            Parsed::Complete(request, len) => {
                self.received.drain(..len);
                self.searched = 0;
                Some(self.serve(bench, *request))
            }
        }
    }

    pub(super) fn serve(&mut self, bench: &mut Bench<'_>, mut request: Request) -> Next {
        let quoted = std::mem::take(&mut request.quoted);
        self.serving = Serving { quoted, keep_alive: request.keep_alive, ..Serving::default() };
        self.progress_ns = bench.now_ns;
        self.deadline_stale = true;
        if request.method != Method::Put {
            let mut response = bench.site.answer(&request);
            // Content nobody asked for is not read: what follows it could be anything.
            response.close |= !matches!(request.framing, Framing::None | Framing::Length(0));
            return self.respond(bench, response, request.method == Method::Head);
        }
        match Upload::begin(bench.site, &request, bench.upload_bytes_max) {
            Err(response) => self.respond(bench, response.closing(), false),
            Ok(upload) => {
                if request.expects_continue && self.received.is_empty() && !upload.is_complete() {
                    self.out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                }
                self.phase = Phase::Upload(Box::new(upload));
                Next::Again
            }
        }
    }

    pub(super) fn refuse(&mut self, bench: &mut Bench<'_>, refusal: Refusal) -> Next {
        self.serving = Serving { quoted: refusal.quoted, ..Serving::default() };
        let mut response = Response::refusal(refusal.status, refusal.reason).closing();
        if refusal.status == 405 {
            response = response.with("Allow", bench.site.allowed());
        }
        self.respond(bench, response, false)
    }

    pub(super) fn step_upload(&mut self, bench: &mut Bench<'_>) -> Next {
        if let Some(next) = self.flush(bench.counters, bench.now_ns, false) {
            return next;
        }
        let Phase::Upload(upload) = &mut self.phase else { return Next::Again };
        let before = upload.written_bytes();
        let mut taken = Ok(0);
        let mut ended = false;
        if !self.received.is_empty() {
            taken = upload.take(&self.received).map(|n| drop(self.received.drain(..n))).map(|()| 0);
        } else if !upload.is_complete() {
            let ask = upload.wants_bytes(bench.header_bytes_max).min(bench.scratch.len());
            match self.socket.recv(&mut bench.scratch[..ask]) {
                Ok(Moved::Bytes(n)) => {
                    taken = upload.take(&bench.scratch[..n]);
                    if let Ok(used) = taken {
                        self.received.extend_from_slice(&bench.scratch[used..n]);
                    }
                }
                Ok(Moved::WouldBlock) => {
                    self.readable = false;
                    return Next::Wait;
                }
                Ok(Moved::End) | Err(_) => ended = true,
            }
        }
        let stored = upload.written_bytes() - before;
        add(&bench.counters.uploaded_bytes, stored);
        self.progress_ns = bench.now_ns;
        match taken {
            Err(response) => self.respond(bench, response.closing(), false),
            Ok(_) if upload.is_complete() => {
                // Cannot be another phase: it was matched above.
                let Phase::Upload(upload) = std::mem::replace(&mut self.phase, Phase::Head) else {
                    return Next::Close;
                };
                let response = upload.finish();
                self.respond(bench, response, false)
            }
            Ok(_) if ended => {
                self.serving.status = 400;
                self.serving.reason = Some("client left before its upload was complete");
                self.log_answer(bench);
                Next::Close
            }
            Ok(_) => Next::Again,
        }
    }
}
