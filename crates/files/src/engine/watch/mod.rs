//! What is observed of the storage beside the threads, while they run and until all is durable.

pub mod durable;
pub(super) mod storage_reads;
pub(super) mod waits;
