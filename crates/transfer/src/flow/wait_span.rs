//! The waits of a receiver as spans.

use sys::span::{Entered, SpanName, enter};

/// Times a receiver's calls. Blocking calls return now and then without data, to check for a stop: calls
/// until data comes are one wait. A wait that ends without data is left out.
#[derive(Debug, Default)]
pub(super) struct WaitSpan {
    is_blocking: bool,
    waiting: Option<Entered>,
}

impl WaitSpan {
    /// Whether calls wait in the kernel from now on.
    pub(super) fn set_blocking(&mut self, is_blocking: bool) {
        self.is_blocking = is_blocking;
    }

    /// Times `call`; `came` tells whether it brought data.
    pub(super) fn time<T>(
        &mut self,
        name: &SpanName,
        call: impl FnOnce() -> T,
        came: impl FnOnce(&T) -> bool,
    ) -> T {
        let span = self.waiting.take().unwrap_or_else(|| enter(name));
        let result = call();
        if self.is_blocking && !came(&result) {
            self.waiting = Some(span);
        }
        result
    }
}

impl Drop for WaitSpan {
    fn drop(&mut self) {
        self.waiting.take().into_iter().for_each(Entered::discard);
    }
}
