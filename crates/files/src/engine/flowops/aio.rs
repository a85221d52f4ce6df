//! Asynchronous writes: a few threads write what others hand to them, as the C library's aio(7) does.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::uio::pwrite;

use super::content::Content;

const THREADS: usize = 16;
const QUEUE: usize = 1024;
/// A wait looks at least so often whether the run is over.
const LOOK: Duration = Duration::from_millis(200);

/// The writes of one thread that are under way.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    writes: u64,
    /// Failed writes that no wait has returned yet: by the row of the flowop that began them, and by the
    /// error's number.
    errors: BTreeMap<(usize, i32), u64>,
}

impl State {
    fn take_error(&mut self) -> Option<Errno> {
        let mut first = self.errors.first_entry()?;
        let error = Errno::from_raw(first.key().1);
        *first.get_mut() -= 1;
        if *first.get() == 0 {
            first.remove();
        }
        Some(error)
    }
}

/// Writes that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FailedWrites {
    /// Of the flowop that began them.
    pub row: usize,
    pub error: Errno,
    pub count: u64,
}

impl Outstanding {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, row: usize, written: Result<(), Errno>) {
        let mut state = self.lock();
        state.writes -= 1;
        if let Err(error) = written {
            *state.errors.entry((row, error as i32)).or_default() += 1;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until half of the writes, at least one, have ended; whether that was in time. Errors: of a
    /// write.
    pub(crate) fn wait_for_half(&self, left: impl Fn() -> Option<Duration>) -> Result<bool, Errno> {
        let mut state = self.lock();
        let wanted = state.writes - state.writes.div_ceil(2);
        loop {
            if let Some(error) = state.take_error() {
                return Err(error);
            }
            if state.writes <= wanted {
                return Ok(true);
            }
            let Some(left) = left() else { return Ok(false) };
            let waited = self.changed.wait_timeout(state, left.min(LOOK));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until all writes have ended, and returns those that failed and that no wait has returned.
    pub(crate) fn finish_all(&self) -> Vec<FailedWrites> {
        let mut state = self.lock();
        while state.writes > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let failed = |((row, error), count)| FailedWrites { row, error: Errno::from_raw(error), count };
        std::mem::take(&mut state.errors).into_iter().map(failed).collect()
    }
}

pub(crate) struct AioWrite {
    pub file: OwnedFd,
    /// Its first bytes are written.
    pub content: Content,
    pub bytes: usize,
    pub offset: u64,
    /// Of the flowop, for errors.
    pub row: usize,
    pub outstanding: Arc<Outstanding>,
}

/// Dropping it ends its threads, after what they have.
#[derive(Debug)]
pub(crate) struct AioPool {
    queue: SyncSender<AioWrite>,
}

impl AioPool {
    pub(crate) fn start() -> std::io::Result<Self> {
        let (queue, receiver) = sync_channel(QUEUE);
        let receiver = Arc::new(Mutex::new(receiver));
        for number in 0..THREADS {
            let receiver = receiver.clone();
            let thread = std::thread::Builder::new().name(format!("aio-{number}"));
            thread.stack_size(128 << 10).spawn(move || serve(&receiver))?;
        }
        Ok(Self { queue })
    }

    /// Hands over a write.
    pub(crate) fn write(&self, write: AioWrite) -> Result<(), Errno> {
        write.outstanding.lock().writes += 1;
        self.queue.send(write).map_err(|returned| {
            returned.0.outstanding.lock().writes -= 1;
            Errno::ESHUTDOWN
        })
    }
}

fn serve(receiver: &Mutex<Receiver<AioWrite>>) {
    loop {
        let next = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(write) = next else { return };
        write.outstanding.finish(write.row, write_all(&write));
    }
}

fn write_all(write: &AioWrite) -> Result<(), Errno> {
    let offset = i64::try_from(write.offset).map_err(|_| Errno::EFBIG)?;
    let mut done = 0;
    while done < write.bytes {
        match pwrite(&write.file, &write.content.bytes(write.bytes)[done..], offset + done as i64) {
            Ok(0) => return Err(Errno::ENOSPC),
            Ok(written) => done += written,
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_writes_that_nobody_waited_for_are_kept() {
        let pool = AioPool::start().unwrap();
        let outstanding = Arc::new(Outstanding::default());
        let content = Content::new(4096, None);
        for row in [3, 5, 5] {
            let file = std::fs::File::options().write(true).open("/dev/full").unwrap().into();
            let (content, outstanding) = (content.clone(), outstanding.clone());
            pool.write(AioWrite { file, content, bytes: 4096, offset: 0, row, outstanding }).unwrap();
        }
        let failed = |row, count| FailedWrites { row, error: Errno::ENOSPC, count };
        assert_eq!(outstanding.finish_all(), [failed(3, 1), failed(5, 2)]);
        assert_eq!(outstanding.finish_all(), [], "each is returned once");
        assert_eq!(outstanding.wait_for_half(|| None), Ok(true));
    }
}
