//! The known word that an unknown one may have meant. Plans, settings of the kernel and the workload language
//! use it; clap does the same for options.

/// A word that differs by more edits is another one.
const EDITS_MAX: usize = 2;
/// Each edit needs this length, but for the first.
const LENGTH_PER_EDIT: usize = 3;
/// The begin of a word, of this length or longer, may mean the word.
const PREFIX_MIN: usize = 6;
/// More known words than this are not listed in a message.
const LISTED_MAX: usize = 12;

/// The known word with the fewest edits, or that begins with `word`; `None`: none is near.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Of a short word, many edits leave nothing.
    let length = word.chars().count();
    let most = EDITS_MAX.min(length / 2).min((length / LENGTH_PER_EDIT).max(1));
    let known: Vec<&str> = known.into_iter().collect();
    let edited = known.iter().map(|known| (strsim::osa_distance(word, known), *known));
    let begun = || known.iter().copied().filter(|known| known.starts_with(word)).min();
    match edited.filter(|(edits, _)| *edits <= most).min() {
        Some((_, near)) => Some(near),
        None => (word.len() >= PREFIX_MIN).then(begun).flatten(),
    }
}

/// `; did you mean 'read'?` if one of the known words is near; else empty.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map(|near| format!("; did you mean '{near}'?")).unwrap_or_default()
}

/// What is wrong with an unknown key: the nearest of the known ones, and all of them if they are few. `all`
/// says where the list is, for a message without both.
pub fn unknown_key(key: &str, known: &[&str], all: &str) -> String {
    let listed = || known.join(", ");
    match (nearest(key, known.iter().copied()), known.len() <= LISTED_MAX) {
        (Some(near), true) if known.len() > 1 => {
            format!("unknown key; did you mean '{near}'? The keys are {}", listed())
        }
        (Some(near), _) => format!("unknown key; did you mean '{near}'?"),
        (None, true) => format!("unknown key; expected one of {}", listed()),
        (None, false) => format!("unknown key; {all}"),
    }
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
            ("readwhole", Some("readwholefile")),
            ("readw", Some("read")),
            ("", None),
            ("frobnicate", None),
        ] {
            assert_eq!(nearest(word, known), near, "{word}");
        }
        assert_eq!(did_you_mean("reed", known), "; did you mean 'read'?");
    }

    #[test]
    fn unknown_key_lists_the_keys_only_if_they_are_few() {
        let few = ["kind", "threads"];
        let text = |key, known: &[&str]| unknown_key(key, known, "see the manual");
        assert_eq!(text("thread", &few), "unknown key; did you mean 'threads'? The keys are kind, threads");
        assert_eq!(text("cost", &few), "unknown key; expected one of kind, threads");
        let many: Vec<String> = (0..=LISTED_MAX).map(|number| format!("key-{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).chain(["hold"]).collect();
        assert_eq!(text("holdd", &many), "unknown key; did you mean 'hold'?");
        assert_eq!(text("cost", &many), "unknown key; see the manual");
    }
}
