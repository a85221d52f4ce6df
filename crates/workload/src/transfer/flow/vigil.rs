//! A receiver's waits as a timeline shows them.

use sys::span::{Entered, SpanName, enter};

/// Times a receiver's calls. Those that wait in the kernel are interrupted now and then to see whether to go on: all of that
/// is one wait, which ends when something comes. A wait in which nothing came any more was for nothing, and is left out.
#[derive(Debug, Default)]
pub(super) struct Vigil {
    is_in_kernel: bool,
    waiting: Option<Entered>,
}

impl Vigil {
    /// From now on calls wait in the kernel.
    pub(super) fn wait_in_kernel(&mut self) {
        self.is_in_kernel = true;
    }

    /// Times `call`, of which `came` tells whether something came of it.
    pub(super) fn time<T>(
        &mut self,
        name: &SpanName,
        call: impl FnOnce() -> T,
        came: impl FnOnce(&T) -> bool,
    ) -> T {
        let span = self.waiting.take().unwrap_or_else(|| enter(name));
        let result = call();
        if self.is_in_kernel && !came(&result) {
            self.waiting = Some(span);
        }
        result
    }
}

impl Drop for Vigil {
    fn drop(&mut self) {
        self.waiting.take().into_iter().for_each(Entered::discard);
    }
}
