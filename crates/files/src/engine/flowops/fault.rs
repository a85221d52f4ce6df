//! Why a flowop did not do its work.

use nix::errno::Errno;

/// What becomes of a flowop that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It has nothing to do; it is not counted.
    Skipped,
    /// No file fits: which set, and what was wanted of it.
    Exhausted { set: String, wanted: &'static str },
    /// A call failed.
    Call { call: &'static str, error: Errno },
    /// The program cannot mean this.
    Program(String),
    /// The run is over.
    Over,
    /// The thread's work is done (`finishoncount`).
    Finished,
}

impl Fault {
    pub(crate) fn call(call: &'static str) -> impl FnOnce(Errno) -> Self {
        move |error| Self::Call { call, error }
    }
}

/// Whether an error shows that the storage, or the process, cannot go on: the run ends with it.
pub(crate) fn is_final(error: Errno) -> bool {
    use Errno::{
        EACCES, EDQUOT, EINVAL, EIO, EMFILE, ENFILE, ENODEV, ENOMEM, ENOSPC, ENOTCONN, ENXIO, EOPNOTSUPP,
        EPERM, EROFS, ESHUTDOWN, ESTALE,
    };
    matches!(
        error,
        EACCES
            | EDQUOT
            | EINVAL
            | EIO
            | EMFILE
            | ENFILE
            | ENODEV
            | ENOMEM
            | ENOSPC
            | ENOTCONN
            | ENXIO
            | EOPNOTSUPP
            | EPERM
            | EROFS
            | ESHUTDOWN
            | ESTALE
    )
}

/// What to do about a final error; empty where that is unknown.
pub(crate) fn advice(error: Errno) -> &'static str {
    match error {
        Errno::ENOSPC | Errno::EDQUOT => "; use fewer or smaller files, or a larger file system",
        Errno::EROFS => "; mount it for writing",
        Errno::EMFILE | Errno::ENFILE => "; raise the limit of open files (ulimit -n), or use fewer threads",
        Errno::EINVAL => "; direct I/O needs sizes that are multiples of the block size",
        Errno::ESTALE | Errno::ENOTCONN => "; the mount lost its server: mount it again",
        _ => "",
    }
}
