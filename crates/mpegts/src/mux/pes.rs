//! Pictures as packetised elementary stream (ISO/IEC 13818-1, 2.4.3.6), cut into transport packets.

use crate::mux::ts::{self, PACKET_BYTES, PAYLOAD_BYTES, PCR_FIELD_BYTES, PID_VIDEO};
use crate::spec::Codec;

/// Prepared padding packets: a multiple of 16, so that the counters wrap.
const TEMPLATE_PACKETS: usize = 256;
/// Bytes that begin a filler unit: start code and header of type 12.
const FILLER_START: [u8; 5] = [0, 0, 0, 1, 0x0C];
/// The byte that ends a filler unit.
const FILLER_END: u8 = 0x80;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// When it is decoded, 90 kHz.
    pub(crate) dts: u64,
    /// When it is shown, 90 kHz.
    pub(crate) pts: u64,
    /// The clock at its first packet, 27 MHz.
    pub(crate) pcr: u64,
}

impl Times {
    /// PTS alone when the picture is shown as it is decoded, else both (2.4.3.7).
    fn header_bytes(self) -> usize {
        if self.dts == self.pts { 14 } else { 19 }
    }
}

/// Cuts pictures into packets, padded to a wanted number.
#[derive(Debug)]
pub(crate) struct Packetiser {
    counter: u8,
    filler: bool,
    /// Packets that hold only padding, with counters 0 to 15 again and again.
    template: Vec<u8>,
}

impl Packetiser {
    pub(crate) fn new(codec: Codec) -> Self {
        // MPEG-2 allows any number of zero bytes before a start code (13818-2, 5.2.3); H.264 has filler units
        // of 0xFF bytes (7.3.2.7).
        let filler = codec == Codec::H264;
        let mut template = Vec::with_capacity(TEMPLATE_PACKETS * PACKET_BYTES);
        for i in 0..TEMPLATE_PACKETS {
            ts::header(&mut template, PID_VIDEO, false, false, i as u8);
            template.resize(template.len() + PAYLOAD_BYTES, if filler { 0xFF } else { 0 });
        }
        Self { counter: 0, filler, template }
    }

    pub(crate) fn packets_min(picture_bytes: usize, times: Times) -> u64 {
        let bytes = picture_bytes + times.header_bytes() + PCR_FIELD_BYTES;
        bytes.div_ceil(PAYLOAD_BYTES) as u64
    }

    /// Writes one picture in exactly `packets` packets, or more if needed. Uses `picture` as scratch memory.
    pub(crate) fn write(
        &mut self,
        out: &mut Vec<u8>,
        picture: &mut Vec<u8>,
        packets: u64,
        times: Times,
        key: bool,
    ) {
        let packets = packets.max(Self::packets_min(picture.len(), times)) as usize;
        let capacity = packets * PAYLOAD_BYTES - PCR_FIELD_BYTES - times.header_bytes();
        let padding = capacity - picture.len();
        let ends_with_mark = self.begin_padding(picture, padding);

        self.header(out, true, true);
        ts::pcr_field(out, times.pcr, key);
        pes_header(out, times);
        let first = PAYLOAD_BYTES - PCR_FIELD_BYTES - times.header_bytes();
        let mut rest = picture.as_slice();
        let mut written = self.payload(out, &mut rest, first);
        while !rest.is_empty() {
            self.header(out, false, false);
            written += self.payload(out, &mut rest, PAYLOAD_BYTES);
        }
        self.padding_packets(out, (capacity - written) / PAYLOAD_BYTES);
        if let (true, Some(last)) = (ends_with_mark, out.last_mut()) {
            *last = FILLER_END;
        }
    }

    /// Appends the beginning of the padding. Returns whether its last byte must end a filler unit.
    fn begin_padding(&self, picture: &mut Vec<u8>, padding: usize) -> bool {
        if !self.filler {
            return false;
        }
        if padding > FILLER_START.len() {
            picture.extend_from_slice(&FILLER_START);
            return true;
        }
        // Too little for a unit: zero bytes may follow any unit (annex B.1.1).
        picture.resize(picture.len() + padding, 0);
        false
    }

    fn header(&mut self, out: &mut Vec<u8>, starts_unit: bool, adaptation: bool) {
        ts::header(out, PID_VIDEO, starts_unit, adaptation, self.counter);
        self.counter = (self.counter + 1) & 15;
    }

    /// Writes `room` bytes: the rest of the picture, then padding.
    fn payload(&self, out: &mut Vec<u8>, rest: &mut &[u8], room: usize) -> usize {
        let (now, later) = rest.split_at(room.min(rest.len()));
        out.extend_from_slice(now);
        out.resize(out.len() + room - now.len(), if self.filler { 0xFF } else { 0 });
        *rest = later;
        room
    }

    fn padding_packets(&mut self, out: &mut Vec<u8>, mut count: usize) {
        while count > 0 {
            let from = usize::from(self.counter);
            let run = count.min(TEMPLATE_PACKETS - from);
            out.extend_from_slice(&self.template[from * PACKET_BYTES..(from + run) * PACKET_BYTES]);
            self.counter = ((from + run) & 15) as u8;
            count -= run;
        }
    }
}

fn pes_header(out: &mut Vec<u8>, times: Times) {
    // Stream 0xE0; length 0: unbounded, allowed for pictures; marker bits, data_alignment_indicator.
    out.extend_from_slice(&[0, 0, 1, 0xE0, 0, 0, 0x84]);
    if times.pts == times.dts {
        out.extend_from_slice(&[0x80, 5]);
        timestamp(out, 0b0010, times.pts);
    } else {
        out.extend_from_slice(&[0xC0, 10]);
        timestamp(out, 0b0011, times.pts);
        timestamp(out, 0b0001, times.dts);
    }
}

/// A time of 33 bits in five bytes, with its marker bits.
fn timestamp(out: &mut Vec<u8>, prefix: u8, ticks: u64) {
    let [a, b, c] = [(ticks >> 30) & 7, (ticks >> 15) & 0x7FFF, ticks & 0x7FFF];
    out.push((prefix << 4) | (a as u8) << 1 | 1);
    out.extend_from_slice(&((b << 1 | 1) as u16).to_be_bytes());
    out.extend_from_slice(&((c << 1 | 1) as u16).to_be_bytes());
}

/// Reads a time of 33 bits; `None` when a marker bit is wrong.
pub(crate) fn read_timestamp(bytes: &[u8]) -> Option<u64> {
    let b: &[u8; 5] = bytes.get(..5)?.try_into().ok()?;
    if b[0] & b[2] & b[4] & 1 == 0 {
        return None;
    }
    let high = u64::from(b[0] >> 1 & 7);
    let middle = u64::from(u16::from_be_bytes([b[1], b[2]]) >> 1);
    let low = u64::from(u16::from_be_bytes([b[3], b[4]]) >> 1);
    Some(high << 30 | middle << 15 | low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_round_trip() {
        for ticks in [0, 1, 0x7FFF, 0x8000, 90_000, (1 << 33) - 1, 0x1_2345_6789] {
            let mut out = Vec::new();
            timestamp(&mut out, 0b0010, ticks);
            assert_eq!((read_timestamp(&out), out[0] >> 4), (Some(ticks), 2));
        }
        assert_eq!(read_timestamp(&[0x20, 0, 0, 0, 0]), None);
        assert_eq!(read_timestamp(&[0x21]), None);
    }

    #[test]
    fn pictures_fill_exactly_the_given_packets() {
        for codec in [Codec::Mpeg2, Codec::H264] {
            for pts in [7, 8] {
                let times = Times { dts: 7, pts, pcr: 0 };
                let mut counter = 0;
                let mut packetiser = Packetiser::new(codec);
                for bytes in (0..600).chain([70_000]) {
                    for wanted in [0, 1, 2, 3, 4, 300] {
                        let mut out = Vec::new();
                        let least = Packetiser::packets_min(bytes, times);
                        packetiser.write(&mut out, &mut vec![0x55; bytes], wanted, times, false);
                        assert_eq!(out.len() as u64, wanted.max(least) * 188);
                        let payload = check_packets(&out, &mut counter);
                        let es = &payload[times.header_bytes()..];
                        assert!(es[..bytes].iter().all(|&b| b == 0x55));
                        check_padding(codec, &es[bytes..]);
                    }
                }
            }
        }
    }

    fn check_packets(out: &[u8], counter: &mut u8) -> Vec<u8> {
        let mut payload = Vec::new();
        for (i, packet) in out.chunks(PACKET_BYTES).enumerate() {
            assert_eq!((packet[0], packet[3] & 15), (SYNC_BYTE, *counter));
            *counter = (*counter + 1) & 15;
            payload.extend_from_slice(&packet[if i == 0 { 4 + PCR_FIELD_BYTES } else { 4 }..]);
        }
        payload
    }

    const SYNC_BYTE: u8 = ts::SYNC;

    fn check_padding(codec: Codec, padding: &[u8]) {
        match padding.strip_prefix(&FILLER_START) {
            Some([middle @ .., end]) if codec == Codec::H264 => {
                assert!(*end == FILLER_END && middle.iter().all(|&b| b == 0xFF));
            }
            _ => {
                assert!(padding.iter().all(|&b| b == 0));
                assert!(codec == Codec::Mpeg2 || padding.len() <= FILLER_START.len());
            }
        }
    }
}
