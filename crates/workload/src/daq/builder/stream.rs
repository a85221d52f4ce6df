//! What comes over a connection, taken apart: headers that may be cut anywhere, and payloads of any length.

use super::memory::Room;
use crate::daq::wire::{HEADER_BYTES, Head, Kind, Piece, WireError};

/// The longest payload of a hello that is read.
const HELLO_BYTES_MAX: u32 = 1024;

/// Where a fragment's payload goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Into the memory of this slot's event, as long as the slot still holds it.
    Held {
        /// The slot.
        slot: u32,
        /// The event that it held.
        event: u64,
        /// Where in its memory.
        room: Room,
    },
    /// Nowhere: it was refused, and it is known why.
    Nowhere,
}

/// What takes the messages of a connection.
pub trait Sink {
    /// A fragment begins: where is it to go? It is counted here if it is refused.
    fn begin(&mut self, fragment: &Piece) -> Place;
    /// Where the payload from `from` on goes; empty: nowhere (any more).
    fn room(&mut self, place: Place, from: u32) -> &mut [u8];
    /// A fragment ended; `crc` is the CRC32C of its payload.
    fn end(&mut self, fragment: &Piece, place: Place, crc: u32);
    /// A source says who it is.
    fn hello(&mut self, hello: &Piece, payload: &[u8]);
    /// A clock question was answered.
    fn answer(&mut self, answer: &Piece);
}

/// One connection's stream of bytes.
#[derive(Debug, Default)]
pub struct Stream {
    /// The beginning of a header (or of a hello) that is still to be completed.
    held: Vec<u8>,
    under_way: Option<UnderWay>,
}

#[derive(Debug)]
struct UnderWay {
    piece: Piece,
    place: Place,
    filled: u32,
    crc: u32,
}

impl UnderWay {
    const fn left(&self) -> u32 {
        self.piece.payload_bytes - self.filled
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.piece.payload_crc != 0 && self.place != Place::Nowhere {
            self.crc = crc32c::crc32c_append(self.crc, bytes);
        }
        self.filled += bytes.len() as u32;
    }
}

impl Stream {
    /// Whether it ended where it may: not within a message.
    pub fn is_between_messages(&self) -> bool {
        self.held.is_empty() && self.under_way.is_none()
    }

    /// What is still to come of a fragment's payload, bytes.
    pub fn left(&self) -> u32 {
        self.under_way.as_ref().map_or(0, UnderWay::left)
    }

    /// The fragment that is coming, if no more than so many bytes of its payload are still to come, and it has as many more.
    pub fn nearly_here(&self, left_max: u32) -> Option<&Piece> {
        let under_way = self.under_way.as_ref().filter(|under_way| under_way.place != Place::Nowhere)?;
        let is_large = under_way.piece.payload_bytes >= 2 * left_max;
        (is_large && under_way.left() <= left_max).then_some(&under_way.piece)
    }

    /// Where what comes next can be received to without a detour; at most what is still to come of the payload.
    pub fn room<'a>(&self, sink: &'a mut impl Sink) -> &'a mut [u8] {
        match &self.under_way {
            Some(under_way) => sink.room(under_way.place, under_way.filled),
            None => &mut [],
        }
    }

    /// So many bytes were received to where [`Self::room`] said.
    pub fn received(&mut self, bytes: usize, sink: &mut impl Sink) {
        let Some(mut under_way) = self.under_way.take() else { return };
        let room = sink.room(under_way.place, under_way.filled);
        under_way.add(&room[..bytes.min(room.len())]);
        self.go_on(under_way, sink);
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`WireError`]: the stream cannot be followed any longer.
    pub fn feed(&mut self, mut bytes: &[u8], sink: &mut impl Sink) -> Result<(), WireError> {
        loop {
            if let Some(mut under_way) = self.under_way.take() {
                let (now, rest) = bytes.split_at(bytes.len().min(under_way.left() as usize));
                let room = sink.room(under_way.place, under_way.filled);
                if let Some(room) = room.get_mut(..now.len()) {
                    room.copy_from_slice(now);
                }
                under_way.add(now);
                bytes = rest;
                self.go_on(under_way, sink);
                if self.under_way.is_some() {
                    return Ok(());
                }
            } else if bytes.is_empty() {
                return Ok(());
            } else if self.held.is_empty() {
                match Self::whole(bytes) {
                    Ok((piece, length)) => bytes = self.message(piece, length, bytes, sink),
                    Err(WireError::Short) => {
                        self.held.extend_from_slice(bytes);
                        return Ok(());
                    }
                    Err(error) => return Err(error),
                }
            } else {
                let missing = self.missing().min(bytes.len());
                self.held.extend_from_slice(&bytes[..missing]);
                bytes = &bytes[missing..];
                match Self::whole(&self.held) {
                    Ok((piece, length)) => {
                        let held = std::mem::take(&mut self.held);
                        self.message(piece, length, &held, sink);
                    }
                    Err(WireError::Short) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// A whole header; of a hello with its payload.
    fn whole(bytes: &[u8]) -> Result<(Piece, usize), WireError> {
        let (piece, length) = Piece::decode(bytes)?;
        if piece.kind != Kind::Fragment {
            if piece.payload_bytes > HELLO_BYTES_MAX {
                return Err(WireError::PayloadLength(piece.payload_bytes));
            }
            if bytes.len() < length + piece.payload_bytes as usize {
                return Err(WireError::Short);
            }
        }
        Ok((piece, length))
    }

    /// How many more bytes are needed to know more; at least 1.
    fn missing(&self) -> usize {
        let known = self.held.len();
        if known < HEADER_BYTES {
            return HEADER_BYTES - known;
        }
        let header = Head::read(&self.held).map_or(HEADER_BYTES, |head| usize::from(head.header_bytes));
        let payload = if known < header {
            0
        } else {
            Piece::decode(&self.held).map_or(0, |(piece, _)| piece.payload_bytes as usize)
        };
        (header + payload).saturating_sub(known).max(1)
    }

    /// Takes a whole header, and returns what follows it.
    fn message<'a>(
        &mut self,
        piece: Piece,
        length: usize,
        bytes: &'a [u8],
        sink: &mut impl Sink,
    ) -> &'a [u8] {
        if piece.kind == Kind::Fragment {
            let place = sink.begin(&piece);
            self.go_on(UnderWay { piece, place, filled: 0, crc: 0 }, sink);
            return &bytes[length..];
        }
        let (payload, rest) = bytes[length..].split_at(piece.payload_bytes as usize);
        match piece.kind {
            Kind::Hello => sink.hello(&piece, payload),
            _ => sink.answer(&piece),
        }
        rest
    }

    fn go_on(&mut self, under_way: UnderWay, sink: &mut impl Sink) {
        if under_way.left() == 0 {
            sink.end(&under_way.piece, under_way.place, under_way.crc);
        } else {
            self.under_way = Some(under_way);
        }
    }
}
