//! What a child writes, drained so that it never waits for us, and kept as far as it is of use.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Deadline;

/// How much is kept; older lines are dropped.
const KEPT_BYTES: usize = 64 << 10;
/// A longer line is kept in pieces, so that a child that writes no line end takes no memory.
const LINE_BYTES: u64 = 4096;

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<String>,
    bytes: usize,
    open_pipes: usize,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Output {
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl Output {
    /// Starts a thread per pipe. Each ends when the child and all that inherited the pipe have closed it.
    pub(super) fn drain(
        stdout: Option<impl Read + Send + 'static>,
        stderr: Option<impl Read + Send + 'static>,
    ) -> Self {
        let this = Self::default();
        if let Some(pipe) = stdout {
            this.drain_one(pipe);
        }
        if let Some(pipe) = stderr {
            this.drain_one(pipe);
        }
        this
    }

    fn drain_one(&self, pipe: impl Read + Send + 'static) {
        self.state().open_pipes += 1;
        let this = self.clone();
        let thread = std::thread::Builder::new().name("child-output".to_owned()).spawn(move || {
            let mut pipe = BufReader::new(pipe);
            let mut line = Vec::new();
            loop {
                line.clear();
                match (&mut pipe).take(LINE_BYTES).read_until(b'\n', &mut line) {
                    Ok(0) | Err(_) => break,
                    Ok(_) => this.push(String::from_utf8_lossy(line.trim_ascii_end()).into_owned()),
                }
            }
            this.state().open_pipes -= 1;
            this.shared.1.notify_all();
        });
        if thread.is_err() {
            // Without the thread the pipe is closed, and the child gets an error when it writes.
            self.state().open_pipes -= 1;
        }
    }

    fn push(&self, line: String) {
        let mut state = self.state();
        state.bytes += line.len();
        state.lines.push_back(line);
        while state.bytes > KEPT_BYTES || state.lines.len() > 4096 {
            let Some(dropped) = state.lines.pop_front() else { break };
            state.bytes -= dropped.len();
        }
        drop(state);
        self.shared.1.notify_all();
    }

    /// The first kept line that `accept` takes.
    pub(super) fn find(&self, accept: impl Fn(&str) -> bool) -> Option<String> {
        self.state().lines.iter().find(|line| accept(line)).cloned()
    }

    pub(super) fn tail(&self) -> String {
        let state = self.state();
        let lines: Vec<&str> = state.lines.iter().map(String::as_str).collect();
        lines.join("\n")
    }

    /// Waits for a new line or the end of a pipe, at most `within`.
    pub(super) fn wait_change(&self, within: Duration) {
        let state = self.state();
        // Whether it was a line or the time does not matter: the caller looks again.
        drop(self.shared.1.wait_timeout(state, within));
    }

    pub(super) fn wait_closed(&self, deadline: Deadline) {
        let mut state = self.state();
        while state.open_pipes > 0 && !deadline.passed() {
            let woken = self.shared.1.wait_timeout(state, deadline.left());
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_output_is_bounded() {
        let output = Output::drain(Some(std::io::repeat(b'x').take(1 << 20)), None::<std::io::Empty>);
        output.wait_closed(Deadline::after(Duration::from_secs(20)));
        assert!(output.tail().len() <= KEPT_BYTES + 4096);
        assert!(!output.tail().is_empty());
    }
}
