//! Floor 1: runs on disk.
