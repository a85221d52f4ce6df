//! Questions of coordinators: heard by zenoh's thread, answered by others.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use base::part::PartError;
use zenoh::Wait;
use zenoh::bytes::ZBytes;
use zenoh::query::Query;

use super::desk::Desk;
use crate::protocol::{self, Answer, Ask};

/// What zenoh puts around a message, at most.
const ENVELOPE_BYTES: usize = 4096;
/// Questions that are worked on at once; more are refused.
const QUESTIONS_MAX: u32 = 32;

/// A question as it was heard.
struct Heard {
    query: Query,
    /// What is asked, or why it is not answered.
    ask: Result<Ask, String>,
    /// Of one that takes its time: it counts until it is answered.
    work: Option<Work>,
}

/// Where questions are heard. The threads that hear hear for all sessions, so that they must never wait for room to send:
/// they only read a question, and hand it on. Not even dropping one is for them, as that tells whoever asked. What waits
/// for the clerk is therefore not bounded in number, only in size: a question without its payload, from somebody whom
/// the agent's links let in.
pub(super) struct Ear {
    heard: Sender<Heard>,
    working: Arc<AtomicU32>,
}

impl Ear {
    /// Takes a question.
    pub(super) fn hear(&self, mut query: Query) {
        let bytes = query.payload().map(|payload| payload.to_bytes().into_owned()).unwrap_or_default();
        if let Some(payload) = query.payload_mut() {
            // Read, it is of no more use, and it may be large.
            *payload = ZBytes::default();
        }
        let read = protocol::read(&bytes).map_err(|why| format!("the question cannot be read: {why}"));
        let (ask, work) = match read {
            short @ (Ok(Ask::Describe) | Err(_)) => (short, None),
            long => match Work::begin(&self.working) {
                Some(work) => (long, Some(work)),
                None => (Err(format!("it works on {QUESTIONS_MAX} questions already")), None),
            },
        };
        // The clerk is there as long as this is.
        drop(self.heard.send(Heard { query, ask, work }));
    }
}

/// The thread that answers: at once who this is, which needs no work, and the rest in threads of their own, because
/// preparing may take minutes.
pub(super) struct Clerk {
    thread: JoinHandle<()>,
    working: Arc<AtomicU32>,
}

impl Clerk {
    /// Begins to answer what the ear hears.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(super) fn start(desk: Arc<Desk>) -> std::io::Result<(Ear, Self)> {
        let (heard, questions) = channel();
        let working = Arc::<AtomicU32>::default();
        let work = move || answer_all(&desk, &questions);
        let thread = std::thread::Builder::new().name("clerk".to_owned()).spawn(work)?;
        Ok((Ear { heard, working: Arc::clone(&working) }, Self { thread, working }))
    }

    /// Whether all that was asked is answered, once nobody can ask any more.
    pub(super) fn is_done(&self) -> bool {
        self.thread.is_finished() && self.working.load(Ordering::Acquire) == 0
    }
}

fn answer_all(desk: &Arc<Desk>, questions: &Receiver<Heard>) {
    for heard in questions {
        // A question that ends unanswered is told so to whoever asked; the next one is answered all the same.
        drop(catch_unwind(AssertUnwindSafe(|| answer(desk, heard))));
    }
}

fn answer(desk: &Arc<Desk>, Heard { query, ask, work }: Heard) {
    let key = protocol::ask_key(desk.name(), desk.instance());
    let reply = move |query: &Query, answer: &Answer| {
        // Whoever asked may be gone.
        let mut bytes = protocol::write(answer);
        if bytes.len() > protocol::MESSAGE_BYTES_MAX - ENVELOPE_BYTES {
            // The bus would drop it, and whoever asked would wait for it.
            let why = format!("its answer has {} bytes, more than a message holds", bytes.len());
            bytes = protocol::write(&refused(why));
        }
        drop(query.reply(&key, bytes).wait());
    };
    let ask = match ask {
        Ok(Ask::Describe) => return reply(&query, &desk.answer(Ask::Describe)),
        Ok(ask) => ask,
        Err(why) => return reply(&query, &refused(why)),
    };
    let desk = Arc::clone(desk);
    let work = move || {
        // Until it is answered.
        let _work = work;
        let answered = catch_unwind(AssertUnwindSafe(|| desk.answer(ask)));
        let answer = answered.unwrap_or_else(|_| refused("a part of it panicked; please report this".into()));
        reply(&query, &answer);
    };
    // Without threads the question ends unanswered, and whoever asked hears that.
    drop(std::thread::Builder::new().name("answer".to_owned()).spawn(work));
}

fn refused(why: String) -> Answer {
    Answer::Refused { part: None, error: PartError::new(why) }
}

/// A question that is being worked on, for as long as it lives.
struct Work(Arc<AtomicU32>);

impl Work {
    /// One more, unless there are too many.
    fn begin(working: &Arc<AtomicU32>) -> Option<Self> {
        let one_more = |open: u32| (open < QUESTIONS_MAX).then_some(open + 1);
        working.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).ok()?;
        Some(Self(Arc::clone(working)))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
