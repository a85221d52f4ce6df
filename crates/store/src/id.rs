//! Run ids: short, sortable by time, typed by hand.

use base::outcome::Run;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::StoreError;

/// Letters and digits that are not mistaken for each other: without 0, 1, i, l and o.
const ALPHABET: &[u8; 31] = b"23456789abcdefghjkmnpqrstuvwxyz";
/// Letters after the time: 923 521 different endings within a second.
const SUFFIX_CHARS: usize = 4;
/// Ids are file names, too.
const ID_BYTES_MAX: usize = 64;

/// An id such as `20261121-143012-k3f9`: the time (UTC) and an ending drawn from `random`.
pub fn new_run_id(now: Timestamp, random: u64) -> String {
    let mut id = now.to_zoned(TimeZone::UTC).strftime("%Y%m%d-%H%M%S-").to_string();
    let mut rest = random;
    for _ in 0..SUFFIX_CHARS {
        id.push(char::from(ALPHABET[(rest % ALPHABET.len() as u64) as usize]));
        rest /= ALPHABET.len() as u64;
    }
    id
}

/// Ids come from foreign files, too, and become file names and words of a command line.
pub(crate) fn check(run: &Run) -> Result<(), StoreError> {
    let id = &run.run;
    let good = (1..=ID_BYTES_MAX).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && id.starts_with(|first: char| first.is_ascii_alphanumeric())
        && !crate::resolve::is_reserved(id);
    if good { Ok(()) } else { Err(StoreError::BadId { id: id.chars().take(ID_BYTES_MAX).collect() }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn run_id_is_time_and_suffix() {
        let now: Timestamp = "2026-11-21T15:30:12.9+01:00".parse().unwrap();
        assert_eq!(new_run_id(now, 0), "20261121-143012-2222");
        assert_eq!(new_run_id(now, 30 + 31), "20261121-143012-z322");
    }

    proptest! {
        #[test]
        fn ids_sort_by_time(a in 0i64..4_000_000_000, later in 1i64..1_000_000, r in any::<u64>(),
            s in any::<u64>()) {
            let at = |second| Timestamp::from_second(second).unwrap();
            prop_assert!(new_run_id(at(a), r) < new_run_id(at(a + later), s));
        }
    }
}
