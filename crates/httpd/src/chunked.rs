//! The chunked transfer coding (RFC 9112, 7.1), strict: CRLF only, bounded lines.

/// Longest chunk-size line and longest trailer section in bytes.
const LINE_BYTES_MAX: usize = 1024;
const TRAILER_BYTES_MAX: usize = 8192;

/// The coding is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadChunk(pub &'static str);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// This many bytes of the input were framing.
    Framing(usize),
    /// The next bytes of the input are this much content.
    Content(usize),
    /// The content is complete; what follows is the next request.
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size { value: u64, digits: u32, extension: bool },
    SizeLf(u64),
    Content(u64),
    ContentCr,
    ContentLf,
    // Within the trailers: bytes of the current line so far.
    Trailer(usize),
    TrailerLf(usize),
    Done,
}

/// Takes the coding apart byte by byte, wherever the pieces received are cut.
#[derive(Clone, Debug)]
pub struct Decoder {
    state: State,
    line_bytes: usize,
    trailer_bytes: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { state: NEW_CHUNK, line_bytes: 0, trailer_bytes: 0 }
    }
}

const NEW_CHUNK: State = State::Size { value: 0, digits: 0, extension: false };

impl Decoder {
    /// Looks at the start of `input` (not empty). After [`Step::Content`] the caller takes those bytes away
    /// and says so with [`Decoder::took`].
    pub fn step(&mut self, input: &[u8]) -> Result<Step, BadChunk> {
        if let State::Content(left) = self.state {
            return Ok(Step::Content(usize::try_from(left).unwrap_or(usize::MAX).min(input.len())));
        }
        for (at, &byte) in input.iter().enumerate() {
            if matches!(self.state, State::Content(_)) {
                return Ok(Step::Framing(at));
            }
            if self.state == State::Done {
                return Ok(if at == 0 { Step::Done } else { Step::Framing(at) });
            }
            self.state = self.next(byte)?;
        }
        Ok(Step::Framing(input.len()))
    }

    /// Whether the last chunk and its trailers are complete.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// `bytes` of content were taken.
    pub fn took(&mut self, bytes: usize) {
        if let State::Content(left) = self.state {
            let left = left.saturating_sub(bytes as u64);
            self.state = if left == 0 { State::ContentCr } else { State::Content(left) };
        }
    }

    fn next(&mut self, byte: u8) -> Result<State, BadChunk> {
        match (self.state, byte) {
            (State::Size { value, digits, extension }, _) => self.size(value, digits, extension, byte),
            (State::SizeLf(0), b'\n') => Ok(State::Trailer(0)),
            (State::SizeLf(size), b'\n') => {
                self.line_bytes = 0;
                Ok(State::Content(size))
            }
            (State::ContentCr, b'\r') => Ok(State::ContentLf),
            (State::ContentLf, b'\n') => Ok(NEW_CHUNK),
            (State::Trailer(line), b'\r') => Ok(State::TrailerLf(line)),
            (State::Trailer(line), _) if byte != b'\n' => {
                self.trailer_bytes += 1;
                if self.trailer_bytes > TRAILER_BYTES_MAX {
                    Err(BadChunk("trailers too long"))
                } else {
                    Ok(State::Trailer(line + 1))
                }
            }
            (State::TrailerLf(0), b'\n') => Ok(State::Done),
            (State::TrailerLf(_), b'\n') => Ok(State::Trailer(0)),
            (State::Done | State::Content(_), _) => Ok(self.state),
            _ => Err(BadChunk("malformed chunk")),
        }
    }

    fn size(&mut self, value: u64, digits: u32, extension: bool, byte: u8) -> Result<State, BadChunk> {
        self.line_bytes += 1;
        if self.line_bytes > LINE_BYTES_MAX {
            return Err(BadChunk("chunk-size line too long"));
        }
        match (byte, char::from(byte).to_digit(16)) {
            (b'\r', _) if digits > 0 => Ok(State::SizeLf(value)),
            (b'\n', _) => Err(BadChunk("chunk-size line without CR")),
            _ if extension => Ok(State::Size { value, digits, extension }),
            (b';' | b' ' | b'\t', _) if digits > 0 => Ok(State::Size { value, digits, extension: true }),
            (_, Some(digit)) if digits < 16 => {
                Ok(State::Size { value: value << 4 | u64::from(digit), digits: digits + 1, extension })
            }
            _ => Err(BadChunk("malformed chunk size")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes `input` cut into pieces of `cut` bytes; the content and what is left.
    fn decode(input: &[u8], cut: usize) -> Result<Option<(Vec<u8>, usize)>, BadChunk> {
        let (mut decoder, mut content, mut at) = (Decoder::default(), Vec::new(), 0);
        while at < input.len() {
            let piece = &input[at..(at + cut).min(input.len())];
            match decoder.step(piece)? {
                Step::Framing(n) => at += n,
                Step::Content(n) => {
                    content.extend_from_slice(&piece[..n]);
                    decoder.took(n);
                    at += n;
                }
                Step::Done => break,
            }
        }
        Ok(decoder.is_done().then_some((content, input.len() - at)))
    }

    #[test]
    fn chunked_content_is_independent_of_splits() {
        let coded = b"4;x=\"1\"\r\nWiki\r\n6\r\npedia \r\nE\r\nin \r\n\r\nchunks.\r\n0\r\nA: b\r\n\r\nGET";
        for cut in 1..coded.len() {
            let (content, left) = decode(coded, cut).unwrap().unwrap();
            assert_eq!((content.as_slice(), left), (&b"Wikipedia in \r\n\r\nchunks."[..], 3), "cut {cut}");
        }
    }

    #[test]
    fn malformed_chunks_are_refused() {
        for bad in [
            "\r\n",
            "g\r\n",
            "4\nWiki",
            "4\r\nWikiX",
            "-1\r\n",
            "0x4\r\n",
            "11111111111111111\r\n",
            ";\r\n",
            "0\r\nA: b\n",
        ] {
            assert!(decode(bad.as_bytes(), 5).is_err(), "{bad:?}");
        }
        assert!(decode(format!("4;{}", "x".repeat(2000)).as_bytes(), 64).is_err());
        assert!(decode(format!("0\r\n{}", "x: y\r\n".repeat(3000)).as_bytes(), 64).is_err());
        assert_eq!(decode(b"4\r\nWi", 64), Ok(None));
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_chunks_decode_or_are_refused(
            input in proptest::collection::vec(proptest::sample::select(&b"0123aF;\r\n xyz"[..]), 0..200),
            cut in 1_usize..50,
        ) {
            if let Ok(Some((content, left))) = decode(&input, cut) {
                proptest::prop_assert!(content.len() + left < input.len());
            }
        }
    }
}
