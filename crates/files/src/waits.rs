//! What threads wait for, by the kernel's functions in which looks found them. Pure.

use base::limit_rules::WAITING;

use crate::engine::report::WaitSamples;
use crate::totals::Totals;

/// Looks at waiting threads from which on their shares say something.
const LOOKS_MIN: u64 = 20;

/// What a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wait {
    /// Another thread has a lock of a file, a directory or the file system.
    Lock,
    /// The file system's journal: its transaction, or that it is on the disk.
    Journal,
    Device,
    /// The program that serves a mount (FUSE).
    MountProgram,
    /// What the threads' own program waits for: a rate, a pause, another thread of it.
    Own,
    Other,
}

/// Beginnings of names of the kernel's functions. The first that fits counts.
///
/// The functions of locks themselves are never seen, but those that take them: a function that is known to
/// wait for nothing else ([`sys::proc::wait_channel`]).
const FUNCTIONS: &[(Wait, &[&str])] = &[
    (Wait::Own, &["hrtimer_nanosleep", "futex", "do_nanosleep", "do_epoll_wait", "ep_poll", "do_sys_poll"]),
    (Wait::MountProgram, &["request_wait_answer", "fuse_"]),
    (
        Wait::Journal,
        &[
            "jbd2_",
            "__jbd2_",
            "wait_transaction_",
            "add_transaction_credits",
            "start_this_handle",
            "do_get_write_access",
            "xlog_",
            "xfs_log_",
            "btrfs_commit_transaction",
            "btrfs_sync_log",
            "wait_log_commit",
            "wait_current_trans",
        ],
    ),
    (
        Wait::Device,
        &[
            "folio_wait_",
            "__folio_lock",
            "wait_on_page",
            "submit_bio_wait",
            "bio_wait",
            "blk_",
            "__blkdev_",
            "blkdev_",
            "__iomap_dio_rw",
            "iomap_dio_",
            "do_direct_IO",
            "do_blockdev_direct_IO",
            "__blockdev_direct_IO",
            "dio_",
            "rq_qos_wait",
            "balance_dirty_pages",
            "__wait_on_buffer",
            "__lock_buffer",
            "__bread",
            "ext4_read_bh",
            "xfs_buf_",
            "read_extent_buffer_",
            "filemap_",
        ],
    ),
    (
        Wait::Lock,
        &[
            "path_openat",
            "open_last_lookups",
            "do_unlinkat",
            "filename_create",
            "filename_unlinkat",
            "start_dirop",
            "__start_dirop",
            "start_creating",
            "start_removing",
            "do_mkdirat",
            "do_rmdir",
            "filename_rmdir",
            "do_renameat2",
            "filename_renameat2",
            "lock_rename",
            "lookup_slow",
            "do_truncate",
            "notify_change",
            "chmod_common",
            "vfs_",
            "iterate_dir",
            "generic_file_write_iter",
            "shmem_file_",
            "ext4_buffered_write_iter",
            "ext4_file_",
            "ext4_dio_",
            // Block groups are set up by one thread each.
            "ext4_mb_",
            "xfs_ilock",
            "xfs_file_",
            "btrfs_inode_lock",
            "btrfs_tree_",
            "btrfs_buffered_write",
            "btrfs_direct_",
            "ovl_",
            "d_alloc_parallel",
        ],
    ),
];

pub(crate) fn kind_of(function: &str) -> Wait {
    let fits = |names: &&[&str]| names.iter().any(|name| function.starts_with(name));
    FUNCTIONS.iter().find(|(_, names)| fits(names)).map_or(Wait::Other, |(wait, _)| *wait)
}

/// Where threads waited: of all hosts, looks count alike.
pub(crate) struct Waits {
    samples: WaitSamples,
    waiting: u64,
    /// Share of the time in which a thread was blocked.
    blocked: f64,
}

impl Waits {
    /// `None`: too few looks found a thread that waits, or the kernel does not say where.
    pub(crate) fn of(totals: &Totals, blocked: Option<f64>) -> Option<Self> {
        let mut samples = WaitSamples::default();
        for waits in totals.reports.iter().map(|report| &report.run.waits) {
            samples.looks += waits.looks;
            for (function, count) in &waits.by_function {
                *samples.by_function.entry(function.clone()).or_default() += count;
            }
        }
        let waiting: u64 = samples.by_function.values().sum();
        let blocked = blocked.unwrap_or(waiting as f64 / samples.looks.max(1) as f64);
        (waiting >= LOOKS_MIN).then_some(Self { samples, waiting, blocked })
    }

    /// What threads waited for longest, if it is more than half of their waits.
    pub(crate) fn mostly(&self) -> Option<Wait> {
        let kinds = [Wait::Lock, Wait::Journal, Wait::Device, Wait::MountProgram, Wait::Own];
        kinds.into_iter().find(|wait| WAITING.is_used_up(self.share(*wait) / self.blocked))
    }

    /// Share of the time in which a thread waited for this.
    pub(crate) fn share(&self, wait: Wait) -> f64 {
        let found: u64 = self.functions(wait).map(|(_, count)| *count).sum();
        self.blocked * found as f64 / self.waiting as f64
    }

    fn functions(&self, wait: Wait) -> impl Iterator<Item = (&String, &u64)> {
        self.samples.by_function.iter().filter(move |(function, _)| kind_of(function) == wait)
    }

    /// The function in which threads waited most often for this.
    pub(crate) fn most_often(&self, wait: Wait) -> Option<&str> {
        self.functions(wait).max_by_key(|(_, count)| **count).map(|(function, _)| function.as_str())
    }

    pub(crate) fn looks(&self) -> u64 {
        self.samples.looks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_names_what_a_thread_waits_for() {
        for (function, wait) in [
            ("ext4_buffered_write_iter", Wait::Lock),
            ("do_unlinkat", Wait::Lock),
            ("jbd2_log_wait_commit", Wait::Journal),
            ("wait_transaction_locked", Wait::Journal),
            ("folio_wait_bit_common", Wait::Device),
            ("submit_bio_wait", Wait::Device),
            ("request_wait_answer", Wait::MountProgram),
            ("hrtimer_nanosleep", Wait::Own),
            ("rpc_wait_bit_killable", Wait::Other),
        ] {
            assert_eq!(kind_of(function), wait, "{function}");
        }
    }
}
