//! Texts on a connection: a length in four bytes, the highest first, then the text.

/// The shortest JSON object.
const BYTES_MIN: usize = 2;

/// A length that is nothing, or beyond all reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it announces a text of {announced} bytes, where {BYTES_MIN} to {most} are taken")]
pub struct WrongLength {
    pub announced: u32,
    pub most: usize,
}

/// A text with its length in front.
pub fn frame(text: &[u8]) -> Vec<u8> {
    let len = u32::try_from(text.len()).unwrap_or(u32::MAX);
    [&len.to_be_bytes(), text].concat()
}

/// The length that four bytes announce.
pub fn length(bytes: [u8; 4], bytes_max: usize) -> Result<usize, WrongLength> {
    let announced = u32::from_be_bytes(bytes);
    let len = usize::try_from(announced).ok().filter(|len| (BYTES_MIN..=bytes_max).contains(len));
    len.ok_or(WrongLength { announced, most: bytes_max })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths_have_bounds() {
        assert_eq!(length([0, 0, 0, 2], 10), Ok(2));
        for (bytes, announced) in [([0, 0, 0, 1], 1), ([0, 0, 0, 11], 11), ([255; 4], u32::MAX)] {
            assert_eq!(length(bytes, 10), Err(WrongLength { announced, most: 10 }));
        }
    }

    proptest! {
        #[test]
        fn frames_are_read_back(text in prop::collection::vec(any::<u8>(), 2..1000)) {
            let framed = frame(&text);
            let (head, rest) = framed.split_at(4);
            prop_assert_eq!(length(head.try_into().unwrap(), 1000), Ok(text.len()));
            prop_assert_eq!(rest, text);
        }
    }
}
