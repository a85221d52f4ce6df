//! Asynchronous writes: a few threads write what others hand to them, as the C library's aio(7) does.

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
    error: Option<Errno>,
}

impl Outstanding {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, written: Result<(), Errno>) {
        let mut state = self.lock();
        state.writes -= 1;
        state.error = state.error.or(written.err());
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until half of the writes, at least one, have ended; whether that was in time. Errors: of a
    /// write.
    pub(crate) fn wait_for_half(&self, left: impl Fn() -> Option<Duration>) -> Result<bool, Errno> {
        let mut state = self.lock();
        let wanted = state.writes - state.writes.div_ceil(2);
        loop {
            if let Some(error) = state.error.take() {
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
}

struct AioWrite {
    file: OwnedFd,
    content: Content,
    bytes: usize,
    offset: i64,
    outstanding: Arc<Outstanding>,
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

    /// Hands over a write of the first bytes of `content`.
    pub(crate) fn write(
        &self,
        file: OwnedFd,
        content: &Content,
        bytes: usize,
        offset: u64,
        outstanding: &Arc<Outstanding>,
    ) -> Result<(), Errno> {
        outstanding.lock().writes += 1;
        let offset = i64::try_from(offset).map_err(|_| Errno::EFBIG)?;
        let write =
            AioWrite { file, content: content.clone(), bytes, offset, outstanding: outstanding.clone() };
        self.queue.send(write).map_err(|_| Errno::ESHUTDOWN)
    }
}

fn serve(receiver: &Mutex<Receiver<AioWrite>>) {
    loop {
        let next = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(write) = next else { return };
        write.outstanding.finish(write_all(&write));
    }
}

fn write_all(write: &AioWrite) -> Result<(), Errno> {
    let mut done = 0;
    while done < write.bytes {
        match pwrite(&write.file, &write.content.bytes(write.bytes)[done..], write.offset + done as i64) {
            Ok(0) => return Err(Errno::ENOSPC),
            Ok(written) => done += written,
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
