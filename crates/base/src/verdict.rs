//! What a trial came to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The judgement on one trial.
///
/// `Invalid` is not a kind of failure: it says that the generator or a neighbour was at fault, so that
/// nothing was learnt about the target.
// In this order a whole takes the last of its pieces' verdicts: see `of_all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Every objective held.
    Pass,
    /// The target missed an objective.
    Fail,
    /// The measuring side was at fault; the target is not blamed.
    Invalid,
}

impl Verdict {
    /// The word that reports and JSON use.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Invalid => "invalid",
        }
    }

    /// The verdict on a whole from the verdicts on its pieces: an invalid piece spoils the whole, since a
    /// failure beside it may be the generator's doing.
    pub fn of_all(pieces: impl IntoIterator<Item = Self>) -> Self {
        pieces.into_iter().max().unwrap_or(Self::Pass)
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::Verdict::{self, *};

    #[test]
    fn one_invalid_piece_makes_the_whole_invalid() {
        for (pieces, whole) in [
            (vec![], Pass),
            (vec![Pass, Pass], Pass),
            (vec![Pass, Fail], Fail),
            (vec![Fail, Invalid, Pass], Invalid),
        ] {
            assert_eq!(Verdict::of_all(pieces), whole);
        }
    }
}
