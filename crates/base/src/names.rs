//! Many names in one sentence.

use std::fmt::Display;

/// The first `most` names and how many there are besides: `a, b and 7 more`.
pub fn first_of<N: Display>(names: impl IntoIterator<Item = N>, most: usize) -> String {
    let mut names = names.into_iter();
    let shown: Vec<String> = names.by_ref().take(most).map(|name| name.to_string()).collect();
    let shown = shown.join(", ");
    match names.count() {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_names_are_listed_and_others_counted() {
        for (names, said) in [(&["a", "b"][..], "a, b"), (&["a", "b", "c"], "a, b and 1 more"), (&[][..], "")]
        {
            assert_eq!(first_of(names, 2), said);
        }
    }
}
