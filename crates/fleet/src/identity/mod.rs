//! Who is who: the fleet's own small authority, a bundle of credentials for every host, and what zenoh is told of them.
//!
//! `kagiri fleet init` makes, offline and in one folder,
//!
//! ```text
//! ca/                    ca.pem, ca.key: stays where it was made
//! bundles/coordinator/   ca.pem, cert.pem, key.pem, members | users, login
//! bundles/NAME/          ca.pem, cert.pem, key.pem | login, policy.toml, join.txt
//! routers/NAME/          the same for an external router, and its zenohd.json5
//! ```
//!
//! With certificates both sides show theirs (mutual TLS); with passwords the coordinator shows its certificate, and
//! agents log in inside the encrypted connection. A certificate's common name is what zenoh's access control knows
//! its holder by: the host's name, or `coordinator@NAME` and `router@NAME`, which no host can be called.

mod access;
mod authority;
mod bundle;
mod credentials;
mod file;
mod name;
pub mod reason;

use std::path::PathBuf;

pub use access::{access_control, low_pass_filter, zenohd};
pub use bundle::{Auth, Init, Made, Named, init};
pub use credentials::{Credentials, Login, Role};
pub use name::{Kind, Member};

/// Why credentials cannot be made or used; the message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A name that cannot be one, twice the same, or reserved: wrong usage.
    #[error("{0}")]
    Usage(String),
    /// A file or folder could not be read or written.
    #[error("cannot {what} {path}: {source}", path = .path.display())]
    File {
        /// What was being done.
        what: &'static str,
        /// To which file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A file is there, and cannot be trusted or understood.
    #[error("{path}: {problem}", path = .path.display())]
    Unfit {
        /// Which file.
        path: PathBuf,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// No random numbers or no signature: the cryptography failed.
    #[error("cannot make {what}: {why}")]
    Crypto {
        /// What was being made.
        what: &'static str,
        /// Its own words.
        why: String,
    },
}

impl IdentityError {
    fn unfit(path: impl Into<PathBuf>, problem: impl Into<String>) -> Self {
        Self::Unfit { path: path.into(), problem: problem.into() }
    }
}
