//! The chunked transfer coding: the content does not depend on how it comes.
#![no_main]

use httpd::chunked::{BadChunk, Decoder, Step};
use libfuzzer_sys::fuzz_target;

/// The content, and how many bytes the coding took, if it ended.
type Decoded = Result<(Vec<u8>, Option<usize>), BadChunk>;

fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Decoded {
    let (mut decoder, mut content, mut used) = (Decoder::default(), Vec::new(), 0);
    for mut piece in pieces {
        while !piece.is_empty() {
            let taken = match decoder.step(piece)? {
                Step::Framing(n) => n,
                Step::Content(n) => {
                    content.extend_from_slice(&piece[..n]);
                    decoder.took(n);
                    n
                }
                Step::Done => return Ok((content, Some(used))),
            };
            assert!(taken > 0, "the decoder stands still");
            piece = &piece[taken..];
            used += taken;
        }
    }
    Ok((content, decoder.is_done().then_some(used)))
}

fuzz_target!(|data: &[u8]| {
    let (seed, data) = fuzz::choice(data);
    let whole = decode(std::iter::once(data).filter(|data| !data.is_empty()));
    assert_eq!(decode(fuzz::pieces(data, seed)), whole);
    if let Ok((content, _)) = whole {
        assert!(content.len() <= data.len());
    }
});
