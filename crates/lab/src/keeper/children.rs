//! The processes of a lab: agents, delay lines, programs.

use std::time::Duration;

use sys::child::{Child, LAST_WORDS_WITHIN, Signal};
use sys::clock::Deadline;

use crate::state::ProcessState;

/// The last of what a process wrote, as far as a message takes it.
const SAID_BYTES: usize = 600;

/// A process and what it is for.
#[derive(Debug)]
struct Member {
    what: String,
    child: Child,
    /// Whether its last words were waited for, once it had ended.
    is_heard: bool,
}

impl Member {
    /// How it ended and what it said last; `None` while it runs. Waited for only once, for that may take a while.
    fn ended(&mut self, deadline: Deadline) -> Option<(String, String)> {
        let (how, said) = match self.child.try_wait() {
            Ok(status) => {
                let how = status?.to_string();
                let is_heard = std::mem::replace(&mut self.is_heard, true);
                (how, if is_heard { self.child.output_tail() } else { self.child.last_words(deadline) })
            }
            Err(error) => (error.to_string(), self.child.output_tail()),
        };
        let start = said.char_indices().rev().nth(SAID_BYTES).map_or(0, |(at, _)| at);
        Some((how, said[start..].to_owned()))
    }
}

/// All of them, in the order they were started.
#[derive(Debug, Default)]
pub(super) struct Children {
    members: Vec<Member>,
}

impl Children {
    pub(super) fn add(&mut self, what: impl Into<String>, child: Child) {
        self.members.push(Member { what: what.into(), child, is_heard: false });
    }

    /// How each of them is. Ended ones are taken note of.
    pub(super) fn states(&mut self) -> Vec<ProcessState> {
        // One for all: whoever asks does not wait for long, however many have ended.
        let deadline = Deadline::after(LAST_WORDS_WITHIN);
        let state = |member: &mut Member| {
            let (ended, said) = member.ended(deadline).unzip();
            ProcessState { what: member.what.clone(), pid: member.child.pid(), ended, said }
        };
        self.members.iter_mut().map(state).collect()
    }

    /// Asks all of them to end, waits `grace` for all together, and kills who is left.
    pub(super) fn end(self, grace: Duration) {
        for member in &self.members {
            // One that has ended is what is wanted.
            let _ = member.child.signal(Signal::SIGTERM);
        }
        let deadline = Deadline::after(grace);
        for mut member in self.members {
            // Those that are left are killed when they are dropped.
            let _ = member.child.wait(deadline.left());
        }
    }
}
