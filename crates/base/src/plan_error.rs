//! Why a plan cannot be used.

/// Why a plan cannot be used. `line` counts from 1 where it is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}", line.map(|line| format!("line {line}: ")).unwrap_or_default(), self.without_line())]
pub struct PlanError {
    /// What is wrong, and what was expected; without the key.
    pub problem: String,
    pub key: Option<String>,
    pub line: Option<usize>,
}

impl PlanError {
    /// A problem that concerns no particular key.
    pub fn new(problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), key: None, line: None }
    }

    /// A problem with the value of `key`.
    pub fn of_key(key: &str, problem: impl std::fmt::Display) -> Self {
        Self { problem: problem.to_string(), key: Some(key.to_owned()), line: None }
    }

    pub fn without_line(&self) -> String {
        self.key.as_ref().map_or_else(|| self.problem.clone(), |key| format!("{key}: {}", self.problem))
    }

    /// The same error of a key in a table of the plan.
    #[must_use]
    pub fn in_table(self, table: &str) -> Self {
        Self { key: self.key.map(|key| format!("{table}.{key}")), ..self }
    }

    /// Find the line of the key at fault in the plan's text: the first assignment or table with that last
    /// name.
    pub(crate) fn located(mut self, text: &str) -> Self {
        if let (None, Some(key)) = (self.line, &self.key) {
            let name = key.rsplit('.').next().unwrap_or(key);
            let names = |line: &str| {
                let head = line.split('#').next().unwrap_or_default();
                let words = head.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-')));
                words.into_iter().any(|word| word == name) && (head.contains('=') || head.contains('['))
            };
            self.line = text.lines().position(names).map(|index| index + 1);
        }
        self
    }
}
