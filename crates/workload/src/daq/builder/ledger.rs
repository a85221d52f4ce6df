//! The names under which fragments and connections are refused.

use std::collections::BTreeMap;

use crate::daq::report::Ledger;
use crate::daq::wire::WireError;

/// The name of what is wrong with a header or payload.
pub const fn name_of(error: WireError) -> &'static str {
    match error {
        WireError::Short | WireError::Magic | WireError::HeaderLength(_) => "bad_header",
        WireError::Version(_) => "wrong_version",
        WireError::Kind(_) | WireError::Side => "wrong_kind",
        WireError::HeaderChecksum => "header_checksum",
        WireError::PayloadLength(_) => "payload_length",
        WireError::PayloadChecksum => "payload_checksum",
    }
}

impl Ledger {
    /// Counts a source's fragment that was refused.
    pub fn refuse(&mut self, name: &str) {
        count(&mut self.refused, name);
    }

    /// Counts what came of nobody who is known as a source.
    pub fn turn_away(&mut self, name: &str) {
        count(&mut self.turned_away, name);
    }
}

fn count(counts: &mut BTreeMap<String, u64>, name: &str) {
    match counts.get_mut(name) {
        Some(count) => *count += 1,
        None => {
            counts.insert(name.to_owned(), 1);
        }
    }
}
