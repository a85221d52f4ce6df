//! The priorities that a program gives its threads: `nice` of a process, `ioprio` of a thread.

use sys::thread::{add_nice, set_io_priority};

use super::compile::ThreadPlan;

/// Sets those of the calling thread.
///
/// # Errors
/// It may not have them: a sentence that says what to do.
pub(super) fn set(plan: &ThreadPlan) -> Result<(), String> {
    let ThreadPlan { name, nice, io_priority, .. } = plan;
    if *nice != 0 {
        add_nice(*nice).map_err(|error| {
            format!(
                "thread {name} cannot have nice={nice}: {error}; run kagiri as root, allow it (ulimit -e), \
                 or use a nice above 0"
            )
        })?;
    }
    match io_priority {
        Some(level) => set_io_priority(*level)
            .map_err(|error| format!("thread {name} cannot have ioprio={level}: {error}; leave ioprio out")),
        None => Ok(()),
    }
}
