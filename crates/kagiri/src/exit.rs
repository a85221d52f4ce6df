//! How the program ends: the exit codes that scripts rely on.

use std::process::ExitCode;

use store::StoreError;

/// Exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// Measured, and every requirement held.
    Measured = 0,
    /// It could not be measured.
    Failed = 1,
    /// The command line or the plan is wrong.
    Usage = 2,
    /// Measured, and a requirement did not hold.
    RequirementMissed = 3,
    /// Ended by Ctrl-C.
    Interrupted = 130,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

/// Why a verb could not be performed.
#[derive(Debug)]
pub enum Failure {
    /// The world did not play along.
    World(anyhow::Error),
    /// The command line or a plan is wrong.
    Usage(String),
    /// Ended by Ctrl-C before there was anything to show.
    Interrupted(String),
}

impl Failure {
    /// A wrong command line or plan.
    pub fn usage(problem: impl std::fmt::Display) -> Self {
        Self::Usage(problem.to_string())
    }

    /// What could not be done with a file or directory that the user named: wrong usage if it is not there or of the
    /// wrong kind, the world's fault otherwise.
    pub fn of_named(error: impl Into<anyhow::Error>) -> Self {
        let error = error.into();
        let misnamed = |cause: &(dyn std::error::Error + 'static)| {
            cause.downcast_ref::<std::io::Error>().is_some_and(store::is_misnamed)
        };
        match error.chain().any(misnamed) {
            true => Self::Usage(told_once(&error)),
            false => Self::World(error),
        }
    }

    /// The exit code that it ends with.
    pub fn code(&self) -> Code {
        match self {
            Self::World(error) if is_misnamed(error) => Code::Usage,
            Self::World(_) => Code::Failed,
            Self::Usage(_) => Code::Usage,
            Self::Interrupted(_) => Code::Interrupted,
        }
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::World(error.into())
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::World(error) => f.write_str(&told_once(error)),
            Self::Usage(problem) | Self::Interrupted(problem) => f.write_str(problem),
        }
    }
}

/// A run or a lab is named by the user wherever one is looked up or read.
fn is_misnamed(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<StoreError>().is_some_and(StoreError::is_usage)
            || cause.downcast_ref::<lab::Error>().is_some_and(lab::Error::is_usage)
    })
}

/// An error with its causes; a cause that the message above it has told already is not repeated.
fn told_once(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |mut told, cause| {
        let cause = cause.to_string();
        if !told.contains(&cause) {
            if !told.is_empty() {
                told.push_str(": ");
            }
            told.push_str(&cause);
        }
        told
    })
}

/// What a verb comes to.
pub type Outcome = Result<Code, Failure>;

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use anyhow::Context;

    use super::*;

    #[test]
    fn what_the_user_named_and_is_not_there_is_wrong_usage() {
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
