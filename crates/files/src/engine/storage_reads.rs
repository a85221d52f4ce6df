//! How much this program reads from storage within the judged time.

use sys::thread::process_storage_read_bytes;

#[derive(Debug, Default)]
pub(super) struct StorageReads {
    begun: Option<Option<u64>>,
}

impl StorageReads {
    /// The first call counts.
    pub(super) fn begin(&mut self) {
        self.begun.get_or_insert_with(process_storage_read_bytes);
    }

    /// Bytes since [`Self::begin`]; `None`: unknown.
    pub(super) fn end(&self) -> Option<u64> {
        let (from, to) = self.begun.flatten().zip(process_storage_read_bytes())?;
        Some(to.saturating_sub(from))
    }
}
