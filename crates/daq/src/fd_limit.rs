//! The limit of open files: each connection takes a file descriptor.

use base::part::PartError;

/// Open files besides the connections.
const BESIDES_MIN: u64 = 64;

/// Raises the limit of open files for `connections`, with both ends if builder and sources are in this
/// process, and for `besides` further files. The error says how many files are permitted, and what to do.
pub(super) fn raise_for(connections: u64, both_ends: bool, besides: u64) -> Result<(), PartError> {
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64);
    let wanted = if both_ends { 2 * connections } else { connections };
    let limit = sys::thread::raise_file_limit(open + wanted + besides);
    let limit =
        limit.map_err(|error| PartError::new(format!("cannot raise the limit of open files: {error}")))?;
    too_many(connections, both_ends, limit, open).map_or(Ok(()), |why| Err(PartError::new(why)))
}

/// Why the limit of open files is too low for the connections, if it is.
fn too_many(connections: u64, both_ends: bool, limit: u64, open: u64) -> Option<String> {
    let (wanted, need) = match both_ends {
        true => (2 * connections, "twice as many open files, because the builder is in the same process"),
        false => (connections, "as many open files"),
    };
    (limit < open + wanted + BESIDES_MIN).then(|| {
        format!(
            "{connections} connections of sources need {need}; this process may have {limit}, of which \
             {open} are in use: raise the limit (ulimit -n, LimitNOFILE=), or use more hosts"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_files_per_connection_are_needed_in_one_process() {
        assert_eq!(too_many(9_000, true, 20_000, 100), None);
        assert_eq!(too_many(16_384, false, 20_000, 100), None);
        let why = too_many(16_384, true, 20_000, 100).unwrap();
        assert!(why.contains("16384 connections") && why.contains("twice as many open files"), "{why}");
        assert!(why.contains("20000") && why.contains("raise the limit"), "{why}");
        assert!(too_many(30_000, false, 20_000, 100).is_some_and(|why| why.contains("as many open files")));
    }
}
