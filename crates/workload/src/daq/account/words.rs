//! Numbers in words, each with its unit.

pub(super) fn words(all: &[&str]) -> Vec<String> {
    all.iter().map(|word| (*word).to_owned()).collect()
}

pub(super) fn unknown() -> String {
    "?".to_owned()
}

/// A time, with three digits.
pub(super) fn ns(ns: f64) -> String {
    match ns.abs() {
        size if size >= 1e9 => format!("{:.2} s", ns / 1e9),
        size if size >= 1e7 => format!("{:.1} ms", ns / 1e6),
        size if size >= 1e6 => format!("{:.2} ms", ns / 1e6),
        _ => format!("{:.1} us", ns / 1e3),
    }
}

pub(super) fn known_ns(value: Option<u64>) -> String {
    value.map_or_else(unknown, |value| ns(value as f64))
}

pub(super) fn rate(per_s: f64) -> String {
    match per_s {
        rate if rate >= 100.0 => format!("{rate:.0}"),
        rate if rate >= 10.0 => format!("{rate:.1}"),
        rate => format!("{rate:.2}"),
    }
}

pub(super) fn bits(bit_per_s: f64) -> String {
    match bit_per_s {
        rate if rate >= 1e9 => format!("{:.2} Gbit/s", rate / 1e9),
        rate if rate >= 1e6 => format!("{:.1} Mbit/s", rate / 1e6),
        rate => format!("{:.1} kbit/s", rate / 1e3),
    }
}

pub(super) fn bytes(bytes: u64) -> String {
    match bytes as f64 {
        size if size >= 1e9 => format!("{:.2} GB", size / 1e9),
        size if size >= 1e6 => format!("{:.1} MB", size / 1e6),
        size if size >= 1e3 => format!("{:.1} kB", size / 1e3),
        size => format!("{size} B"),
    }
}

pub(super) fn count(count: Option<u64>) -> String {
    count.map_or_else(unknown, |count| count.to_string())
}

/// `1 event`, `2 events`.
pub(super) fn plural(count: u64, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

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

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        let said = [900.0, 1_234_000.0, 12_340_000.0, 2e9].map(ns);
        assert_eq!(said, ["0.9 us", "1.23 ms", "12.3 ms", "2.00 s"]);
        assert_eq!([bytes(12), bytes(1_150_000)], ["12 B", "1.1 MB"]);
        assert_eq!([plural(1, "source"), plural(2, "source")], ["1 source", "2 sources"]);
    }
}
