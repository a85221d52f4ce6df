//! How much this program reads from storage within the judged time.

use sys::thread::process_storage_read_bytes;

#[derive(Debug, Default)]
pub(in crate::engine) struct StorageReads {
    begun: Option<Option<u64>>,
}

impl StorageReads {
    /// The first call counts.
    pub(in crate::engine) fn begin(&mut self) {
        self.begun.get_or_insert_with(process_storage_read_bytes);
    }

    /// Bytes since [`Self::begin`]; `None`: unknown.
    pub(in crate::engine) fn end(&self) -> Option<u64> {
        let (from, to) = self.begun.flatten().zip(process_storage_read_bytes())?;
        Some(to.saturating_sub(from))
    }
}
