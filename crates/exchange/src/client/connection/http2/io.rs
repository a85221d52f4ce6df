//! The transport as the library uses it, and what its polls signal.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake};

use sys::net::Moved;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::super::transport::{Transport, TransportError};

/// What the polls of a connection and its transport say to each other.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// The library wants its connection to be polled again.
    pub(super) is_woken: AtomicBool,
    /// The kernel took no more.
    pub(super) is_blocked: AtomicBool,
    /// The socket had an event since the last read: there is something to read.
    pub(super) is_readable: AtomicBool,
    /// The peer has ended its side.
    pub(super) is_peer_done: AtomicBool,
    pub(super) has_moved: AtomicBool,
    pub(super) has_received: AtomicBool,
}

impl Wake for Signals {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Relaxed);
    }
}

const BITS: usize = u64::BITS as usize;

/// Slots whose streams are to be polled: one bit each, so that a reply costs the same whatever the number of
/// streams.
#[derive(Debug)]
pub(super) struct ReadySet {
    words: Box<[AtomicU64]>,
}

impl ReadySet {
    pub(super) fn new(slots: usize) -> Self {
        Self { words: (0..slots.div_ceil(BITS)).map(|_| AtomicU64::new(0)).collect() }
    }

    pub(super) fn insert(&self, slot: usize) {
        self.words[slot / BITS].fetch_or(1 << (slot % BITS), Ordering::Relaxed);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }

    /// Moves the slots to `found`.
    pub(super) fn take(&self, found: &mut Vec<usize>) {
        for (index, word) in self.words.iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::Relaxed);
            while bits != 0 {
                found.push(index * BITS + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }
}

/// Wakes one slot.
#[derive(Debug)]
pub(super) struct SlotWaker {
    pub(super) ready: Arc<ReadySet>,
    pub(super) slot: usize,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.ready.insert(self.slot);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.insert(self.slot);
    }
}

/// The transport as the library uses it.
#[derive(Debug)]
pub(super) struct Io {
    pub(super) transport: Transport,
    pub(super) signals: Arc<Signals>,
}

fn io_error(error: TransportError) -> std::io::Error {
    match error {
        TransportError::Net(error) => error.source,
        TransportError::Io(error) => error,
        error @ TransportError::Tls(_) => std::io::Error::other(error),
    }
}

impl AsyncRead for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let own = self.get_mut();
        let signals = &own.signals;
        let is_readable = signals.is_readable.swap(false, Ordering::Relaxed);
        own.transport.readiness.after_signs(is_readable, signals.is_peer_done.load(Ordering::Relaxed));
        match own.transport.recv(buffer.initialize_unfilled()).map_err(io_error)? {
            Moved::Bytes(bytes) => {
                buffer.advance(bytes);
                signals.has_moved.store(true, Ordering::Relaxed);
                signals.has_received.store(true, Ordering::Relaxed);
                Poll::Ready(Ok(()))
            }
            Moved::End => Poll::Ready(Ok(())),
            Moved::WouldBlock => Poll::Pending,
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        let own = self.get_mut();
        match own.transport.send(bytes, false).map_err(io_error)? {
            Moved::Bytes(bytes) => {
                own.signals.has_moved.store(true, Ordering::Relaxed);
                Poll::Ready(Ok(bytes))
            }
            Moved::WouldBlock | Moved::End => {
                own.signals.is_blocked.store(true, Ordering::Relaxed);
                Poll::Pending
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let own = self.get_mut();
        match own.transport.flush().map_err(io_error)? {
            true => Poll::Ready(Ok(())),
            false => {
                own.signals.is_blocked.store(true, Ordering::Relaxed);
                Poll::Pending
            }
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::ErrorKind;
    use std::task::Waker;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn error_of_the_transport_keeps_its_kind() {
        assert_eq!(io_error(TransportError::Io(ErrorKind::BrokenPipe.into())).kind(), ErrorKind::BrokenPipe);
    }

    proptest! {
        #[test]
        fn ready_set_returns_each_woken_slot_once(
            (slots, woken) in (1_usize..300)
                .prop_flat_map(|slots| (Just(slots), prop::collection::vec(0..slots, 0..400)))
        ) {
            let ready = Arc::new(ReadySet::new(slots));
            let waker = |slot| Waker::from(Arc::new(SlotWaker { ready: ready.clone(), slot }));
            let wakers: Vec<Waker> = (0..slots).map(waker).collect();
            woken.iter().for_each(|slot| wakers[*slot].wake_by_ref());
            let mut found = Vec::new();
            prop_assert_eq!(ready.is_empty(), woken.is_empty());
            ready.take(&mut found);
            let wanted: Vec<usize> = woken.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
            prop_assert_eq!(&found, &wanted);
            prop_assert!(ready.is_empty());
            ready.take(&mut found);
            prop_assert_eq!(found.len(), wanted.len());
        }
    }
}
