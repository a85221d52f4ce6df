//! How content that kagiri made is known again.

use mpegts::{ContentIndex, ContentSpec};

/// Whether content with this index was made to `spec`.
pub fn is_index_of(index: &ContentIndex, spec: &ContentSpec) -> bool {
    let same = index.made().is_some_and(|made| {
        made.rate_bit_per_s == spec.rate_bit_per_s && made.mode == spec.mode && made.seed == spec.seed
    });
    same && index.codec() == spec.codec && index.frame_count() as u32 == spec.frames()
}
