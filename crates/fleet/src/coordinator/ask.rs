//! Asking many agents side by side, each within a deadline, and what their answers say.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use base::part::PartError;
use serde_json::Value;
use sys::clock::Deadline;
use zenoh::query::{ConsolidationMode, QueryTarget, Reply};
use zenoh::{Session, Wait};

use super::roster::Roster;
use crate::BusError;
use crate::protocol::{self, Answer, Ask};

/// Why an agent does not answer that is not there, or no longer the one that works for the run.
pub const GONE: &str = "its agent ended, was killed, or was cut off";
/// How often it is looked whether an agent has gone while it is waited for.
const LOOK: Duration = Duration::from_millis(50);

/// What came of a question: an answer, or its end without one.
type Heard = (String, Option<Result<Answer, String>>);

/// Tells that a question is over when zenoh drops it: answered, timed out, or its agent gone.
struct Question {
    host: String,
    answers: Sender<Heard>,
}

impl Question {
    fn hear(&self, reply: &Reply) {
        let (host, answer) = match reply.result() {
            // Where all were asked, the key says who answers: the bus lets nobody answer under another's.
            Ok(sample) => (
                protocol::asked_of(sample.key_expr().as_str()),
                protocol::read::<Answer>(&sample.payload().to_bytes())
                    .map(Answer::plain)
                    .map_err(|why| format!("its answer cannot be read: {why}")),
            ),
            // zenoh's own word for it.
            Err(error) if error.payload().to_bytes().as_ref() == b"Timeout" => {
                (self.host.as_str(), Err("it did not answer in time".to_owned()))
            }
            Err(error) => {
                let why = String::from_utf8_lossy(&error.payload().to_bytes()).into_owned();
                (self.host.as_str(), Err(format!("it cannot be asked: {}", protocol::plain(&why))))
            }
        };
        // Whoever asked may have given up.
        let _ = self.answers.send((host.to_owned(), Some(answer)));
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        let _ = self.answers.send((self.host.clone(), None));
    }
}

/// Ask one key, of an agent or of all; the answers come one by one, the end last.
pub fn send(session: &Session, host: &str, ask: &Ask, within: Duration) -> Result<Receiver<Heard>, String> {
    let (answers, receiver) = channel();
    put(session, host, "*", ask, within, answers)?;
    Ok(receiver)
}

fn put(
    session: &Session,
    host: &str,
    instance: &str,
    ask: &Ask,
    within: Duration,
    answers: Sender<Heard>,
) -> Result<(), String> {
    let question = Question { host: host.to_owned(), answers };
    let asked = session
        .get(protocol::ask_key(host, instance))
        .payload(protocol::write(ask))
        .target(QueryTarget::All)
        .consolidation(ConsolidationMode::None)
        .timeout(within)
        .callback(move |reply| question.hear(&reply));
    asked.wait().map_err(|error| error.to_string())
}

/// Ask each host its own question and wait for all answers; where one cannot prepare, all have prepared in vain, and the
/// others' answers are not waited for and left out. `goes_on` is looked at often; when it says no, what is still open is
/// given up.
pub fn each(
    session: &Session,
    roster: &Roster,
    asks: Vec<(String, Ask)>,
    within: Duration,
    goes_on: &dyn Fn() -> bool,
) -> BTreeMap<String, Result<Answer, BusError>> {
    let lost = |host: &str, why: &str| BusError::Lost { host: host.to_owned(), why: why.to_owned() };
    let (answers, receiver) = channel();
    let (mut open, mut in_vain_together) = (Vec::new(), false);
    let mut all = BTreeMap::new();
    for (host, ask) in asks {
        in_vain_together |= matches!(ask, Ask::Prepare { .. });
        let asked = match roster.asked(&host) {
            Some(instance) => put(session, &host, &instance, &ask, within, answers.clone()),
            None => Err(GONE.to_owned()),
        };
        match asked {
            Ok(()) => open.push(host),
            Err(why) => drop(all.insert(host.clone(), Err(lost(&host, &why)))),
        }
    }
    drop(answers);
    let deadline = Deadline::after(within + LOOK);
    while !open.is_empty() && !deadline.passed() && goes_on() {
        match receiver.recv_timeout(LOOK) {
            Ok((host, heard)) if open.contains(&host) => {
                let answer = match heard {
                    Some(Ok(answer)) => Ok(answer),
                    Some(Err(why)) => Err(lost(&host, &why)),
                    None => Err(lost(&host, GONE)),
                };
                open.retain(|other| *other != host);
                all.insert(host, answer);
            }
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => {
                let gone: Vec<String> =
                    open.iter().filter(|host| roster.asked(host).is_none()).cloned().collect();
                for host in gone {
                    open.retain(|other| *other != host);
                    all.insert(host.clone(), Err(lost(&host, GONE)));
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if in_vain_together && all.values().any(|answer| !matches!(answer, Ok(Answer::Prepared(_)))) {
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

/// The report of one part out of its host's answer.
pub fn report(host: &str, part: &str, answer: Option<&Result<Answer, BusError>>) -> Result<Value, BusError> {
    let of_part = |error: &PartError| BusError::Part {
        part: part.to_owned(),
        host: host.to_owned(),
        error: error.clone(),
    };
    match answer {
        Some(Ok(Answer::Stopped(reports))) => match reports.get(part) {
            Some(Ok(report)) => Ok(report.clone()),
            Some(Err(error)) => Err(of_part(error)),
            None => Err(BusError::Unknown(format!("there is no part '{part}' on {host}"))),
        },
        Some(Ok(Answer::Refused { error, .. })) => Err(of_part(error)),
        Some(Err(BusError::Lost { why, .. })) => {
            Err(BusError::Lost { host: host.to_owned(), why: why.clone() })
        }
        _ => Err(BusError::Lost { host: host.to_owned(), why: "its answer does not fit".into() }),
    }
}
