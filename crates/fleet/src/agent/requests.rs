//! Receives the requests of coordinators on zenoh's threads and handles them on others.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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
/// Memory for all active requests together (those of a thousand hosts need some MiB), and what each takes of
/// it at least: so at most 32 are active.
const ACTIVE_BYTES_MAX: u64 = 16 << 20;
const REQUEST_BYTES_MIN: u64 = ACTIVE_BYTES_MAX / 32;

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
    active_bytes: Arc<AtomicU64>,
}

impl RequestReceiver {
    pub(super) fn receive(&self, mut query: Query) {
        // Out of the query, which is kept until it is answered.
        let payload = query.payload_mut().map(std::mem::take).unwrap_or_default();
        let (request, active) = match self.read(&payload) {
            Ok((request, active)) => (Ok(request), active),
            Err(why) => (Err(why), None),
        };
        // The worker lives as long as this sender.
        drop(self.sender.send(PendingRequest { query, request, active }));
    }

    fn read(&self, payload: &ZBytes) -> Result<(Request, Option<ActiveRequest>), String> {
        let unreadable = |why| format!("cannot read the request: {why}");
        let busy = || "it is working on other requests already".to_owned();
        // Its pieces are not put together before that is known.
        if payload.len() as u64 > ACTIVE_BYTES_MAX / 2 {
            return Err(unreadable(format!(
                "it has {} bytes; {} are taken",
                payload.len(),
                ACTIVE_BYTES_MAX / 2
            )));
        }
        let bytes = payload.to_bytes();
        let needed = protocol::memory_bytes(&bytes, ACTIVE_BYTES_MAX).map_err(unreadable)?;
        // Before it is read, so that two zenoh threads do not read more than that at once.
        let active = ActiveRequest::begin(&self.active_bytes, needed);
        if active.is_none() && needed > REQUEST_BYTES_MIN {
            return Err(busy());
        }
        match protocol::read(&bytes).map_err(unreadable)? {
            Request::Describe => Ok((Request::Describe, None)),
            long => Ok((long, Some(active.ok_or_else(busy)?))),
        }
    }
}

/// Answers short requests itself, and long ones on threads of their own, because preparing may take minutes.
pub(super) struct RequestWorker {
    thread: JoinHandle<()>,
    active_bytes: Arc<AtomicU64>,
}

impl RequestWorker {
    pub(super) fn start(service: Arc<AgentService>) -> std::io::Result<(RequestReceiver, Self)> {
        let (sender, requests) = channel();
        let active_bytes = Arc::<AtomicU64>::default();
        let work = move || handle_all(&service, &requests);
        let thread = std::thread::Builder::new().name("requests".to_owned()).spawn(work)?;
        Ok((
            RequestReceiver { sender, active_bytes: Arc::clone(&active_bytes) },
            Self { thread, active_bytes },
        ))
    }

    /// Whether all requests are answered. Valid once no more can arrive.
    pub(super) fn is_done(&self) -> bool {
        self.thread.is_finished() && self.active_bytes.load(Ordering::Acquire) == 0
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

/// A request that is worked on, and its share of the memory for all of them.
struct ActiveRequest {
    active_bytes: Arc<AtomicU64>,
    bytes: u64,
}

impl ActiveRequest {
    /// `None`: Too many are active, or too large ones.
    fn begin(active_bytes: &Arc<AtomicU64>, needed_bytes: u64) -> Option<Self> {
        let bytes = needed_bytes.max(REQUEST_BYTES_MIN);
        let one_more = |taken: u64| Some(taken + bytes).filter(|sum| *sum <= ACTIVE_BYTES_MAX);
        active_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).ok()?;
        Some(Self { active_bytes: Arc::clone(active_bytes), bytes })
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.active_bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_requests_are_bounded_by_number_and_memory() {
        let taken = Arc::<AtomicU64>::default();
        let many: Vec<_> = (0..40).filter_map(|_| ActiveRequest::begin(&taken, 100)).collect();
        assert_eq!(many.len(), 32);
        drop(many);
        let large = ActiveRequest::begin(&taken, ACTIVE_BYTES_MAX - REQUEST_BYTES_MIN).unwrap();
        let small = ActiveRequest::begin(&taken, 0).unwrap();
        assert!(ActiveRequest::begin(&taken, 0).is_none());
        drop((large, small));
        assert_eq!(taken.load(Ordering::Relaxed), 0);
    }
}
