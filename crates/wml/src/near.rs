//! What a misspelt word may have meant.

/// A word that differs by more edits is another one.
const EDITS_MAX: usize = 2;

/// `; did you mean 'read'?` if one of the known words is near; else empty.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map(|near| format!("; did you mean '{near}'?")).unwrap_or_default()
}

pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Of a short word, two edits leave nothing.
    let most = EDITS_MAX.min(word.chars().count() / 2);
    let edits = |known: &&'a str| strsim::osa_distance(word, known);
    known
        .into_iter()
        .map(|known| (edits(&known), known))
        .filter(|(edits, _)| *edits <= most)
        .min()
        .map(|(_, near)| near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_suggested_and_others_not() {
        let known = ["read", "readwholefile", "write", "set"];
        for (word, near) in [
            ("raed", Some("read")),
            ("wirte", Some("write")),
            ("st", Some("set")),
            ("x", None),
            ("frobnicate", None),
        ] {
            assert_eq!(nearest(word, known), near, "{word}");
        }
        assert_eq!(did_you_mean("reed", known), "; did you mean 'read'?");
    }
}
