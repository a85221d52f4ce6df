//! Patterns of hosts' names.

/// A pattern spells out at most this many names.
const NAMES_MOST: usize = 100_000;
/// Numbers in names have at most this many digits.
const DIGITS_MOST: usize = 9;

/// The names that a pattern with ranges stands for; `None` when it is none, or stands for too many.
pub(super) fn expand(pattern: &str) -> Option<Vec<String>> {
    let Some((head, rest)) = pattern.split_once('[') else {
        return (!pattern.contains(']')).then(|| vec![pattern.to_owned()]);
    };
    let (inside, tail) = rest.split_once(']')?;
    let (ranges, tails) = (ranges(inside)?, expand(tail)?);
    let numbers: usize = ranges.iter().map(|range| (range.high - range.low) as usize + 1).sum();
    if numbers.checked_mul(tails.len())? > NAMES_MOST {
        return None;
    }
    let mut all = Vec::new();
    for Range { low, high, digits } in ranges {
        for number in low..=high {
            all.extend(tails.iter().map(|tail| format!("{head}{number:0digits$}{tail}")));
        }
    }
    Some(all)
}

/// Numbers in a name, `1-20`; as many digits as written: `08-10` is 08, 09, 10.
struct Range {
    low: u32,
    high: u32,
    digits: usize,
}

fn ranges(inside: &str) -> Option<Vec<Range>> {
    let range = |text: &str| {
        let (first, last) = text.trim().split_once('-').unwrap_or((text.trim(), text.trim()));
        let number = |text: &str| text.parse().ok().filter(|_: &u32| text.len() <= DIGITS_MOST);
        let (low, high) = (number(first)?, number(last)?);
        let digits = if first.starts_with('0') { first.len() } else { 0 };
        (low <= high).then_some(Range { low, high, digits })
    };
    inside.split(',').map(range).collect()
}

/// Whether a name fits a pattern. Whatever both are, it takes no longer than their lengths multiplied, and no
/// stack: both may come from strangers.
pub(super) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    // Which beginnings of the name, by their length, the pattern fits as far as it has been read.
    let mut fits = vec![false; name.len() + 1];
    fits[0] = true;
    let mut rest = pattern;
    while let Some((&first, tail)) = rest.split_first() {
        let Some(shortest) = fits.iter().position(|fits| *fits) else { return false };
        let mut next = vec![false; name.len() + 1];
        let starts = (shortest..=name.len()).filter(|&start| fits[start]);
        rest = match first {
            b'*' => {
                next[shortest..].fill(true);
                tail
            }
            b'[' => {
                let Some((numbers, tail)) = Numbers::read(tail) else { return false };
                for start in starts {
                    numbers.lengths(&name[start..]).for_each(|length| next[start + length] = true);
                }
                tail
            }
            byte => {
                let is_same =
                    |start: &usize| name.get(*start).is_some_and(|own| byte == b'?' || byte == *own);
                starts.filter(is_same).for_each(|start| next[start + 1] = true);
                tail
            }
        };
        fits = next;
    }
    fits[name.len()]
}

struct Numbers {
    ranges: Vec<Range>,
    /// Whether further digits may follow, because the pattern says so. Elsewhere a number is never the
    /// beginning of a longer one: `pc-[1-2]*` is not pc-10.
    may_go_on: bool,
}

impl Numbers {
    /// What a pattern holds after a `[`, and what follows its `]`; nothing if these are no ranges.
    fn read(pattern: &[u8]) -> Option<(Self, &[u8])> {
        let end = pattern.iter().position(|byte| *byte == b']')?;
        let (ranges, tail) = (ranges(std::str::from_utf8(&pattern[..end]).ok()?)?, &pattern[end + 1..]);
        let may_go_on = tail.first().is_some_and(|byte| *byte == b'[' || byte.is_ascii_digit());
        Some((Self { ranges, may_go_on }, tail))
    }

    /// How long the beginnings of a text are that are among them.
    fn lengths<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
        // Longer ones are in no range.
        let digits = text.iter().take(DIGITS_MOST + 1).take_while(|byte| byte.is_ascii_digit()).count();
        let shortest = if self.may_go_on { 1 } else { digits.max(1) };
        (shortest..=digits).filter(|length| self.contain(&text[..*length]))
    }

    fn contain(&self, digits: &[u8]) -> bool {
        let Ok(text) = std::str::from_utf8(digits) else { return false };
        let Ok(number) = text.parse::<u32>() else { return false };
        self.ranges.iter().any(|range| {
            (range.low..=range.high).contains(&number)
                && text == format!("{number:0digits$}", digits = range.digits)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn long_name_needs_little_time_and_stack() {
        // On a thread with little of it; by recursion this took minutes.
        let look = || {
            let name = "a".repeat(1 << 16);
            let fits = |pattern: &str| matches(pattern.as_bytes(), name.as_bytes());
            assert!(fits("*a*") && !fits("*a*a*x") && !fits("*[1-9]"));
        };
        std::thread::Builder::new().stack_size(1 << 16).spawn(look).unwrap().join().unwrap();
    }

    /// What a pattern means, however long that takes to find out.
    fn meant(pattern: &[u8], name: &[u8]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((b'*', rest)) => (0..=name.len()).any(|taken| meant(rest, &name[taken..])),
            Some((b'[', rest)) => Numbers::read(rest).is_some_and(|(numbers, rest)| {
                numbers.lengths(name).any(|length| meant(rest, &name[length..]))
            }),
            Some((first, rest)) => name
                .split_first()
                .is_some_and(|(own, name)| (first == own || *first == b'?') && meant(rest, name)),
        }
    }

    proptest! {
        #[test]
        fn wildcards_match_like_the_reference(
            pattern in "(a|b|1|\\?|\\*|\\*|\\[1-20\\]){0,8}", name in "[ab12]{0,10}"
        ) {
            prop_assert_eq!(matches(pattern.as_bytes(), name.as_bytes()),
                meant(pattern.as_bytes(), name.as_bytes()));
        }

        #[test]
        fn pattern_without_wildcards_matches_exactly_its_expansion(
            pattern in "(a|1|2|\\[1-20\\]|\\[08-11\\]|\\[0,2\\]){1,3}", name in "a{0,1}[0-2]{0,5}"
        ) {
            let all = expand(&pattern).unwrap();
            prop_assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), all.contains(&name));
            prop_assert!(all.iter().all(|one| matches(pattern.as_bytes(), one.as_bytes())));
        }
    }
}
