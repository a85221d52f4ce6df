//! A connection: a state machine that is driven one step at a time.

use std::net::SocketAddr;

use sys::net::{Moved, TcpSocket};

use super::context::{Timeout, WorkerContext};
use super::log::Entry;
use super::request::{Framing, LoggedFields, Method, Refusal, Request};
use super::request_reader::{Received, RequestReader};
use super::response::Response;
use super::response_writer::{ResponseWriter, SendState, Sent};
use super::stats::add;
use super::upload::Upload;

/// Bytes read and dropped at most after an error response, so that the peer can read it before the reset.
const LINGER_BYTES_MAX: u64 = 16 << 20;
/// A browser sends it for a page of another site whose name now leads to this host (DNS rebinding).
const OTHER_HOST: &str = "on loopback, Host is an address, localhost or a name without a dot";

/// What a connection needs after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Wait for an event of its socket.
    Wait,
    /// It could go on at once, after the others.
    Again,
    Close,
}

#[derive(Debug)]
enum Phase {
    /// Reading a request head.
    Head,
    Upload(Box<Upload>),
    Respond,
    /// The response is sent; reading until the peer closes. How many bytes were dropped.
    Linger(u64),
}

#[derive(Debug, Default)]
struct RequestLog {
    logged: LoggedFields,
    status: u16,
    head_bytes: u64,
    sent_bytes: u64,
    keep_alive: bool,
    reason: Option<&'static str>,
}

#[derive(Debug)]
pub struct Connection {
    socket: TcpSocket,
    peer: SocketAddr,
    phase: Phase,
    reader: RequestReader,
    writer: ResponseWriter,
    request_log: RequestLog,
    /// When the current request's first byte came, or the connection.
    since_ns: u64,
    responses: u64,
    progress_ns: u64,
    restart_timeout: bool,
}

impl Connection {
    pub fn new(socket: TcpSocket, peer: SocketAddr, now_ns: u64) -> Self {
        Self {
            socket,
            peer,
            phase: Phase::Head,
            reader: RequestReader::new(),
            writer: ResponseWriter::default(),
            request_log: RequestLog::default(),
            since_ns: now_ns,
            responses: 0,
            progress_ns: now_ns,
            restart_timeout: true,
        }
    }

    pub fn socket(&self) -> &TcpSocket {
        &self.socket
    }

    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// An event reported bytes to read, and whether the peer has closed after them.
    pub fn set_readable(&mut self, peer_done: bool) {
        self.reader.set_readable(peer_done);
    }

    /// When bytes of a response or an upload last moved.
    pub fn progress_ns(&self) -> u64 {
        self.progress_ns
    }

    /// How many bytes of an upload have come; `None`: there is none under way.
    pub fn upload_bytes(&self) -> Option<u64> {
        match &self.phase {
            Phase::Upload(upload) => Some(upload.written_bytes()),
            _ => None,
        }
    }

    /// When the current request's first byte came.
    pub fn since_ns(&self) -> u64 {
        self.since_ns
    }

    pub fn timeout(&self) -> Timeout {
        match self.phase {
            Phase::Head if self.responses > 0 && self.reader.bytes().is_empty() => Timeout::Idle,
            Phase::Head => Timeout::Head,
            Phase::Upload(_) | Phase::Respond => Timeout::Stall,
            Phase::Linger(_) => Timeout::Linger,
        }
    }

    /// Whether the timeout starts anew even if it is the same; clears the mark.
    pub fn take_timeout_restart(&mut self) -> bool {
        std::mem::take(&mut self.restart_timeout)
    }

    pub fn step(&mut self, context: &mut WorkerContext) -> Next {
        match &mut self.phase {
            Phase::Head => self.step_head(context),
            Phase::Upload(_) => self.step_upload(context),
            Phase::Respond => self.step_respond(context),
            Phase::Linger(_) => self.step_linger(),
        }
    }

    /// Responds 408, after which the connection closes.
    pub fn refuse_late(&mut self, context: &mut WorkerContext, reason: &'static str) -> Next {
        let logged = match self.phase {
            Phase::Head => self.reader.logged_fields(),
            _ => std::mem::take(&mut self.request_log.logged),
        };
        self.refuse(context, Refusal { status: 408, reason, logged })
    }

    /// Counts and logs the request in progress when the connection closes. `why`: the server's reason, and
    /// the status to log for a request without a response.
    pub fn on_close(&mut self, context: &mut WorkerContext, why: Option<(u16, &'static str)>) {
        match (&self.phase, why) {
            (Phase::Respond, _) => {
                self.request_log.reason = why.map(|(_, reason)| reason).or(self.request_log.reason);
                self.log_response(context);
            }
            (Phase::Upload(_), Some((status, reason))) => {
                self.request_log.status = status;
                self.request_log.reason = Some(reason);
                self.log_response(context);
            }
            _ => {}
        }
    }

    /// Logs a connection that ends without a response. A client that sent nothing and left (400) is not
    /// logged.
    pub fn log_unfinished(&mut self, context: &mut WorkerContext, status: u16, reason: &'static str) {
        if status == 400 && self.reader.bytes().is_empty() {
            return;
        }
        self.request_log =
            RequestLog { logged: self.reader.logged_fields(), status, ..RequestLog::default() };
        self.request_log.reason = Some(reason);
        self.log_response(context);
    }

    fn log_response(&mut self, context: &mut WorkerContext) {
        if self.writer.end(&self.socket) {
            add(&context.worker.counters.streams, u64::MAX);
        }
        if !context.log.is_wanted() {
            return;
        }
        let request_log = &mut self.request_log;
        let now_ns = sys::clock::monotonic_ns();
        context.log.write(Entry {
            peer: self.peer.ip(),
            ended_realtime_ns: sys::clock::realtime_ns(),
            duration_ns: now_ns.saturating_sub(self.since_ns),
            logged: std::mem::take(&mut request_log.logged),
            status: request_log.status,
            content_bytes: request_log.sent_bytes.saturating_sub(request_log.head_bytes),
            sent_bytes: request_log.sent_bytes,
            reason: request_log.reason,
        });
    }

    fn step_head(&mut self, context: &mut WorkerContext) -> Next {
        loop {
            if let Some(request) = self.reader.next_request(&context.limits) {
                return match request {
                    Ok(request) => self.serve(context, *request),
                    Err(refusal) => self.refuse(context, *refusal),
                };
            }
            if !self.reader.is_readable() {
                return Next::Wait;
            }
            let is_first = self.reader.bytes().is_empty();
            let head_bytes_max = context.limits.header_bytes_max;
            match self.reader.receive(&self.socket, &mut context.receive_buffer, head_bytes_max) {
                Received::Bytes if is_first => self.since_ns = context.now_ns,
                Received::Bytes => {}
                Received::Nothing => return Next::Wait,
                Received::End => {
                    self.log_unfinished(context, 400, "client left before its request was complete");
                    return Next::Close;
                }
            }
        }
    }

    fn serve(&mut self, context: &mut WorkerContext, mut request: Request) -> Next {
        let logged = std::mem::take(&mut request.logged);
        self.request_log = RequestLog { logged, keep_alive: request.keep_alive, ..RequestLog::default() };
        self.progress_ns = context.now_ns;
        self.restart_timeout = true;
        if request.host_is_domain && context.handler.is_loopback {
            let response = Response::refusal(421, OTHER_HOST).closing();
            return self.respond(context, response, request.method == Method::Head);
        }
        if request.method != Method::Put {
            let mut response = context.handler.respond(&request);
            // Unexpected content is not read: what follows it could be anything.
            response.close |= !matches!(request.framing, Framing::None | Framing::Length(0));
            return self.respond(context, response, request.method == Method::Head);
        }
        match Upload::begin(&context.handler, &request, context.limits.upload_bytes_max) {
            Err(response) => self.respond(context, response.closing(), false),
            Ok(upload) => {
                if request.expects_continue && self.reader.bytes().is_empty() && !upload.is_complete() {
                    self.writer.queue(b"HTTP/1.1 100 Continue\r\n\r\n");
                }
                self.phase = Phase::Upload(Box::new(upload));
                Next::Again
            }
        }
    }

    fn refuse(&mut self, context: &mut WorkerContext, refusal: Refusal) -> Next {
        let head_only = refusal.logged.line.starts_with(b"HEAD ");
        self.request_log = RequestLog { logged: refusal.logged, ..RequestLog::default() };
        let mut response = Response::refusal(refusal.status, refusal.reason).closing();
        if refusal.status == 405 {
            response = response.with("Allow", context.handler.allowed());
        }
        self.respond(context, response, head_only)
    }

    fn step_upload(&mut self, context: &mut WorkerContext) -> Next {
        let sent = self.writer.flush(&self.socket);
        if let Some(next) = self.count_sent(context, sent) {
            return next;
        }
        let Phase::Upload(upload) = &mut self.phase else { return Next::Again };
        let before = upload.written_bytes();
        let mut taken = Ok(());
        let mut ended = false;
        if !self.reader.bytes().is_empty() {
            taken = upload.take(self.reader.bytes()).map(|used| self.reader.consume(used));
        } else if !upload.is_complete() {
            let buffer = &mut context.receive_buffer;
            let ask = upload.wants_bytes(context.limits.header_bytes_max).min(buffer.len());
            match self.socket.recv(&mut buffer[..ask]) {
                Ok(Moved::Bytes(n)) => {
                    taken = upload.take(&buffer[..n]).map(|used| self.reader.push(&buffer[used..n]));
                }
                Ok(Moved::WouldBlock) => {
                    self.reader.clear_readable();
                    return Next::Wait;
                }
                Ok(Moved::End) | Err(_) => ended = true,
            }
        }
        let is_complete = upload.is_complete();
        add(&context.worker.counters.uploaded_bytes, upload.written_bytes() - before);
        self.progress_ns = context.now_ns;
        match taken {
            Err(response) => self.respond(context, response.closing(), false),
            Ok(()) if is_complete => {
                let Phase::Upload(upload) = std::mem::replace(&mut self.phase, Phase::Head) else {
                    return Next::Close;
                };
                self.respond(context, upload.finish(&context.handler), false)
            }
            Ok(()) if ended => {
                self.request_log.status = 400;
                self.request_log.reason = Some("client left before its upload was complete");
                self.log_response(context);
                Next::Close
            }
            Ok(()) => Next::Again,
        }
    }

    fn respond(&mut self, context: &mut WorkerContext, response: Response, head_only: bool) -> Next {
        self.request_log.keep_alive &= !response.close;
        self.request_log.status = response.status;
        self.request_log.reason = response.reason;
        self.restart_timeout = true;
        self.progress_ns = context.now_ns;
        let counters = &context.worker.counters;
        add(&counters.requests, 1);
        add(&counters.refused, u64::from(response.status >= 400));
        let keep_alive = self.request_log.keep_alive;
        self.request_log.head_bytes = self.writer.begin(response, &context.date, keep_alive, head_only);
        if self.writer.has_file() {
            add(&counters.streams, 1);
            self.writer.cork(&self.socket, context.slice_bytes);
        }
        self.phase = Phase::Respond;
        self.step_respond(context)
    }

    fn step_respond(&mut self, context: &mut WorkerContext) -> Next {
        let sent = self.writer.send(&self.socket, context.slice_bytes);
        self.count_sent(context, sent).unwrap_or_else(|| self.finish_response(context))
    }

    /// Counts what was sent. `None`: all is.
    fn count_sent(&mut self, context: &mut WorkerContext, sent: Sent) -> Option<Next> {
        if sent.bytes > 0 {
            self.request_log.sent_bytes += sent.bytes;
            self.progress_ns = context.now_ns;
            add(&context.worker.counters.sent_bytes, sent.bytes);
            context.cpu_cost.burn(sent.file_bytes);
        }
        match sent.state {
            SendState::Complete => None,
            SendState::Partial => Some(Next::Again),
            SendState::Blocked => Some(Next::Wait),
            SendState::Failed(reason) => {
                self.request_log.reason = Some(reason);
                Some(Next::Close)
            }
        }
    }

    /// Logs the response, and goes on with the next request or the close.
    fn finish_response(&mut self, context: &mut WorkerContext) -> Next {
        self.log_response(context);
        self.responses += 1;
        self.restart_timeout = true;
        self.since_ns = context.now_ns;
        if self.request_log.keep_alive {
            self.phase = Phase::Head;
            let can_go_on = self.reader.is_readable() || !self.reader.bytes().is_empty();
            return if can_go_on { Next::Again } else { Next::Wait };
        }
        if self.socket.shutdown_send().is_err() {
            return Next::Close;
        }
        self.reader = RequestReader::new();
        self.phase = Phase::Linger(0);
        Next::Again
    }

    fn step_linger(&mut self) -> Next {
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
