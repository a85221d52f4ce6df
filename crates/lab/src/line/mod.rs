//! Delay lines: what a long way does to packets, done by a program between two TAP devices.
//!
//! One process carries all lines of a lab, with a plain thread for each direction. A packet that comes out of one device
//! goes into the other `delay` later, in order; some are lost, drawn from a seed, so that a lab loses the same packets
//! of the same sequence each time. ARP is never lost: real hosts have long resolved their neighbours.

mod carry;
mod counters;
mod queue;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sys::tap::Tap;

use crate::error::{Error, Result};
use counters::Counters;

pub use counters::{Counted, LineCount};

/// What the process says on standard output once all devices are there.
pub(crate) const READY: &str = "lines are ready";
/// How long the process may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// All lines of a lab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinesSpec {
    /// The socket on which the process tells what it has counted.
    pub socket: PathBuf,
    /// The lines.
    pub lines: Vec<LineSpec>,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LineSpec {
    /// The link's number.
    pub link: usize,
    /// Both ends, the link's first end first.
    pub ends: [LineEnd; 2],
    /// How long each packet is on the way, one way, nanoseconds.
    pub delay_ns: u64,
    /// The share of packets that get lost, each way.
    pub loss: f64,
    /// What to draw the lost ones from.
    pub seed: u64,
    /// How many bytes may be on the way at once, each way; more are dropped.
    pub bytes_max: u64,
}

/// A device to be made for an end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LineEnd {
    /// The network namespace, `kagiri-...`.
    pub namespace: String,
    /// The interface's name.
    pub device: String,
}

/// Carries the lines that the file at `spec` describes, until the process is ended. Says [`READY`] through `say` once
/// all devices are there.
///
/// # Errors
/// The file is not a description of lines, a device cannot be made, or a device has gone.
pub fn carry(spec: &Path, say: &dyn Fn(&str)) -> Result<()> {
    let text = std::fs::read_to_string(spec).map_err(|error| Error::io("read", spec, error))?;
    let spec: LinesSpec = serde_json::from_str(&text)
        .map_err(|error| Error::Refused(format!("{} describes no lines: {error}", spec.display())))?;
    let listener =
        UnixListener::bind(&spec.socket).map_err(|error| Error::io("listen on", &spec.socket, error))?;
    let (failed, failures) = std::sync::mpsc::channel();
    let mut counters = Vec::new();
    let mut directions = Vec::new();
    for line in &spec.lines {
        let taps = [tap(&line.ends[0])?, tap(&line.ends[1])?].map(Arc::new);
        let counts = [Arc::new(Counters::default()), Arc::new(Counters::default())];
        for (from, count) in counts.iter().enumerate() {
            directions.push(carry::Direction {
                from: Arc::clone(&taps[from]),
                to: Arc::clone(&taps[1 - from]),
                queue: queue::Queue::new(line, from as u64),
                count: Arc::clone(count),
            });
        }
        counters.push((line.link, counts));
    }
    for direction in directions {
        let failed = failed.clone();
        spawn("line", move || {
            // Nobody listens only while the process ends.
            let _ = failed.send(direction.run());
        })?;
    }
    spawn("line-counters", move || tell(&listener, &counters))?;
    say(READY);
    match failures.recv() {
        Ok(error) => Err(Error::Refused(format!("a device of a line has gone: {error}"))),
        Err(_) => Ok(()),
    }
}

/// A device of a line, made in its namespace.
fn tap(end: &LineEnd) -> Result<Tap> {
    let make = || -> sys::Result<Tap> {
        sys::netns::enter(&end.namespace)?;
        Tap::create(&end.device)
    };
    // On a thread of its own, which ends in that namespace.
    let made = std::thread::scope(|scope| scope.spawn(make).join());
    Ok(made.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    thread.map(drop).map_err(|error| Error::Refused(format!("cannot start a thread for a line: {error}")))
}

/// Answers everybody who connects with one JSON line.
fn tell(listener: &UnixListener, counters: &[(usize, [Arc<Counters>; 2])]) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { continue };
        let all: Vec<LineCount> = counters
            .iter()
            .map(|(link, [up, down])| LineCount { link: *link, up: up.read(), down: down.read() })
            .collect();
        let mut text = serde_json::to_string(&all).unwrap_or_default();
        text.push('\n');
        // Who asks and goes away before the answer does not need it.
        let _ = stream.set_write_timeout(Some(ANSWER_WITHIN));
        let _ = stream.write_all(text.as_bytes());
    }
}

/// Asks the process behind `socket` what it has counted.
///
/// # Errors
/// It is not there, or does not answer within two seconds.
pub fn ask(socket: &Path) -> Result<Vec<LineCount>> {
    let failed = |error: std::io::Error| Error::io("ask the delay lines at", socket, error);
    let stream = UnixStream::connect(socket).map_err(failed)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN)).map_err(failed)?;
    let mut text = String::new();
    BufReader::new(stream).read_line(&mut text).map_err(failed)?;
    serde_json::from_str(&text).map_err(|error| failed(error.into()))
}
