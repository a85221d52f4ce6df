//! Receives the requests of coordinators on zenoh's threads and handles them on others.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use base::part::PartError;
use zenoh::Wait;
use zenoh::bytes::ZBytes;
use zenoh::query::Query;

use super::service::AgentService;
use crate::protocol::{self, Request, Response};

/// zenoh's overhead per message, at most.
const ENVELOPE_BYTES: usize = 4096;
const ACTIVE_REQUESTS_MAX: u32 = 32;

struct PendingRequest {
    query: Query,
    request: Result<Request, String>,
    /// Present for long requests: counts until the response is sent.
    active: Option<ActiveRequest>,
}

/// Runs on zenoh's receiving threads, which all sessions share. It must never block on sending, so it only
/// decodes a request and queues it; even dropping a query would send. The queue holds requests without their
/// payload, of peers that are let in; its length is not limited.
pub(super) struct RequestReceiver {
    sender: Sender<PendingRequest>,
    active_count: Arc<AtomicU32>,
}

impl RequestReceiver {
    pub(super) fn receive(&self, mut query: Query) {
        let bytes = query.payload().map(|payload| payload.to_bytes().into_owned()).unwrap_or_default();
        if let Some(payload) = query.payload_mut() {
            // Free the payload, which may be large.
            *payload = ZBytes::default();
        }
        let read = protocol::decode(&bytes).map_err(|why| format!("cannot read the request: {why}"));
        let (request, active) = match read {
            short @ (Ok(Request::Describe) | Err(_)) => (short, None),
            long => match ActiveRequest::begin(&self.active_count) {
                Some(active) => (long, Some(active)),
                None => (Err(format!("it is working on {ACTIVE_REQUESTS_MAX} requests already")), None),
            },
        };
        // The worker lives as long as this sender.
        drop(self.sender.send(PendingRequest { query, request, active }));
    }
}

/// Answers short requests itself, and long ones on threads of their own, because preparing may take minutes.
pub(super) struct RequestWorker {
    thread: JoinHandle<()>,
    active_count: Arc<AtomicU32>,
}

impl RequestWorker {
    pub(super) fn start(service: Arc<AgentService>) -> std::io::Result<(RequestReceiver, Self)> {
        let (sender, requests) = channel();
        let active_count = Arc::<AtomicU32>::default();
        let work = move || handle_all(&service, &requests);
        let thread = std::thread::Builder::new().name("requests".to_owned()).spawn(work)?;
        Ok((
            RequestReceiver { sender, active_count: Arc::clone(&active_count) },
            Self { thread, active_count },
        ))
    }

    /// Whether all requests are answered. Valid once no more can arrive.
    pub(super) fn is_done(&self) -> bool {
        self.thread.is_finished() && self.active_count.load(Ordering::Acquire) == 0
    }
}

fn handle_all(service: &Arc<AgentService>, requests: &Receiver<PendingRequest>) {
    for request in requests {
        // After a panic, dropping the query lets the sender see that there is no response.
        drop(catch_unwind(AssertUnwindSafe(|| handle(service, request))));
    }
}

fn handle(service: &Arc<AgentService>, PendingRequest { query, request, active }: PendingRequest) {
    let key = protocol::request_key(service.name(), service.instance());
    let reply = move |query: &Query, response: &Response| {
        // The sender may be gone.
        let mut bytes = protocol::encode(response);
        if bytes.len() > protocol::MESSAGE_BYTES_MAX - ENVELOPE_BYTES {
            // zenoh would drop the message, and the sender would wait for it.
            let why = format!("its response has {} bytes, more than a message holds", bytes.len());
            bytes = protocol::encode(&refused(why));
        }
        drop(query.reply(&key, bytes).wait());
    };
    let request = match request {
        Ok(Request::Describe) => return reply(&query, &service.handle(Request::Describe)),
        Ok(request) => request,
        Err(why) => return reply(&query, &refused(why)),
    };
    let service = Arc::clone(service);
    let work = move || {
        // Until the response is sent.
        let _active = active;
        let handled = catch_unwind(AssertUnwindSafe(|| service.handle(request)));
        let response = handled.unwrap_or_else(|_| refused("a part panicked; please report this".into()));
        reply(&query, &response);
    };
    // Without a thread, dropping the query lets the sender see that there is no response.
    drop(std::thread::Builder::new().name("request".to_owned()).spawn(work));
}

fn refused(why: String) -> Response {
    Response::Refused { part: None, error: PartError::new(why) }
}

struct ActiveRequest(Arc<AtomicU32>);

impl ActiveRequest {
    /// `None` at the limit.
    fn begin(active_count: &Arc<AtomicU32>) -> Option<Self> {
        let one_more = |open: u32| (open < ACTIVE_REQUESTS_MAX).then_some(open + 1);
        active_count.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).ok()?;
        Some(Self(Arc::clone(active_count)))
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
