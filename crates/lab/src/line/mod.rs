//! Delay lines: add delay and loss to packets between two TAP devices.
//!
//! One process runs all lines of a lab, with a thread for each direction. A packet from one device enters
//! the other `delay` later, in order. Lost packets are drawn from a seed, so that a lab loses the same
//! packets of the same sequence. ARP is never lost: real hosts have resolved their neighbours long before.

mod counters;
mod forward;
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

pub use counters::{DirectionCounters, LineCounters};

/// Output of the process once all devices exist.
pub(crate) const READY: &str = "lines are ready";
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinesSpec {
    pub socket: PathBuf,
    pub lines: Vec<LineSpec>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LineSpec {
    pub link: usize,
    /// The link's first end first.
    pub ends: [LineEnd; 2],
    /// One way.
    pub delay_ns: u64,
    /// Each way.
    pub loss: f64,
    pub seed: u64,
    /// Bytes in transit, each way; more are dropped.
    pub bytes_max: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LineEnd {
    pub namespace: String,
    pub device: String,
}

/// Runs the lines in the file `spec` until the process ends. Passes [`READY`] to `say` once all devices
/// exist.
pub fn run(spec: &Path, say: &dyn Fn(&str)) -> Result<()> {
    let text = std::fs::read_to_string(spec).map_err(|error| Error::io("read", spec, error))?;
    let spec: LinesSpec = serde_json::from_str(&text).map_err(|error| {
        Error::Refused(format!("{} is no valid description of lines: {error}", spec.display()))
    })?;
    let listener =
        UnixListener::bind(&spec.socket).map_err(|error| Error::io("listen on", &spec.socket, error))?;
    let (failed, failures) = std::sync::mpsc::channel();
    let mut counters = Vec::new();
    let mut directions = Vec::new();
    for line in &spec.lines {
        let taps = [tap(&line.ends[0])?, tap(&line.ends[1])?].map(Arc::new);
        let counts = [Arc::new(Counters::default()), Arc::new(Counters::default())];
        for (from, count) in counts.iter().enumerate() {
            directions.push(forward::Direction {
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
            // The receiver is gone only while the process ends.
            let _ = failed.send(direction.run());
        })?;
    }
    spawn("line-counters", move || serve_counters(&listener, &counters))?;
    say(READY);
    match failures.recv() {
        Ok(error) => Err(Error::Refused(format!("a device of a line has gone: {error}"))),
        Err(_) => Ok(()),
    }
}

fn tap(end: &LineEnd) -> Result<Tap> {
    let make = || -> sys::Result<Tap> {
        sys::netns::enter(&end.namespace)?;
        Tap::create(&end.device)
    };
    // On its own thread, which stays in that namespace.
    let made = std::thread::scope(|scope| scope.spawn(make).join());
    Ok(made.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    thread.map(drop).map_err(|error| Error::Refused(format!("cannot start a thread for a line: {error}")))
}

/// Sends every client one JSON line.
fn serve_counters(listener: &UnixListener, counters: &[(usize, [Arc<Counters>; 2])]) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { continue };
        let all: Vec<LineCounters> = counters
            .iter()
            .map(|(link, [up, down])| LineCounters { link: *link, up: up.read(), down: down.read() })
            .collect();
        let mut text = serde_json::to_string(&all).unwrap_or_default();
        text.push('\n');
        // The client may be gone.
        let _ = stream.set_write_timeout(Some(ANSWER_WITHIN));
        let _ = stream.write_all(text.as_bytes());
    }
}

pub fn query_counters(socket: &Path) -> Result<Vec<LineCounters>> {
    let failed = |error: std::io::Error| Error::io("read the counters of the delay lines at", socket, error);
    let stream = UnixStream::connect(socket).map_err(failed)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN)).map_err(failed)?;
    let mut text = String::new();
    BufReader::new(stream).read_line(&mut text).map_err(failed)?;
    serde_json::from_str(&text).map_err(|error| failed(error.into()))
}
