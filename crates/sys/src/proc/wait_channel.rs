//! Where a thread of this process waits in the kernel: `/proc/PID/task/TID/wchan` (proc_pid_wchan(5)).

use std::path::Path;

/// The kernel function in which thread `tid` of this process waits; empty while it runs or is ready to.
///
/// The kernel leaves out the functions of its scheduler, and those of its locks with them: a thread that
/// waits for a lock is in the function that takes it. `None`: there is no such thread, or the kernel has no
/// names.
pub fn wait_channel(root: &Path, tid: i32) -> Option<String> {
    let text = std::fs::read_to_string(root.join(format!("proc/self/task/{tid}/wchan"))).ok()?;
    let text = text.trim();
    Some(if text == "0" { String::new() } else { text.to_owned() })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::thread::thread_id;

    #[test]
    fn waiting_thread_is_in_a_function_and_a_running_one_in_none() {
        let (sender, receiver) = channel::<()>();
        let (tids, tid) = channel();
        let thread = std::thread::spawn(move || {
            tids.send(thread_id()).unwrap();
            receiver.recv().ok()
        });
        let tid = tid.recv().unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        let channel = loop {
            let found = wait_channel(Path::new("/"), tid).unwrap();
            if !found.is_empty() || Instant::now() > until {
                break found;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert!(channel.contains("futex"), "a receiver waits by futex(2): '{channel}'");
        assert_eq!(wait_channel(Path::new("/"), thread_id()).as_deref(), Some(""));
        drop(sender);
        thread.join().unwrap();
        assert_eq!(wait_channel(Path::new("/"), 0), None);
    }
}
