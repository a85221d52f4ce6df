//! Why a request failed, as the user should read it.

use std::error::Error as _;

use object_store::Error;

use super::guard::Refused;

const LATE: &str = "no answer in time";
/// Longest code of a server, in characters: each code is counted apart.
const CODE_CHARS_MAX: usize = 64;

/// A failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What is counted: `503 SlowDown`.
    pub kind: String,
    /// What to do; empty where that is unknown.
    pub advice: &'static str,
    /// No further request can succeed.
    pub is_final: bool,
    /// The server asks for fewer requests.
    pub is_slow_down: bool,
    /// The server may do better a moment later.
    pub is_passing: bool,
    /// There was no answer within a request's time.
    pub is_late: bool,
}

impl Failure {
    pub(crate) fn timed_out(within_s: f64) -> Self {
        Self {
            kind: format!("no answer within {within_s} s"),
            advice: "; see whether the server still answers, or wait longer (--request-within)",
            is_final: false,
            is_slow_down: false,
            is_passing: true,
            is_late: true,
        }
    }

    /// A listing that would not end.
    pub(super) fn endless_listing(within_s: f64) -> Self {
        Self {
            kind: format!("the listing was not complete within {within_s} s"),
            advice: "; see whether an S3 server answers at AWS_ENDPOINT_URL",
            is_final: true,
            is_slow_down: false,
            is_passing: false,
            is_late: true,
        }
    }

    /// A page whose continuation is where it began.
    pub(super) fn repeated_page() -> Self {
        Self {
            kind: "the listing has no end: the server gave the same continuation token twice".to_owned(),
            is_late: false,
            ..Self::endless_listing(0.0)
        }
    }

    /// An answer that is not what was written.
    pub(crate) fn wrong_length(got: u64, wanted: u64) -> Self {
        Self {
            kind: format!("an object has {got} bytes in place of {wanted}"),
            advice: "; the store lost or changed an object",
            is_final: false,
            is_slow_down: false,
            is_passing: false,
            is_late: false,
        }
    }

    pub(crate) fn of(error: &Error) -> Self {
        // The library keeps the answer's status and code in its text alone.
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(inner) = source {
            if let Some(refused) = inner.downcast_ref::<Refused>() {
                return Self::refused(refused);
            }
            text.push_str(": ");
            text.push_str(&inner.to_string());
            source = inner.source();
        }
        Self::of_text(&text)
    }

    fn refused(why: &Refused) -> Self {
        let (advice, is_final) = match why {
            Refused::Redirect { .. } => {
                ("; set AWS_ENDPOINT_URL and AWS_REGION to the server and region of the bucket", true)
            }
            Refused::TooLong => ("; see whether an S3 server answers at AWS_ENDPOINT_URL", false),
        };
        let kind = why.to_string();
        Self { kind, advice, is_final, is_slow_down: false, is_passing: false, is_late: false }
    }

    fn of_text(text: &str) -> Self {
        let code = between(text, "<Code>", "</Code>");
        let status = between(text, "status code: ", ":").and_then(|status| status.split(' ').next());
        let (advice, is_final) = advice(code.unwrap_or_default(), status.unwrap_or_default());
        let is_slow_down = matches!(code, Some("SlowDown" | "ServiceUnavailable" | "RequestLimitExceeded"))
            || matches!(status, Some("503" | "429"));
        let kind = match (status, code) {
            (Some(status), Some(code)) => format!("{status} {}", clipped(code)),
            (Some(status), None) => format!("{status} without a reason"),
            (None, Some(code)) => clipped(code),
            (None, None) => return Self::of_transport(text),
        };
        let is_passing = is_slow_down || status.is_some_and(|status| status.starts_with('5'));
        Self { kind, advice, is_final, is_slow_down, is_passing, is_late: false }
    }

    fn of_transport(text: &str) -> Self {
        let lower = text.to_ascii_lowercase();
        let has = |part: &str| lower.contains(part);
        let (kind, advice) = match () {
            () if has("connection refused") => ("connection refused", "; is the server running there?"),
            () if has("dns error") || has("failed to lookup") => {
                ("the server's name is unknown", "; see AWS_ENDPOINT_URL")
            }
            () if has("certificate") => return Self::of_certificate(&lower),
            () if has("timed out") || has("timeout") => {
                (LATE, "; see whether the server answers, or wait longer (--request-within)")
            }
            () if has("reset") || has("broken pipe") || has("closed") || has("incomplete") => {
                ("the connection was lost", "; see the server's log")
            }
            () if has("unreachable") => ("the server's host is unreachable", "; see AWS_ENDPOINT_URL"),
            () => ("", "; see AWS_ENDPOINT_URL, and whether an S3 server answers there"),
        };
        let kind = if kind.is_empty() { last_part(text) } else { kind.to_owned() };
        let is_late = kind == LATE;
        Self { kind, advice, is_final: false, is_slow_down: false, is_passing: true, is_late }
    }

    /// What a TLS client has against a server's certificate, in lower case; no further request can succeed.
    fn of_certificate(text: &str) -> Self {
        let (kind, advice) = match () {
            () if text.contains("not valid for name") || text.contains("notvalidforname") => (
                "the server's certificate is for another name",
                "; use a name of the certificate in AWS_ENDPOINT_URL",
            ),
            () if text.contains("expired")
                || text.contains("not valid yet")
                || text.contains("notvalidyet") =>
            {
                (
                    "the server's certificate is not valid at this time",
                    "; renew it, or set the clock of this host (NTP)",
                )
            }
            () => (
                "the server's certificate is not trusted",
                "; give the certificate of its authority in AWS_CA_BUNDLE, or add it to the system's",
            ),
        };
        let kind = kind.to_owned();
        Self { kind, advice, is_final: true, is_slow_down: false, is_passing: false, is_late: false }
    }

    /// As a sentence about what was asked of what.
    pub(crate) fn sentence(&self, what: &str) -> String {
        format!("{what}: {}{}", self.kind, self.advice)
    }
}

fn clipped(code: &str) -> String {
    code.chars().take(CODE_CHARS_MAX).collect()
}

/// The innermost reason.
fn last_part(text: &str) -> String {
    let last = text.rsplit(": ").find(|part| !part.trim().is_empty()).unwrap_or(text);
    last.chars().take(120).collect()
}

fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<&'a str> {
    let rest = &text[text.find(from)? + from.len()..];
    rest.find(to).map(|end| rest[..end].trim())
}

/// What to do, and whether no further request can succeed.
fn advice(code: &str, status: &str) -> (&'static str, bool) {
    match (code, status) {
        ("SignatureDoesNotMatch", _) => {
            ("; AWS_SECRET_ACCESS_KEY does not belong to AWS_ACCESS_KEY_ID", true)
        }
        ("InvalidAccessKeyId" | "NotSignedUp", _) => ("; the server does not know AWS_ACCESS_KEY_ID", true),
        ("ExpiredToken" | "InvalidToken", _) => {
            ("; AWS_SESSION_TOKEN is not valid (any more): get new credentials", true)
        }
        ("RequestTimeTooSkewed", _) => ("; set the clock of this host or of the server (NTP)", true),
        ("NoSuchBucket", _) => ("; make the bucket, or see AWS_ENDPOINT_URL and AWS_REGION", true),
        ("PermanentRedirect" | "AuthorizationHeaderMalformed", _) => {
            ("; set AWS_REGION to the bucket's", true)
        }
        ("AccessDenied", _) | (_, "401" | "403") => (
            "; these credentials need s3:ListBucket, GetObject, PutObject and DeleteObject below the prefix",
            true,
        ),
        ("QuotaExceeded" | "InsufficientStorage", _) | (_, "507") => ("; use fewer or smaller objects", true),
        ("SlowDown" | "ServiceUnavailable" | "RequestLimitExceeded", _) | (_, "503" | "429") => {
            ("; the server asks for fewer requests", false)
        }
        _ => ("", false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_apart() {
        let answer = |status: &str, code: &str| {
            format!(
                "Error performing GET http://h/b in 1ms - Server returned non-2xx status code: {status}: \
                 <Error><Code>{code}</Code></Error>"
            )
        };
        for (text, kind, is_final, is_slow_down) in [
            (answer("403 Forbidden", "SignatureDoesNotMatch"), "403 SignatureDoesNotMatch", true, false),
            (answer("503 Service Unavailable", "SlowDown"), "503 SlowDown", false, true),
            (answer("404 Not Found", "NoSuchBucket"), "404 NoSuchBucket", true, false),
            (answer("404 Not Found", "NoSuchKey"), "404 NoSuchKey", false, false),
            ("status code: 503 Service Unavailable: ".to_owned(), "503 without a reason", false, true),
            (
                "HTTP error: tcp connect error: Connection refused (os error 111)".to_owned(),
                "connection refused",
                false,
                false,
            ),
            (
                "client error (Connect): invalid peer certificate: UnknownIssuer".to_owned(),
                "the server's certificate is not trusted",
                true,
                false,
            ),
            (
                "invalid peer certificate: certificate not valid for name \"a\"; it is for b".to_owned(),
                "the server's certificate is for another name",
                true,
                false,
            ),
            (
                "invalid peer certificate: certificate expired: verification time 5".to_owned(),
                "the server's certificate is not valid at this time",
                true,
                false,
            ),
        ] {
            let failure = Failure::of_text(&text);
            assert_eq!(
                (failure.kind.as_str(), failure.is_final, failure.is_slow_down),
                (kind, is_final, is_slow_down)
            );
        }
    }
}
