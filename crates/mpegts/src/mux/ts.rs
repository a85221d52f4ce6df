//! Transport stream packets and tables (ISO/IEC 13818-1), for writing.

use crate::spec::Codec;

pub const PACKET_BYTES: usize = 188;
/// Bytes that a packet without adaptation field carries.
pub(crate) const PAYLOAD_BYTES: usize = 184;
pub(crate) const SYNC: u8 = 0x47;
pub(crate) const PID_PAT: u16 = 0;
/// The PID of the program map in content made here.
pub(crate) const PID_PMT: u16 = 0x1000;
/// The PID of the pictures in content made here.
pub(crate) const PID_VIDEO: u16 = 0x100;
/// Bytes of the adaptation field with a PCR: length, flags, PCR.
pub(crate) const PCR_FIELD_BYTES: usize = 8;

/// Writes the four bytes that begin a packet (2.4.3.2).
pub(crate) fn header(out: &mut Vec<u8>, pid: u16, starts_unit: bool, adaptation: bool, counter: u8) {
    out.extend_from_slice(&[
        SYNC,
        (u8::from(starts_unit) << 6) | (pid >> 8) as u8,
        pid as u8,
        0x10 | (u8::from(adaptation) << 5) | (counter & 15),
    ]);
}

/// Writes an adaptation field that carries only a PCR (2.4.3.4). `pcr` counts 27 MHz.
pub(crate) fn pcr_field(out: &mut Vec<u8>, pcr: u64, random_access: bool) {
    let base = (pcr / 300) & ((1 << 33) - 1);
    let value = (base << 15) | (0x3F << 9) | (pcr % 300);
    out.push(7);
    out.push(0x10 | (u8::from(random_access) << 6));
    out.extend_from_slice(&value.to_be_bytes()[2..]);
}

/// A program association table with one program, as a packet.
pub(crate) fn pat() -> [u8; PACKET_BYTES] {
    let mut section = section_start(0x00, 13, 1);
    section.extend_from_slice(&1_u16.to_be_bytes());
    section.extend_from_slice(&(0xE000 | PID_PMT).to_be_bytes());
    table_packet(PID_PAT, section)
}

/// A program map with one stream of pictures, as a packet.
pub(crate) fn pmt(codec: Codec) -> [u8; PACKET_BYTES] {
    let mut section = section_start(0x02, 18, 1);
    section.extend_from_slice(&(0xE000 | PID_VIDEO).to_be_bytes());
    section.extend_from_slice(&0xF000_u16.to_be_bytes());
    section.push(stream_type(codec));
    section.extend_from_slice(&(0xE000 | PID_VIDEO).to_be_bytes());
    section.extend_from_slice(&0xF000_u16.to_be_bytes());
    table_packet(PID_PMT, section)
}

/// `stream_type` of a codec (table 2-34).
pub(crate) fn stream_type(codec: Codec) -> u8 {
    match codec {
        Codec::Mpeg2 => 0x02,
        Codec::H264 => 0x1B,
        Codec::Hevc => 0x24,
    }
}

/// The codec of a `stream_type`; MPEG-1 pictures count as MPEG-2.
pub(crate) fn codec_of(stream_type: u8) -> Option<Codec> {
    match stream_type {
        0x01 | 0x02 => Some(Codec::Mpeg2),
        0x1B => Some(Codec::H264),
        0x24 => Some(Codec::Hevc),
        _ => None,
    }
}

/// The first eight bytes of a section: `length` counts what follows the length field, `id` is the table's
/// own.
fn section_start(table: u8, length: u16, id: u16) -> Vec<u8> {
    let mut section = vec![table];
    section.extend_from_slice(&(0xB000 | length).to_be_bytes());
    section.extend_from_slice(&id.to_be_bytes());
    // Version 0, current; section 0 of 0.
    section.extend_from_slice(&[0xC1, 0, 0]);
    section
}

fn table_packet(pid: u16, mut section: Vec<u8>) -> [u8; PACKET_BYTES] {
    section.extend_from_slice(&crc32(&section).to_be_bytes());
    let mut out = Vec::with_capacity(PACKET_BYTES);
    header(&mut out, pid, true, false, 0);
    // pointer_field: the section begins at once.
    out.push(0);
    out.extend_from_slice(&section);
    let mut packet = [0xFF; PACKET_BYTES];
    packet[..out.len()].copy_from_slice(&out);
    packet
}

/// The CRC of table sections: polynomial 0x04C11DB7, most significant bit first, start all ones (annex A).
/// Over a section with its CRC it is 0.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ (u32::from(byte) << 24), |crc, _| {
            if crc >> 31 == 1 { (crc << 1) ^ 0x04C1_1DB7 } else { crc << 1 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_crc_matches_the_standard() {
        // The check value of CRC-32/MPEG-2.
        assert_eq!(crc32(b"123456789"), 0x0376_E6E7);
        for packet in [pat(), pmt(Codec::H264)] {
            let length = usize::from(packet[7]) + 3;
            assert_eq!(crc32(&packet[5..5 + length]), 0);
            assert!(packet[5 + length..].iter().all(|&b| b == 0xFF));
        }
    }

    #[test]
    fn pcr_field_holds_base_and_extension() {
        let mut out = Vec::new();
        pcr_field(&mut out, 27_000_000 * 10 + 299, true);
        assert_eq!(out.len(), PCR_FIELD_BYTES);
        assert_eq!(out[..2], [7, 0x50]);
        let value = out[2..].iter().fold(0_u64, |v, &b| (v << 8) | u64::from(b));
        assert_eq!((value >> 15, value & 511, value >> 9 & 63), (900_000, 299, 63));
    }
}
