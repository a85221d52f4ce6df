//! The keys of kagiri's objects: `PREFIX/kagiri-files-PID-N/o/GGGGGG/NNNNNNNN`.

use crate::objects::access::address::Address;

/// Objects of a group, which one page of a listing holds.
const GROUP: u64 = 1000;

/// The name of the prefix that a process works below.
#[must_use]
pub fn own_name(process: u32, number: u32) -> String {
    format!("kagiri-files-{process}-{number}")
}

/// What all objects below an own prefix have in front of their numbers.
fn root(own: &Address) -> String {
    format!("{}/o/", own.prefix)
}

#[must_use]
pub fn key(own: &Address, number: u64) -> String {
    format!("{}{:06}/{number:08}", root(own), number / GROUP)
}

/// What the keys of an object's group begin with.
#[must_use]
pub fn group(own: &Address, number: u64) -> String {
    format!("{}{:06}/", root(own), number / GROUP)
}

/// The number of an object of ours; `None` for a key that kagiri does not make.
#[must_use]
pub fn number(own: &Address, found: &str) -> Option<u64> {
    let (_, digits) = found.strip_prefix(&root(own))?.split_once('/')?;
    let number = digits.parse().ok()?;
    (key(own, number) == found).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_keys_have_a_number() {
        let own = Address::parse("s3://bucket/a").unwrap().below(&own_name(7, 0));
        for at in [0, 999, 1000, 123_456_789] {
            assert_eq!(number(&own, &key(&own, at)), Some(at));
            assert!(key(&own, at).starts_with(&group(&own, at)));
        }
        for foreign in
            ["a/kagiri-files-7-0/x", "a/kagiri-files-7-0/o/000000/1", "a/kagiri-files-7-0/o/000001/00000000"]
        {
            assert_eq!(number(&own, foreign), None, "{foreign}");
        }
    }
}
