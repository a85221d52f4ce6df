//! How the program ends: the exit codes that scripts rely on.

use std::process::ExitCode;

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

    /// The exit code that it ends with.
    pub fn code(&self) -> Code {
        match self {
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
