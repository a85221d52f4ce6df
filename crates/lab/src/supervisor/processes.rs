//! The processes of a lab: agents, delay lines, programs.

use std::time::Duration;

use sys::child::{Child, LAST_WORDS_WITHIN, Signal};
use sys::clock::Deadline;

use crate::state::ProcessState;

const OUTPUT_TAIL_BYTES: usize = 600;

#[derive(Debug)]
struct Process {
    what: String,
    child: Child,
    /// Whether its last output was waited for.
    has_last_words: bool,
}

impl Process {
    /// How it ended, and its last output; `None` while it runs. Waits for the output only once.
    fn ended(&mut self, deadline: Deadline) -> Option<(String, String)> {
        let ended = end_of(&mut self.child, self.has_last_words, deadline);
        self.has_last_words |= ended.is_some();
        ended
    }
}

/// How a program ended, and its last output, for which it waits unless they are known to be read.
pub(super) fn end_of(
    child: &mut Child,
    has_last_words: bool,
    deadline: Deadline,
) -> Option<(String, String)> {
    let (how, output) = match child.try_wait() {
        Ok(status) => {
            let how = status?.to_string();
            (how, if has_last_words { child.output_tail() } else { child.last_words(deadline) })
        }
        Err(error) => (error.to_string(), child.output_tail()),
    };
    let start = output.char_indices().rev().nth(OUTPUT_TAIL_BYTES).map_or(0, |(at, _)| at);
    Some((how, output[start..].to_owned()))
}

#[derive(Debug, Default)]
pub(super) struct Processes {
    processes: Vec<Process>,
}

impl Processes {
    pub(super) fn add(&mut self, what: impl Into<String>, child: Child) {
        self.processes.push(Process { what: what.into(), child, has_last_words: false });
    }

    pub(super) fn states(&mut self) -> Vec<ProcessState> {
        // One deadline for all, so that the caller does not wait long.
        let deadline = Deadline::after(LAST_WORDS_WITHIN);
        let state = |process: &mut Process| {
            let (ended, output) = process.ended(deadline).unzip();
            ProcessState { what: process.what.clone(), pid: process.child.pid(), ended, output }
        };
        self.processes.iter_mut().map(state).collect()
    }

    /// Sends SIGTERM to all, waits `grace`, and kills the rest.
    pub(super) fn end(self, grace: Duration) {
        for process in &self.processes {
            // It may have ended already.
            let _ = process.child.signal(Signal::SIGTERM);
        }
        let deadline = Deadline::after(grace);
        for mut process in self.processes {
            // Dropping it kills it.
            let _ = process.child.wait(deadline.left());
        }
    }
}
