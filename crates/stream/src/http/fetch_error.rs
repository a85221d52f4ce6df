use std::net::SocketAddr;

use base::part::PartError;

use super::HttpError;
use super::url::UrlError;

/// Redirects that are followed.
pub(super) const REDIRECTS_MAX: usize = 5;

/// Why content cannot be fetched. Every message names the URL.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The host's policy forbids the address or the rate.
    #[error(transparent)]
    Refused(PartError),
    #[error("{url}: the run was ended before the server had answered")]
    Stopped { url: String },
    #[error("the host of {url} was not found ({why}); check the name")]
    Resolve { url: String, why: String },
    #[error("{url} cannot be reached at {address}: {why}; is the server running, and is this its port?")]
    Connect { url: String, address: SocketAddr, why: String },
    #[error(
        "{url}: the connection broke after {received_bytes} bytes of the response: {why}; \
         check the server's log"
    )]
    Broken { url: String, received_bytes: u64, why: String },
    #[error(
        "{url}: the server ended after {received_bytes} of {expected_bytes} bytes; \
         check its log: the file may have been truncated while it was served"
    )]
    Truncated { url: String, received_bytes: u64, expected_bytes: u64 },
    #[error("{url}: the server closed the connection without a response; check the address and port")]
    Empty { url: String },
    #[error("{url}: no {what} within {allowed_s:.0} s; check the server and the network to it")]
    Timeout { url: String, what: &'static str, allowed_s: f64 },
    #[error(
        "{url} redirects more than {REDIRECTS_MAX} times (last to {last}): a redirect loop; check the server"
    )]
    Redirects { url: String, last: String },
    #[error("{url}: {source}")]
    Http { url: String, source: HttpError },
    #[error("{url} has {bytes} bytes, more than the limit of {bytes_max}; {advice}")]
    TooLarge { url: String, bytes: u64, bytes_max: u64, advice: &'static str },
}

impl From<FetchError> for PartError {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::Refused(refusal) => refusal,
            other => Self::new(other),
        }
    }
}
