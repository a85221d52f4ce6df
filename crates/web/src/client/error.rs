//! Why a console could not be used, in words that name it.

use std::error::Error;
use std::io;

use reqwest::StatusCode;
use rustls::CertificateError;

/// What is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// What the user gave: address, token, certificates.
    Access,
    /// The console answers, and refuses the request.
    Refused(StatusCode),
    /// No connection, or it broke off: a later request may succeed.
    Unreachable,
    /// An answer that this program cannot read.
    Answer,
}

#[derive(Debug)]
pub struct ClientError {
    pub cause: Cause,
    message: String,
}

impl ClientError {
    pub(super) fn new(cause: Cause, message: impl Into<String>) -> Self {
        Self { cause, message: message.into() }
    }

    pub(super) fn access(message: impl Into<String>) -> Self {
        Self::new(Cause::Access, message)
    }

    /// A request that failed before its answer was complete.
    pub(super) fn of_transport(address: &str, error: &reqwest::Error) -> Self {
        let (cause, reason) = explain(error);
        Self::new(cause, format!("console {address}: {reason}"))
    }

    /// Whether something that the user gave is wrong.
    pub fn is_usage(&self) -> bool {
        let wrong = [StatusCode::UNAUTHORIZED, StatusCode::NOT_FOUND, StatusCode::UNPROCESSABLE_ENTITY];
        self.cause == Cause::Access || wrong.iter().any(|status| self.cause == Cause::Refused(*status))
    }

    pub fn is_unreachable(&self) -> bool {
        self.cause == Cause::Unreachable
    }
}

impl std::fmt::Display for ClientError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for ClientError {}

/// The reason among the causes of an error. The library's own words say only that a request failed.
fn explain(error: &reqwest::Error) -> (Cause, String) {
    let mut last = error.to_string();
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(this) = cause {
        if let Some(found) = this.downcast_ref::<rustls::Error>() {
            return of_tls(found);
        }
        let found = this.downcast_ref::<io::Error>();
        if found.is_some_and(|found| found.kind() == io::ErrorKind::ConnectionRefused) {
            let reason = "connection refused; is 'kagiri serve' running there, and is this its port?";
            return (Cause::Unreachable, reason.to_owned());
        }
        last = this.to_string();
        // The error in an io::Error is not its source, which is that of the error.
        cause = match found.and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => this.source(),
        };
    }
    let reason = match (error.is_timeout(), error.is_connect()) {
        (true, true) => {
            "no connection in time; see whether the host is up and a firewall lets it pass".into()
        }
        (true, false) => "no answer in time; see whether the console still works".into(),
        (false, true) => format!("cannot connect: {last}; see whether name and port are right"),
        (false, false) => format!("the connection broke off: {last}"),
    };
    (Cause::Unreachable, reason)
}

fn of_tls(error: &rustls::Error) -> (Cause, String) {
    use CertificateError as C;
    use rustls::Error::{InvalidCertificate, InvalidMessage};
    let reason = match error {
        // A bad signature: the authority has the name of a known one, but not its key.
        InvalidCertificate(C::UnknownIssuer | C::BadSignature) => {
            "its certificate is not trusted: no known authority issued it; name the authority's certificate \
             with --console-ca"
        }
        InvalidCertificate(C::Expired | C::ExpiredContext { .. }) => {
            "its certificate has expired, or this host's clock is ahead"
        }
        InvalidCertificate(C::NotValidYet | C::NotValidYetContext { .. }) => {
            "its certificate is not valid yet, or this host's clock is behind"
        }
        InvalidCertificate(C::NotValidForName | C::NotValidForNameContext { .. }) => {
            "its certificate is for another name; write the name of the certificate in the address"
        }
        InvalidMessage(_) => "it does not speak TLS; is it an http:// address?",
        other => return (Cause::Access, format!("no TLS connection: {other}")),
    };
    (Cause::Access, reason.to_owned())
}
