//! Objects and what is in them.

use bytes::Bytes;

/// An object of a worker's share; without a size it is not there, or that is not known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    pub number: u64,
    pub size: Option<u64>,
}

/// `bytes` bytes of the content from place `from` on, which repeats.
pub(crate) fn chunks(content: &Bytes, from: usize, bytes: u64) -> impl Iterator<Item = Bytes> + use<> {
    let content = content.clone();
    let (mut at, mut left) = (from, bytes as usize);
    std::iter::from_fn(move || {
        let taken = left.min(content.len() - at);
        let chunk = (taken > 0).then(|| content.slice(at..at + taken));
        left -= taken;
        at = 0;
        chunk
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_goes_round() {
        let content = Bytes::from_static(b"abcdef");
        let all =
            |from, bytes| chunks(&content, from, bytes).flat_map(|chunk| chunk.to_vec()).collect::<Vec<u8>>();
        assert_eq!(all(4, 5), b"efabc");
        assert_eq!(all(0, 13), b"abcdefabcdefa");
        assert_eq!(all(3, 0), b"");
    }
}
