//! Ranges of source numbers as text.

/// Numbers, ascending, with runs drawn together: `3, 7-9`.
pub(super) fn ranges(numbers: &[u32], shown_max: usize) -> String {
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
    fn runs_of_numbers_are_drawn_together() {
        assert_eq!(ranges(&[9, 3, 7, 8], 8), "3, 7-9");
        assert_eq!(ranges(&[1, 3, 5, 6, 7], 2), "1, 3 and 3 more");
        assert_eq!(ranges(&[u32::MAX], 2), u32::MAX.to_string());
    }
}
