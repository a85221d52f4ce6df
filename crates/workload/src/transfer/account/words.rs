//! Numbers in words, each with its unit.

pub(super) fn words(all: &[&str]) -> Vec<String> {
    all.iter().map(|word| (*word).to_owned()).collect()
}

pub(super) fn unknown() -> String {
    "?".to_owned()
}

pub(super) fn size(bytes: u64) -> String {
    let value = bytes as f64;
    match value {
        v if v >= 1e12 => format!("{:.3} TB", v / 1e12),
        v if v >= 1e9 => format!("{:.3} GB", v / 1e9),
        v if v >= 1e6 => format!("{:.3} MB", v / 1e6),
        v if v >= 1e3 => format!("{:.1} kB", v / 1e3),
        v => format!("{v} B"),
    }
}

pub(super) fn micros(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{:.2} s", us / 1e6),
        us if us >= 1e3 => format!("{:.2} ms", us / 1e3),
        us => format!("{us:.1} us"),
    }
}

pub(super) fn rate_words(bit_per_s: f64) -> String {
    match bit_per_s {
        rate if rate >= 1e10 => format!("{:.1} Gbit/s", rate / 1e9),
        rate if rate >= 1e9 => format!("{:.2} Gbit/s", rate / 1e9),
        rate if rate >= 1e6 => format!("{:.1} Mbit/s", rate / 1e6),
        rate => format!("{:.1} kbit/s", rate / 1e3),
    }
}

/// A rate of bits in bytes.
pub(super) fn byte_rate_words(bit_per_s: f64) -> String {
    match bit_per_s / 8.0 {
        rate if rate >= 1e6 => format!("{:.2} MB/s", rate / 1e6),
        rate => format!("{:.2} kB/s", rate / 1e3),
    }
}

pub(super) fn count(value: f64) -> String {
    if value >= 1000.0 { format!("{:.1} thousand", value / 1000.0) } else { format!("{value:.0}") }
}

pub(super) fn percent(ratio: f64) -> String {
    match ratio {
        0.0 => "none".to_owned(),
        ratio if ratio < 0.0001 => format!("{:.1e} %", 100.0 * ratio),
        ratio => format!("{:.3} %", 100.0 * ratio),
    }
}
