//! Why a program cannot be run.

/// What is wrong, in which file and line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {problem}")]
pub struct WmlError {
    pub file: String,
    /// Counts from 1.
    pub line: u32,
    pub problem: String,
}

/// A problem of a line of the text that is being read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub line: u32,
    pub text: String,
}

impl Problem {
    pub(crate) fn new(line: u32, text: impl Into<String>) -> Self {
        Self { line, text: text.into() }
    }

    pub(crate) fn expected(line: u32, expected: &str, found: &str) -> Self {
        Self::new(line, format!("expected {expected}, found {found}"))
    }

    pub(crate) fn of_file(self, file: &str) -> WmlError {
        WmlError { file: file.to_owned(), line: self.line, problem: self.text }
    }
}
