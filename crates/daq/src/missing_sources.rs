//! Source numbers as text.

use base::format::plural;

/// The missing sources as text: `sources 3, 7-9`; only the first if there are many.
pub(crate) fn text(all: u32, known: &[u32]) -> String {
    let rest = (all as usize).saturating_sub(known.len());
    let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    let word = if all == 1 { "source" } else { "sources" };
    match known.is_empty() {
        true => plural(all.into(), "source"),
        false => format!("{word} {}{more}", ranges(known, 12)),
    }
}

/// Ascending numbers, with runs joined: `3, 7-9`.
fn ranges(numbers: &[u32], shown_max: usize) -> String {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in sorted {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let of = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let rest: usize = runs.iter().skip(shown_max).map(|(first, last)| (last - first + 1) as usize).sum();
    let shown: Vec<String> = runs.iter().take(shown_max).map(of).collect();
    let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_consecutive_numbers() {
        assert_eq!(ranges(&[9, 3, 7, 8], 8), "3, 7-9");
        assert_eq!(ranges(&[1, 3, 5, 6, 7], 2), "1, 3 and 3 more");
        assert_eq!(ranges(&[u32::MAX], 2), u32::MAX.to_string());
    }

    #[test]
    fn missing_shows_ranges_or_count() {
        assert_eq!(text(1, &[7]), "source 7");
        assert_eq!(text(70, &[1, 2, 3]), "sources 1-3 and 67 more");
        assert_eq!(text(5, &[]), "5 sources");
    }
}
