//! Server-sent events of a job, as the client reads them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use reqwest::Response;
use serde_json::Value;

use super::{Cause, Client, ClientError};

/// More than the longest event that a console sends.
const EVENT_BYTES_MAX: usize = 8 << 20;

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Where a later connection continues.
    pub id: Option<u64>,
    pub name: String,
    pub data: Value,
}

/// The events of one job on one connection.
pub struct Events {
    answer: Response,
    parser: Parser,
    ready: VecDeque<Event>,
    heard: Instant,
}

/// What came within a time.
pub enum Next {
    Event(Event),
    /// Nothing, or a comment, which a console sends on a quiet stream.
    Nothing,
    /// The console closed the stream.
    End,
}

impl Events {
    /// For how long nothing has come.
    pub fn silent_for(&self) -> Duration {
        self.heard.elapsed()
    }
}

impl Client {
    /// The events of a job behind one of them, or from the beginning.
    /// Errors: the console cannot be reached, or there is no such job.
    pub fn events(&self, job: &str, after: Option<u64>) -> Result<Events, ClientError> {
        let mut request = self.http.get(self.url(&["jobs", job, "events"]));
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        let answer = self.runtime.block_on(self.send(request))?;
        Ok(Events { answer, parser: Parser::default(), ready: VecDeque::new(), heard: Instant::now() })
    }

    /// The next event, if one comes within this time.
    /// Errors: the connection broke off, or what comes is no event.
    pub fn next(&self, events: &mut Events, within: Duration) -> Result<Next, ClientError> {
        if let Some(event) = events.ready.pop_front() {
            return Ok(Next::Event(event));
        }
        let chunk =
            self.runtime.block_on(async { tokio::time::timeout(within, events.answer.chunk()).await });
        match chunk {
            Err(_) => Ok(Next::Nothing),
            Ok(Err(error)) => Err(ClientError::of_transport(self.address(), &error)),
            Ok(Ok(None)) => Ok(Next::End),
            Ok(Ok(Some(bytes))) => {
                events.heard = Instant::now();
                let found = events.parser.push(&bytes).map_err(|why| {
                    ClientError::new(Cause::Answer, format!("console {}: {why}", self.address()))
                })?;
                events.ready.extend(found);
                Ok(events.ready.pop_front().map_or(Next::Nothing, Next::Event))
            }
        }
    }
}

/// Bytes of events that are not complete.
#[derive(Default)]
struct Parser(Vec<u8>);

impl Parser {
    /// The events that these bytes complete.
    fn push(&mut self, bytes: &[u8]) -> Result<Vec<Event>, String> {
        // What was searched before is searched again only where the end of an event may begin.
        let mut from = self.0.len().saturating_sub(1);
        self.0.extend_from_slice(bytes);
        let (mut found, mut used) = (Vec::new(), 0);
        while let Some(at) = self.0[from..].windows(2).position(|pair| pair == b"\n\n") {
            let end = from + at + 2;
            found.extend(event(&self.0[used..end])?);
            (from, used) = (end, end);
        }
        self.0.drain(..used);
        match self.0.len() > EVENT_BYTES_MAX {
            true => Err(format!("an event is longer than {} MiB", EVENT_BYTES_MAX >> 20)),
            false => Ok(found),
        }
    }
}

/// `None`: a comment.
fn event(bytes: &[u8]) -> Result<Option<Event>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "an event is not UTF-8".to_owned())?;
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let Some(name) = field("event: ") else { return Ok(None) };
    let data = serde_json::from_str(field("data: ").unwrap_or("null"))
        .map_err(|error| format!("the event '{name}' is not JSON: {error}"))?;
    let id = field("id: ").and_then(|id| id.parse().ok());
    Ok(Some(Event { id, name: name.to_owned(), data }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::jobs::frame;

    #[test]
    fn events_are_read_however_they_are_cut() {
        let text =
            frame(Some(16), "run", "{\"name\":\"Zürich\"}") + ": alive\n\n" + &frame(None, "bye", "{}");
        let expected = [
            Event { id: Some(16), name: "run".into(), data: json!({ "name": "Zürich" }) },
            Event { id: None, name: "bye".into(), data: json!({}) },
        ];
        for length in 1..=text.len() {
            let mut parser = Parser::default();
            let pieces = text.as_bytes().chunks(length);
            let found: Vec<Event> = pieces.flat_map(|piece| parser.push(piece).unwrap()).collect();
            assert_eq!(found, expected, "pieces of {length} bytes");
        }
    }

    #[test]
    fn what_is_no_event_is_an_error() {
        assert!(Parser::default().push(b"event: run\ndata: {\n\n").unwrap_err().contains("'run'"));
        assert!(Parser::default().push(b"event: \xff\n\n").is_err());
        let mut parser = Parser::default();
        let line = vec![b'x'; 1 << 20];
        assert!((0..9).any(|_| parser.push(&line).is_err()));
    }
}
