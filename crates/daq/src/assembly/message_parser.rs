//! Parses the byte stream of a connection: headers that may be split anywhere, payloads of any length.

use super::fragment_memory::MemoryRange;
use crate::wire::{CommonHeader, FragmentHeader, HEADER_BYTES, Kind, WireError};

const HELLO_BYTES_MAX: u32 = 1024;

/// Where a fragment's payload goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// To the memory of an event, while its slot still holds it.
    Memory { slot: u32, event: u64, range: MemoryRange },
    /// It was refused and counted.
    Discard,
}

pub trait MessageSink {
    /// A fragment begins; the sink decides where its payload goes, and counts it if it refuses it.
    fn begin_fragment(&mut self, fragment: &FragmentHeader) -> Destination;
    /// The memory of the payload from `from` on; empty: discard.
    fn buffer(&mut self, destination: Destination, from: u32) -> &mut [u8];
    /// A fragment is complete; `crc`: CRC32C of its payload.
    fn end_fragment(&mut self, fragment: &FragmentHeader, destination: Destination, crc: u32);
    fn hello(&mut self, hello: &FragmentHeader, payload: &[u8]);
    fn clock_answer(&mut self, answer: &FragmentHeader);
}

#[derive(Debug, Default)]
pub struct MessageParser {
    /// The first bytes of a header or hello.
    incomplete: Vec<u8>,
    partial: Option<PartialFragment>,
}

#[derive(Debug)]
struct PartialFragment {
    header: FragmentHeader,
    destination: Destination,
    filled: u32,
    crc: u32,
}

impl PartialFragment {
    const fn bytes_left(&self) -> u32 {
        self.header.payload_bytes - self.filled
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.header.payload_crc != 0 && self.destination != Destination::Discard {
            self.crc = crc32c::crc32c_append(self.crc, bytes);
        }
        self.filled += bytes.len() as u32;
    }
}

impl MessageParser {
    pub fn is_between_messages(&self) -> bool {
        self.incomplete.is_empty() && self.partial.is_none()
    }

    pub fn bytes_left(&self) -> u32 {
        self.partial.as_ref().map_or(0, PartialFragment::bytes_left)
    }

    /// The current fragment, if at most `left_max` bytes are missing and it is at least twice as large.
    pub fn nearly_complete(&self, left_max: u32) -> Option<&FragmentHeader> {
        let partial = self.partial.as_ref().filter(|partial| partial.destination != Destination::Discard)?;
        let is_large = partial.header.payload_bytes >= 2 * left_max;
        (is_large && partial.bytes_left() <= left_max).then_some(&partial.header)
    }

    /// Memory to which the next payload bytes can be received directly.
    pub fn buffer<'a>(&self, sink: &'a mut impl MessageSink) -> &'a mut [u8] {
        match &self.partial {
            Some(partial) => sink.buffer(partial.destination, partial.filled),
            None => &mut [],
        }
    }

    /// `bytes` were received to [`Self::buffer`].
    pub fn received_in_place(&mut self, bytes: usize, sink: &mut impl MessageSink) {
        let Some(mut partial) = self.partial.take() else { return };
        let buffer = sink.buffer(partial.destination, partial.filled);
        partial.add(&buffer[..bytes.min(buffer.len())]);
        self.continue_fragment(partial, sink);
    }

    /// Parses the next bytes.
    pub fn parse(&mut self, mut bytes: &[u8], sink: &mut impl MessageSink) -> Result<(), WireError> {
        loop {
            if let Some(mut partial) = self.partial.take() {
                let (now, rest) = bytes.split_at(bytes.len().min(partial.bytes_left() as usize));
                let buffer = sink.buffer(partial.destination, partial.filled);
                if let Some(buffer) = buffer.get_mut(..now.len()) {
                    buffer.copy_from_slice(now);
                }
                partial.add(now);
                bytes = rest;
                self.continue_fragment(partial, sink);
                if self.partial.is_some() {
                    return Ok(());
                }
            } else if bytes.is_empty() {
                return Ok(());
            } else if self.incomplete.is_empty() {
                match Self::decode_message(bytes) {
                    Ok((header, length)) => bytes = self.dispatch(header, length, bytes, sink),
                    Err(WireError::Short) => {
                        self.incomplete.extend_from_slice(bytes);
                        return Ok(());
                    }
                    Err(error) => return Err(error),
                }
            } else {
                let missing = self.bytes_needed().min(bytes.len());
                self.incomplete.extend_from_slice(&bytes[..missing]);
                bytes = &bytes[missing..];
                match Self::decode_message(&self.incomplete) {
                    Ok((header, length)) => {
                        let incomplete = std::mem::take(&mut self.incomplete);
                        self.dispatch(header, length, &incomplete, sink);
                    }
                    Err(WireError::Short) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Decodes a header; a hello with its payload.
    fn decode_message(bytes: &[u8]) -> Result<(FragmentHeader, usize), WireError> {
        let (header, length) = FragmentHeader::decode(bytes)?;
        if header.kind != Kind::Fragment {
            if header.payload_bytes > HELLO_BYTES_MAX {
                return Err(WireError::PayloadLength(header.payload_bytes));
            }
            if bytes.len() < length + header.payload_bytes as usize {
                return Err(WireError::Short);
            }
        }
        Ok((header, length))
    }

    /// Bytes needed to decode more; at least 1.
    fn bytes_needed(&self) -> usize {
        let known = self.incomplete.len();
        if known < HEADER_BYTES {
            return HEADER_BYTES - known;
        }
        let header =
            CommonHeader::read(&self.incomplete).map_or(HEADER_BYTES, |head| usize::from(head.header_bytes));
        let payload = if known < header {
            0
        } else {
            FragmentHeader::decode(&self.incomplete).map_or(0, |(header, _)| header.payload_bytes as usize)
        };
        (header + payload).saturating_sub(known).max(1)
    }

    fn dispatch<'a>(
        &mut self,
        header: FragmentHeader,
        length: usize,
        bytes: &'a [u8],
        sink: &mut impl MessageSink,
    ) -> &'a [u8] {
        if header.kind == Kind::Fragment {
            let destination = sink.begin_fragment(&header);
            self.continue_fragment(PartialFragment { header, destination, filled: 0, crc: 0 }, sink);
            return &bytes[length..];
        }
        let (payload, rest) = bytes[length..].split_at(header.payload_bytes as usize);
        match header.kind {
            Kind::Hello => sink.hello(&header, payload),
            _ => sink.clock_answer(&header),
        }
        rest
    }

    fn continue_fragment(&mut self, partial: PartialFragment, sink: &mut impl MessageSink) {
        if partial.bytes_left() == 0 {
            sink.end_fragment(&partial.header, partial.destination, partial.crc);
        } else {
            self.partial = Some(partial);
        }
    }
}
