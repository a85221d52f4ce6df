//! Name patterns: `*` matches any characters.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern(String);

impl Pattern {
    pub fn any() -> Self {
        Self("*".into())
    }

    pub fn new(text: &str) -> Result<Self, String> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '*' | '@');
        match text.chars().all(fits) && !text.is_empty() && text.len() <= 255 {
            true => Ok(Self(text.into())),
            false => Err(format!(
                "'{text}' is no name pattern: letters, digits, '.', '-', '_', and '*' for any of them"
            )),
        }
    }

    pub fn matches(&self, name: &str) -> bool {
        fits(self.0.as_bytes(), name.as_bytes())
    }

    /// Whether this pattern matches all names that `other` matches. Only a `*` matches a `*`.
    pub fn covers(&self, other: &Self) -> bool {
        self.matches(&other.0)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Greedy matching with backtracking to the last `*`: at most pattern times name steps.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, n));
            p += 1;
        } else if pattern.get(p) == Some(&name[n]) {
            p += 1;
            n += 1;
        } else if let Some((after, taken)) = star {
            star = Some((after, taken + 1));
            p = after + 1;
            n = taken + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_matches_any_characters() {
        let cases = [
            ("*", "", true),
            ("*", "stream.viewers", true),
            ("stream.*", "stream.viewers", true),
            ("stream.*", "streams", false),
            ("*.viewers", "stream.viewers", true),
            ("s*m.*s", "stream.viewers", true),
            ("s*m.*x", "stream.viewers", false),
            ("stream.viewers", "stream.viewers", true),
            ("stream.viewers", "stream.viewer", false),
            ("a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ];
        for (pattern, name, fits) in cases {
            assert_eq!(Pattern::new(pattern).unwrap().matches(name), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn wider_pattern_covers_narrower_one() {
        let covers = |a, b| Pattern::new(a).unwrap().covers(&Pattern::new(b).unwrap());
        assert!(covers("*", "stream.*") && covers("stream.*", "stream.v*") && covers("a", "a"));
        assert!(!covers("stream.*", "*") && !covers("a*", "*a") && !covers("a", "b"));
    }

    #[test]
    fn invalid_pattern_is_rejected() {
        for text in ["", "a b", "stream/x", "é", "\n"] {
            assert!(Pattern::new(text).unwrap_err().contains("no name pattern"), "{text}");
        }
    }
}
