//! What can go wrong when something small is fetched.

use std::net::SocketAddr;

use base::part::PartError;

use super::HOPS_MAX;
use crate::stream::content::ContentError;
use crate::stream::viewer::http::HttpError;
use crate::stream::viewer::timeline::TimelineError;
use crate::stream::viewer::url::UrlError;

/// Why content cannot be played from an address. The message names the address.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The address is none.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// This host may not send there.
    #[error(transparent)]
    Refused(PartError),
    /// The run is to end early.
    #[error("{url}: the run was ended before the server had answered")]
    Stopped {
        /// What was asked for.
        url: String,
    },
    /// The name leads nowhere.
    #[error("the host of {url} was not found ({why}); check the name")]
    Resolve {
        /// What was asked for.
        url: String,
        /// The resolver's words.
        why: String,
    },
    /// Nobody listens, or nobody is there.
    #[error("{url} cannot be reached at {address}: {why}; is the server running, and is this its port?")]
    Connect {
        /// What was asked for.
        url: String,
        /// At which address.
        address: SocketAddr,
        /// The kernel's words.
        why: String,
    },
    /// The connection broke.
    #[error(
        "{url}: the connection broke after {got_bytes} bytes of the answer: {why}; look into the server's log"
    )]
    Broken {
        /// What was asked for.
        url: String,
        /// How much had come.
        got_bytes: u64,
        /// The kernel's words.
        why: String,
    },
    /// The body was shorter than its length.
    #[error(
        "{url}: the server ended after {got_bytes} of {expected_bytes} bytes; \
         look into its log: the file may have been cut while it was served"
    )]
    Early {
        /// What was asked for.
        url: String,
        /// How much had come.
        got_bytes: u64,
        /// How much was announced.
        expected_bytes: u64,
    },
    /// No answer at all.
    #[error("{url}: the server closed the connection without an answer; check the address and port")]
    Empty {
        /// What was asked for.
        url: String,
    },
    /// Too slow.
    #[error("{url}: no {what} within {allowed_s:.0} s; check the server and the way to it")]
    Deadline {
        /// What was asked for.
        url: String,
        /// What was waited for.
        what: &'static str,
        /// How long.
        allowed_s: f64,
    },
    /// It leads in a circle, or too far.
    #[error(
        "{url} leads on more than {HOPS_MAX} times (last to {last}): a loop of redirects; check the server"
    )]
    Redirects {
        /// What was asked for.
        url: String,
        /// Where it led.
        last: String,
    },
    /// The answer makes no sense for a player.
    #[error("{url}: {source}")]
    Http {
        /// What was asked for.
        url: String,
        /// What is wrong.
        source: HttpError,
    },
    /// More than is read for this purpose.
    #[error("{url} has {bytes} bytes, more than the {bytes_max} that are read for it; {advice}")]
    TooLarge {
        /// What was asked for.
        url: String,
        /// How long it is.
        bytes: u64,
        /// How long it may be.
        bytes_max: u64,
        /// What to do.
        advice: &'static str,
    },
    /// The content is no film.
    #[error("{url}: {source}")]
    Content {
        /// What was asked for.
        url: String,
        /// What is wrong.
        source: ContentError,
    },
    /// The index is no index of a film.
    #[error("{url}: {source}")]
    Timeline {
        /// What was asked for.
        url: String,
        /// What is wrong.
        source: TimelineError,
    },
}

impl From<FetchError> for PartError {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::Refused(refusal) => refusal,
            other => Self::new(other),
        }
    }
}
