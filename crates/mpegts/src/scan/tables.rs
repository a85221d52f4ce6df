//! Parses the tables that name the pictures' PID (ISO/IEC 13818-1, 2.4.4).

use crate::mux::ts::{PID_PAT, codec_of, crc32};
use crate::spec::Codec;

const PROGRAMS_MAX: usize = 64;
/// The longest section: 12 bits of length, and the three bytes before.
const SECTION_BYTES_MAX: usize = 4098;

/// Finds the first stream of pictures.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pat: SectionReader,
    maps: Vec<(u16, SectionReader)>,
    video: Option<(u16, Codec)>,
}

impl Tables {
    /// PID and codec of the pictures, once both tables were seen.
    pub(super) fn video(&self) -> Option<(u16, Codec)> {
        self.video
    }

    pub(super) fn has_program(&self) -> bool {
        !self.maps.is_empty()
    }

    /// Takes the payload of any packet.
    pub(super) fn feed(&mut self, pid: u16, starts_unit: bool, payload: &[u8]) {
        if self.video.is_some() {
            return;
        }
        if pid == PID_PAT {
            if let Some(section) = self.pat.feed(starts_unit, payload) {
                read_pat(section, &mut self.maps);
            }
        } else if let Some((_, reader)) = self.maps.iter_mut().find(|(map, _)| *map == pid)
            && let Some(section) = reader.feed(starts_unit, payload)
        {
            self.video = read_pmt(section);
        }
    }
}

fn read_pat(section: &[u8], maps: &mut Vec<(u16, SectionReader)>) {
    if section[0] != 0 {
        return;
    }
    for entry in section.get(8..section.len() - 4).unwrap_or_default().chunks_exact(4) {
        let (program, pid) = (u16::from_be_bytes([entry[0], entry[1]]), pid_at(entry, 2));
        if program != 0 && maps.len() < PROGRAMS_MAX && !maps.iter().any(|(known, _)| *known == pid) {
            maps.push((pid, SectionReader::default()));
        }
    }
}

fn read_pmt(section: &[u8]) -> Option<(u16, Codec)> {
    if section[0] != 2 || section.len() < 16 {
        return None;
    }
    let end = section.len() - 4;
    let mut at = 12 + length_at(section, 10);
    while at + 5 <= end {
        if let Some(codec) = codec_of(section[at]) {
            return Some((pid_at(section, at + 1), codec));
        }
        at += 5 + length_at(section, at + 3);
    }
    None
}

fn pid_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]]) & 0x1FFF
}

fn length_at(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]) & 0x0FFF)
}

/// Assembles the sections of one PID.
#[derive(Debug, Default)]
struct SectionReader {
    bytes: Vec<u8>,
    collecting: bool,
}

impl SectionReader {
    /// The section that this payload completes, if its checksum is right.
    fn feed(&mut self, starts_unit: bool, payload: &[u8]) -> Option<&[u8]> {
        if starts_unit {
            // The pointer skips the end of the previous section, which repeats soon.
            let start = 1 + usize::from(*payload.first()?);
            self.bytes.clear();
            self.bytes.extend_from_slice(payload.get(start..)?);
            self.collecting = true;
        } else if self.collecting {
            self.bytes.extend_from_slice(payload);
        }
        if !self.collecting || self.bytes.len() < 3 {
            return None;
        }
        let length = 3 + length_at(&self.bytes, 1);
        if !(12..=SECTION_BYTES_MAX).contains(&length) {
            self.collecting = false;
            return None;
        }
        let section = self.bytes.get(..length)?;
        self.collecting = false;
        (crc32(section) == 0).then_some(section)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mux::ts;

    #[test]
    fn written_tables_are_parsed() {
        for codec in [Codec::Mpeg2, Codec::H264, Codec::Hevc] {
            let mut tables = Tables::default();
            tables.feed(ts::PID_PMT, true, &ts::pmt(codec)[4..]);
            assert_eq!(tables.video(), None);
            tables.feed(PID_PAT, true, &ts::pat()[4..]);
            tables.feed(ts::PID_PMT, true, &ts::pmt(codec)[4..]);
            assert_eq!(tables.video(), Some((ts::PID_VIDEO, codec)));
        }
    }

    #[test]
    fn sections_span_packets_and_damage_is_rejected() {
        let section = &ts::pat()[5..5 + 16];
        let mut reader = SectionReader::default();
        let first = [&[0], &section[..5]].concat();
        assert_eq!(reader.feed(true, &first), None);
        assert_eq!(reader.feed(false, &section[5..]), Some(section));
        let mut damaged = [&[0], section].concat();
        damaged[9] ^= 1;
        assert_eq!(reader.feed(true, &damaged), None);
    }
}
