//! The fleet's certificate authority, the credentials of its members, and zenoh's settings for them.
//!
//! `kagiri fleet init` makes, offline and in one folder:
//!
//! ```text
//! ca/                    ca.pem, ca.key, issued, revoked: stays on this machine
//! bundles/coordinator/   ca.pem, cert.pem, key.pem, members | users, login, revoked.pem
//! bundles/NAME/          ca.pem, cert.pem, key.pem | login, policy.toml, join.txt
//! routers/NAME/          the same for an external router, with zenohd.json5
//! ```
//!
//! With certificates, both sides show theirs (mutual TLS). With passwords, the coordinator shows its
//! certificate and agents log in inside TLS. zenoh's access control identifies a holder by the common name of
//! its verified certificate, or by its user name: the host's name, or `coordinator@NAME` and `router@NAME`,
//! which no host can have.

mod access;
mod authority;
pub mod connect_error;
mod credentials;
mod file;
mod init;
mod name;
mod revocations;

use std::path::PathBuf;

pub(crate) use access::LEASE;
pub use access::{ZenohSetting, access_control, low_pass_filter, zenohd};
pub(crate) use connect_error::LISTENER_LOG;
pub(crate) use credentials::PeerCertificate;
pub use credentials::{Credentials, Login, Role};
pub use init::{Auth, DAYS_DEFAULT, InitOptions, Initialized, ServerName, init};
pub use name::{Member, MemberKind};

#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// An invalid, duplicate or reserved name.
    #[error("{0}")]
    Usage(String),
    #[error("cannot {what} {path}: {source}", path = .path.display())]
    File { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{path}: {problem}", path = .path.display())]
    Invalid { path: PathBuf, problem: String },
    #[error("cannot make {what}: {why}")]
    Crypto { what: &'static str, why: String },
}

impl IdentityError {
    fn invalid(path: impl Into<PathBuf>, problem: impl Into<String>) -> Self {
        Self::Invalid { path: path.into(), problem: problem.into() }
    }
}
