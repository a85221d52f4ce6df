//! Sends requests to many agents in parallel and collects the responses within a deadline.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base::part::PartError;
use serde_json::Value;
use sys::clock::Deadline;
use zenoh::query::{ConsolidationMode, QueryTarget, Reply};
use zenoh::{Session, Wait};

use super::membership::Membership;
use crate::BusError;
use crate::protocol::{self, Description, Request, Response};

/// Why an agent that left, or was replaced by another instance, does not respond.
pub const AGENT_GONE: &str = "its agent ended, was killed, or was cut off";
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Host, and its response; `None` at the end of the query.
type QueryEvent = (String, Option<Result<Response, String>>);

/// zenoh drops the callback at the end of a query: answered, timed out, or the agent is gone.
struct PendingQuery {
    host: String,
    answer_bytes_max: u64,
    answers: Sender<QueryEvent>,
    memory: Arc<AnswerMemory>,
}

/// Memory left for the answers of many hosts together.
struct AnswerMemory {
    left_bytes: AtomicU64,
}

/// Longer descriptions are not read.
const DESCRIPTION_BYTES_MAX: usize = 16 << 10;
/// Memory of a description for each byte of its text: it has short strings only, the shortest of which takes
/// the most.
const DESCRIPTION_MEMORY_PER_BYTE: u64 = 16;
/// What a flow, a stream or a source adds to the memory of a report: of a flow of TCP, which takes most, both
/// ends have some fifty numbers.
const REPORT_ITEM_BYTES: u64 = 16 << 10;

impl AnswerMemory {
    /// For reports, which grow with the duration of a trial, and with what they list.
    fn of_reports(hosts: usize, items: u64) -> Arc<Self> {
        let bytes = (256 << 20) + hosts as u64 * (4 << 20) + items * REPORT_ITEM_BYTES;
        Arc::new(Self { left_bytes: bytes.into() })
    }

    /// For short answers of any number of hosts.
    fn of_descriptions() -> Arc<Self> {
        Arc::new(Self { left_bytes: AtomicU64::new(512 << 20) })
    }

    /// Reads an answer, if there is memory left for it.
    fn decode(&self, bytes: &[u8], bytes_max: u64) -> Result<Response, String> {
        self.read(bytes, protocol::memory_bytes(bytes, bytes_max)?)
    }

    /// The same for the answer to [`Request::Describe`].
    fn decode_description(&self, bytes: &[u8]) -> Result<Response, String> {
        let length = bytes.len();
        if length > DESCRIPTION_BYTES_MAX {
            return Err(format!("it has {length} bytes, more than {DESCRIPTION_BYTES_MAX}"));
        }
        self.read(bytes, length as u64 * DESCRIPTION_MEMORY_PER_BYTE)
    }

    fn read(&self, bytes: &[u8], needed_bytes: u64) -> Result<Response, String> {
        let take = |left: u64| left.checked_sub(needed_bytes);
        match self.left_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => protocol::read::<Response>(bytes).map(Response::sanitized),
            Err(_) => Err("the answers of all hosts together take too much memory".to_owned()),
        }
    }
}

impl PendingQuery {
    fn record(&self, reply: &Reply) {
        let (host, answer) = match reply.result() {
            Ok(sample) => (
                protocol::host_of_request_key(sample.key_expr().as_str()),
                self.memory
                    .decode(&sample.payload().to_bytes(), self.answer_bytes_max)
                    .map_err(|why| format!("its response cannot be read: {why}")),
            ),
            // zenoh's error text.
            Err(error) if error.payload().to_bytes().as_ref() == b"Timeout" => {
                (self.host.as_str(), Err("it did not answer in time".to_owned()))
            }
            Err(error) => {
                let why = String::from_utf8_lossy(&error.payload().to_bytes()).into_owned();
                (self.host.as_str(), Err(format!("it cannot be reached: {}", protocol::sanitize(&why))))
            }
        };
        // The receiver may have given up.
        let _ = self.answers.send((host.to_owned(), Some(answer)));
    }
}

impl Drop for PendingQuery {
    fn drop(&mut self) {
        let _ = self.answers.send((self.host.clone(), None));
    }
}

/// Name in the key of an answer, and the description with the wall clock error in s; or why there is none.
pub type Described = (String, Result<(Description, f64), String>);

/// Asks all agents for their descriptions. Returns when each has answered or left, or after `within`.
pub fn describe_all(session: &Session, within: Duration) -> Result<Vec<Described>, String> {
    let now_s = || sys::clock::realtime_ns() as f64 / 1e9;
    let (asked_s, memory) = (now_s(), AnswerMemory::of_descriptions());
    let all = Arc::new(Mutex::new(Vec::<Described>::new()));
    let (open, ended) = channel::<()>();
    let described = Arc::clone(&all);
    let record = move |reply: Reply| {
        // Dropped with the callback at the end of the query. A message for each answer would wake this
        // thread a thousand times.
        let _open = &open;
        // Without a sample, zenoh says that an agent left or did not answer in time.
        let Ok(sample) = reply.result() else { return };
        let name = protocol::host_of_request_key(sample.key_expr().as_str());
        if !protocol::is_name(name) {
            return;
        }
        let one = match memory.decode_description(&sample.payload().to_bytes()) {
            Ok(Response::Description(one)) if one.name == name => {
                // Per response: a slow agent must not shift the others.
                let off_s = one.realtime_s - f64::midpoint(asked_s, now_s());
                Ok((*one, off_s))
            }
            Ok(_) => Err("it sent an unexpected response".to_owned()),
            Err(why) => Err(format!("its response cannot be read: {why}")),
        };
        described.lock().unwrap_or_else(PoisonError::into_inner).push((name.to_owned(), one));
    };
    get(session, protocol::request_key("*", "*"), &Request::Describe, within, record)?;
    // Only the end of the query, or the deadline.
    let _ = ended.recv_timeout(within + POLL_INTERVAL);
    let all = std::mem::take(&mut *all.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(all)
}

/// zenoh drops the callback at the end of the query.
fn get(
    session: &Session,
    key: String,
    request: &Request,
    within: Duration,
    callback: impl Fn(Reply) + Send + Sync + 'static,
) -> Result<(), String> {
    let asked = session
        .get(key)
        .payload(protocol::encode(request))
        .target(QueryTarget::All)
        .consolidation(ConsolidationMode::None)
        .timeout(within)
        .callback(callback);
    asked.wait().map_err(|error| error.to_string())
}

struct Recipient<'a> {
    host: &'a str,
    instance: &'a str,
    answer_bytes_max: u64,
}

fn send_request(
    session: &Session,
    to: &Recipient,
    request: &Request,
    within: Duration,
    answers: Sender<QueryEvent>,
    memory: Arc<AnswerMemory>,
) -> Result<(), String> {
    let Recipient { host, instance, answer_bytes_max } = *to;
    let query = PendingQuery { host: host.to_owned(), answer_bytes_max, answers, memory };
    get(session, protocol::request_key(host, instance), request, within, move |reply| query.record(&reply))
}

/// Sends each host its own request and waits for all responses. When one host fails to prepare, returns at
/// once without the others' responses. Ends early when `is_running` returns false.
pub fn request_each(
    session: &Session,
    membership: &Membership,
    requests: Vec<(String, Request)>,
    within: Duration,
    is_running: &dyn Fn() -> bool,
) -> BTreeMap<String, Result<Response, BusError>> {
    let requests = requests.into_iter().map(|(host, request)| (host, request, 0)).collect();
    request_reports(session, membership, requests, within, is_running)
}

/// The same for requests that are answered with reports, each with the number of flows, streams or sources
/// that the report lists ([`base::part::PartSpec::report_items`]).
pub fn request_reports(
    session: &Session,
    membership: &Membership,
    requests: Vec<(String, Request, u64)>,
    within: Duration,
    is_running: &dyn Fn() -> bool,
) -> BTreeMap<String, Result<Response, BusError>> {
    let lost = |host: &str, why: &str| BusError::HostLost { host: host.to_owned(), why: why.to_owned() };
    let (answers, receiver) = channel();
    let (mut open, mut is_prepare) = (BTreeSet::new(), false);
    let mut all = BTreeMap::new();
    let items = requests.iter().map(|(_, _, items)| items).sum();
    let memory = AnswerMemory::of_reports(requests.len(), items);
    for (host, request, items) in requests {
        is_prepare |= matches!(request, Request::Prepare { .. });
        let asked = match membership.active_instance(&host) {
            Some(instance) => {
                let answer_bytes_max = protocol::MESSAGE_MEMORY_MAX + items * REPORT_ITEM_BYTES;
                let to = Recipient { host: &host, instance: &instance, answer_bytes_max };
                send_request(session, &to, &request, within, answers.clone(), Arc::clone(&memory))
            }
            None => Err(AGENT_GONE.to_owned()),
        };
        match asked {
            Ok(()) => drop(open.insert(host)),
            Err(why) => drop(all.insert(host.clone(), Err(lost(&host, &why)))),
        }
    }
    drop(answers);
    let deadline = Deadline::after(within + POLL_INTERVAL);
    while !open.is_empty() && !deadline.passed() && is_running() {
        match receiver.recv_timeout(POLL_INTERVAL) {
            Ok((host, event)) if open.remove(&host) => {
                let answer = match event {
                    Some(Ok(answer)) => Ok(answer),
                    Some(Err(why)) => Err(lost(&host, &why)),
                    None => Err(lost(&host, AGENT_GONE)),
                };
                all.insert(host, answer);
            }
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => {
                let gone: Vec<String> =
                    open.iter().filter(|host| membership.active_instance(host).is_none()).cloned().collect();
                for host in gone {
                    open.remove(&host);
                    all.insert(host.clone(), Err(lost(&host, AGENT_GONE)));
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if is_prepare && all.values().any(|answer| !matches!(answer, Ok(Response::Prepared(_)))) {
            return all;
        }
    }
    for host in open {
        let why = format!("it did not answer within {} s", within.as_secs_f64());
        let error = lost(&host, &why);
        all.insert(host, Err(error));
    }
    all
}

pub fn part_report(
    host: &str,
    part: &str,
    answer: Option<&Result<Response, BusError>>,
) -> Result<Value, BusError> {
    let of_part = |error: &PartError| BusError::Part {
        part: part.to_owned(),
        host: host.to_owned(),
        error: error.clone(),
    };
    match answer {
        Some(Ok(Response::Stopped(reports))) => match reports.get(part) {
            Some(Ok(report)) => Ok(report.clone()),
            Some(Err(error)) => Err(of_part(error)),
            None => Err(BusError::Unknown(format!("there is no part '{part}' on {host}"))),
        },
        Some(Ok(Response::Refused { error, .. })) => Err(of_part(error)),
        Some(Err(BusError::HostLost { why, .. })) => {
            Err(BusError::HostLost { host: host.to_owned(), why: why.clone() })
        }
        _ => Err(BusError::HostLost { host: host.to_owned(), why: "it sent an unexpected response".into() }),
    }
}
