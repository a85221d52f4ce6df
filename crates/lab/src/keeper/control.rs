//! The keeper's socket: one JSON line is asked, one is answered.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::state::{Answer, Request};

/// No request is longer.
const REQUEST_BYTES_MAX: u64 = 4096;
/// How long somebody who has connected may take to ask, and to take the answer.
const PEER_WITHIN: Duration = Duration::from_secs(1);

/// Somebody who waits for an answer.
#[derive(Debug)]
pub(super) struct Asker {
    stream: UnixStream,
}

impl Asker {
    /// Answers. Who has gone meanwhile gets none.
    pub(super) fn answer(mut self, answer: &Answer) {
        let mut text = serde_json::to_vec(answer).unwrap_or_default();
        text.push(b'\n');
        let _ = self.stream.write_all(&text);
    }
}

/// What is asked, one after the other.
#[derive(Debug)]
pub(super) struct Control {
    requests: Receiver<(Request, Asker)>,
}

impl Control {
    /// Listens at `path`.
    pub(super) fn listen(path: &Path) -> Result<Self> {
        let listener = UnixListener::bind(path).map_err(|error| Error::io("listen on", path, error))?;
        // Nobody is heard while another is answered: who floods the socket waits.
        let (sender, requests) = sync_channel(0);
        let thread = std::thread::Builder::new().name("control".to_owned());
        thread
            .spawn(move || accept(&listener, &sender))
            .map_err(|error| Error::io("start a thread for", path, error))?;
        Ok(Self { requests })
    }

    /// The next request, within `wait`.
    pub(super) fn next(&self, wait: Duration) -> std::result::Result<(Request, Asker), RecvTimeoutError> {
        self.requests.recv_timeout(wait)
    }
}

fn accept(listener: &UnixListener, sender: &SyncSender<(Request, Asker)>) {
    for stream in listener.incoming().flatten() {
        match ask(&stream) {
            Ok(request) => {
                if sender.send((request, Asker { stream })).is_err() {
                    return;
                }
            }
            Err(problem) => {
                let message =
                    format!("{problem}; ask {{\"do\":\"status\"}} or {{\"do\":\"down\"}}, one line");
                Asker { stream }.answer(&Answer::Error { message, usage: true });
            }
        }
    }
}

fn ask(stream: &UnixStream) -> std::result::Result<Request, String> {
    let read = || -> std::io::Result<Vec<u8>> {
        stream.set_read_timeout(Some(PEER_WITHIN))?;
        stream.set_write_timeout(Some(PEER_WITHIN))?;
        let mut line = Vec::new();
        BufReader::new(stream.take(REQUEST_BYTES_MAX)).read_until(b'\n', &mut line)?;
        Ok(line)
    };
    let line = read().map_err(|error| format!("no request came: {error}"))?;
    serde_json::from_slice(&line).map_err(|error| format!("that is no request: {error}"))
}
