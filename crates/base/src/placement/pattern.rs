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

/// The ranges between brackets.
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

/// Whether a name fits a pattern. Whatever both are, it takes no longer than their lengths multiplied, and no stack: both
/// may come from strangers.
pub(super) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut pattern, mut name) = (pattern, name);
    // Where the last star began, and what it has not taken yet. It is enough to let the last one take more: whatever
    // those before it took, the rest of the pattern is the same.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        if let Some((b'*', rest)) = pattern.split_first() {
            (pattern, star) = (rest, Some((rest, name)));
            continue;
        }
        if pattern.is_empty() && name.is_empty() {
            return true;
        }
        if let Some(rest) = step(pattern, name) {
            (pattern, name) = rest;
            continue;
        }
        match &mut star {
            Some((after, [_, left @ ..])) => {
                (pattern, name) = (after, left);
                star = Some((pattern, name));
            }
            _ => return false,
        }
    }
}

/// What is left of both when the first piece of the pattern fits the beginning of the name; nothing if it does not.
fn step<'a>(pattern: &'a [u8], name: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    match (pattern.split_first()?, name.split_first()?) {
        ((b'?', pattern), (_, name)) => Some((pattern, name)),
        ((b'[', _), _) => in_range(pattern, name),
        ((a, pattern), (b, name)) => (a == b).then_some((pattern, name)),
    }
}

/// The same for a pattern that begins with a range. A number is never a part of a longer one.
fn in_range<'a>(pattern: &'a [u8], name: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let end = pattern.iter().position(|byte| *byte == b']')?;
    // Longer ones are in no range.
    let digits = name.iter().take(DIGITS_MOST + 1).take_while(|byte| byte.is_ascii_digit()).count();
    let (inside, text) =
        (std::str::from_utf8(&pattern[1..end]).ok()?, std::str::from_utf8(&name[..digits]).ok()?);
    let number: u32 = text.parse().ok()?;
    let is_named = |range: &Range| {
        (range.low..=range.high).contains(&number)
            && text == format!("{number:0digits$}", digits = range.digits)
    };
    let named = ranges(inside)?.iter().any(is_named);
    named.then(|| (&pattern[end + 1..], &name[digits..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_long_name_takes_neither_long_nor_the_stack() {
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
            Some(_) => step(pattern, name).is_some_and(|(pattern, name)| meant(pattern, name)),
        }
    }

    proptest! {
        #[test]
        fn stars_take_what_the_rest_needs(
            pattern in "(a|b|1|\\?|\\*|\\*|\\[1-20\\]){0,8}", name in "[ab12]{0,10}"
        ) {
            prop_assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), meant(pattern.as_bytes(), name.as_bytes()));
        }
    }
}
