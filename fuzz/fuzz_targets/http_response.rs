//! Answers of servers, as the virtual player reads them: the same head however it comes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stream::http::{HEAD_BYTES_MAX, Head, HeadReader, HttpError};

fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<Option<(Head, usize)>, HttpError> {
    let (mut reader, mut before) = (HeadReader::default(), 0);
    for piece in pieces {
        if let Some((head, used)) = reader.feed(piece)? {
            assert!(used <= piece.len());
            return Ok(Some((head, before + used)));
        }
        before += piece.len();
    }
    Ok(None)
}

fuzz_target!(|data: &[u8]| {
    let (seed, data) = fuzz::choice(data);
    let whole = read(std::iter::once(data));
    let pieces = read(fuzz::pieces(data, seed));
    // How much of garbage is quoted, and whether it is found too long first, may depend on how it comes.
    match (&whole, &pieces) {
        (Err(_), Err(_)) => {}
        _ if data.len() > HEAD_BYTES_MAX => {}
        _ => assert_eq!(pieces, whole),
    }
    if let Ok(Some((head, _))) = whole {
        let _ = (head.body_bytes(), head.redirect());
        for (asked, total) in [(0, 1), (0, 1000), (999, 1000), (0, u64::MAX)] {
            if let Ok(bytes) = head.body_from(asked, total) {
                assert_eq!(bytes, total - asked);
            }
        }
    }
});
