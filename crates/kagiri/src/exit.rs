//! Exit codes, on which scripts rely, and the failures behind them.

use std::process::ExitCode;

use store::StoreError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// Measured, and every requirement held.
    Measured = 0,
    Failed = 1,
    /// Wrong command line or plan.
    Usage = 2,
    /// Measured, but a requirement does not hold.
    RequirementMissed = 3,
    /// Stopped by Ctrl-C.
    Interrupted = 130,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    Runtime(anyhow::Error),
    /// Wrong command line or plan.
    Usage(String),
    /// Stopped by Ctrl-C before there was a result.
    Interrupted(String),
}

impl Failure {
    pub fn usage(problem: impl std::fmt::Display) -> Self {
        Self::Usage(problem.to_string())
    }

    pub fn runtime(problem: impl std::fmt::Display) -> Self {
        Self::Runtime(anyhow::Error::msg(problem.to_string()))
    }

    /// A failure with a file or directory that the user named: a usage error if it does not exist or is of
    /// the wrong kind, otherwise a failure at run time.
    pub fn of_named(error: impl Into<anyhow::Error>) -> Self {
        let error = error.into();
        let is_wrong_name = |cause: &(dyn std::error::Error + 'static)| {
            cause.downcast_ref::<std::io::Error>().is_some_and(store::is_misnamed)
        };
        match error.chain().any(is_wrong_name) {
            true => Self::Usage(message_of(&error)),
            false => Self::Runtime(error),
        }
    }

    pub fn code(&self) -> Code {
        match self {
            Self::Runtime(error) if is_misnamed(error) => Code::Usage,
            Self::Runtime(_) => Code::Failed,
            Self::Usage(_) => Code::Usage,
            Self::Interrupted(_) => Code::Interrupted,
        }
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Runtime(error.into())
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Runtime(error) => f.write_str(&message_of(error)),
            Self::Usage(problem) | Self::Interrupted(problem) => f.write_str(problem),
        }
    }
}

/// Whether the user named a run or a lab that does not exist.
fn is_misnamed(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<StoreError>().is_some_and(StoreError::is_usage)
            || cause.downcast_ref::<lab::Error>().is_some_and(lab::Error::is_usage)
    })
}

/// An error with its causes, without causes that an earlier message contains.
fn message_of(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |mut message, cause| {
        let cause = cause.to_string();
        if !message.contains(&cause) {
            if !message.is_empty() {
                message.push_str(": ");
            }
            message.push_str(&cause);
        }
        message
    })
}

pub type Outcome = Result<Code, Failure>;

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use anyhow::Context;

    use super::*;

    #[test]
    fn missing_named_file_is_a_usage_error() {
        let of = |kind: ErrorKind| {
            let failed = Err::<(), _>(Error::from(kind)).context("cannot write there").unwrap_err();
            Failure::of_named(failed).code()
        };
        assert_eq!([of(ErrorKind::NotFound), of(ErrorKind::IsADirectory)], [Code::Usage; 2]);
        assert_eq!([of(ErrorKind::PermissionDenied), of(ErrorKind::StorageFull)], [Code::Failed; 2]);
        let unknown = Err::<(), _>(StoreError::NoRun { text: "zzz".into() }).context("cannot show");
        assert_eq!(Failure::from(unknown.unwrap_err()).code(), Code::Usage);
        assert_eq!(Failure::from(StoreError::Full { path: "x".into() }).code(), Code::Failed);
    }
}
