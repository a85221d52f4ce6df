//! The supervisor's socket: one JSON line per request and response.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::state::{Request, Response};

const REQUEST_BYTES_MAX: u64 = 4096;
const PEER_WITHIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Client {
    stream: UnixStream,
}

impl Client {
    /// Sends the response; the client may be gone.
    pub(super) fn respond(mut self, response: &Response) {
        self.send(response);
    }

    /// The same, and keeps the connection.
    pub(super) fn send(&mut self, response: &Response) {
        let mut text = serde_json::to_vec(response).unwrap_or_default();
        text.push(b'\n');
        let _ = self.stream.write_all(&text);
    }

    /// Waits for the client's end of the connection, for this long at most. Returns whether it has ended.
    pub(super) fn has_ended_within(&mut self, within: Duration) -> bool {
        // The kernel refuses a wait of 0.
        let within = within.max(Duration::from_millis(1));
        if self.stream.set_read_timeout(Some(within)).is_err() {
            return true;
        }
        let waits =
            |error: &std::io::Error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
        // Nothing but the end is expected.
        !self.stream.read(&mut [0; 64]).is_err_and(|error| waits(&error))
    }
}

#[derive(Debug)]
pub(super) struct Control {
    requests: Receiver<(Request, Client)>,
}

impl Control {
    pub(super) fn listen(path: &Path) -> Result<Self> {
        let listener = UnixListener::bind(path).map_err(|error| Error::io("listen on", path, error))?;
        // Capacity 0: the next client is read after the last response, so that a flood only delays itself.
        let (sender, requests) = sync_channel(0);
        let thread = std::thread::Builder::new().name("control".to_owned());
        thread
            .spawn(move || accept(&listener, &sender))
            .map_err(|error| Error::io("start a thread for", path, error))?;
        Ok(Self { requests })
    }

    pub(super) fn next(&self, wait: Duration) -> std::result::Result<(Request, Client), RecvTimeoutError> {
        self.requests.recv_timeout(wait)
    }
}

fn accept(listener: &UnixListener, sender: &SyncSender<(Request, Client)>) {
    for stream in listener.incoming().flatten() {
        match read_request(&stream) {
            Ok(request) => {
                if sender.send((request, Client { stream })).is_err() {
                    return;
                }
            }
            Err(problem) => {
                let message =
                    format!("{problem}; send {{\"do\":\"status\"}} or {{\"do\":\"down\"}}, one line");
                Client { stream }.respond(&Response::Error { message, usage: true });
            }
        }
    }
}

fn read_request(stream: &UnixStream) -> std::result::Result<Request, String> {
    let read = || -> std::io::Result<Vec<u8>> {
        stream.set_read_timeout(Some(PEER_WITHIN))?;
        stream.set_write_timeout(Some(PEER_WITHIN))?;
        let mut line = Vec::new();
        BufReader::new(stream.take(REQUEST_BYTES_MAX)).read_until(b'\n', &mut line)?;
        Ok(line)
    };
    let line = read().map_err(|error| format!("no request received: {error}"))?;
    serde_json::from_slice(&line).map_err(|error| format!("invalid request: {error}"))
}
