//! The times of pictures and the clock (PCR) of the stream (ISO/IEC 13818-1, 2.4.2 and 2.7).

use crate::mux::pes::Times;
use crate::mux::ts::{self, PACKET_BYTES, PCR_FIELD_BYTES, PID_VIDEO};
use crate::spec::{Codec, ContentSpec, RateMode};

/// The first DTS, 90 kHz: later than the clock's lead, so that no time is negative.
const FIRST_DTS: u64 = 90_000;
/// How far the PCR of variable content is behind the DTS, 90 kHz (200 ms): a picture arrives within its
/// frame.
const LEAD_VBR: u64 = 18_000;
/// The same for constant content (400 ms): a key frame takes up to 200 ms to arrive.
const LEAD_CBR: u64 = 36_000;
/// PCR interval within a picture of constant content: 40 ms, where 100 are allowed.
const CLOCKS_PER_S: u64 = 25;
/// Least packets between PCRs: at low rates most packets still carry pictures.
const CLOCK_STEP_MIN: u64 = 4;

/// The times of frame `frame`, whose first packet is at byte `offset`.
pub(crate) fn frame_times(spec: &ContentSpec, frame: u64, offset: u64) -> Times {
    let dts = FIRST_DTS + spec.frame_rate.ticks(frame);
    // Without the low_delay flag an MPEG-2 decoder shows a reference picture when the next one comes.
    let pts = match spec.codec {
        Codec::H264 => dts,
        Codec::Mpeg2 | Codec::Hevc => FIRST_DTS + spec.frame_rate.ticks(frame + 1),
    };
    let pcr = match spec.mode {
        RateMode::Vbr => (dts - LEAD_VBR) * 300,
        RateMode::Cbr => pcr_at(spec, offset),
    };
    Times { dts, pts, pcr }
}

/// The clock of constant content in a packet at byte `offset`, 27 MHz.
fn pcr_at(spec: &ContentSpec, offset: u64) -> u64 {
    // The PCR is the time of the byte that ends its base: the eleventh of the packet (2.4.3.5).
    let bits = u128::from(offset + 10) * 8;
    let passed = (bits * 27_000_000 / u128::from(spec.rate_bit_per_s)) as u64;
    (FIRST_DTS - LEAD_CBR) * 300 + passed
}

/// Packets from one PCR to the next within a picture; `None` when a picture needs only its first.
fn pcr_step(spec: &ContentSpec) -> Option<u64> {
    let packet_bits = PACKET_BYTES as u64 * 8;
    (spec.mode == RateMode::Cbr)
        .then(|| (spec.rate_bit_per_s / CLOCKS_PER_S / packet_bits).max(CLOCK_STEP_MIN))
}

/// How many of a picture's `packets` carry only a PCR.
pub(crate) fn pcr_packets(spec: &ContentSpec, packets: u64) -> u64 {
    pcr_step(spec).map_or(0, |step| packets.saturating_sub(1) / step)
}

/// Inserts packets with only a PCR into the picture that begins at `from` of `group`, which begins at byte
/// `offset` of the content.
pub(crate) fn insert_pcr_packets(spec: &ContentSpec, group: &mut Vec<u8>, from: usize, offset: u64) {
    let Some(step) = pcr_step(spec) else { return };
    let step_bytes = step as usize * PACKET_BYTES;
    let mut at = from + step_bytes;
    while at < group.len() {
        // A packet without payload repeats the counter of the one before (2.4.3.3).
        let counter = group[at - PACKET_BYTES + 3] & 15;
        let packet = pcr_packet(pcr_at(spec, offset + at as u64), counter);
        group.splice(at..at, packet);
        at += step_bytes;
    }
}

fn pcr_packet(pcr: u64, counter: u8) -> [u8; PACKET_BYTES] {
    let mut out = Vec::with_capacity(PACKET_BYTES);
    ts::header(&mut out, PID_VIDEO, false, true, counter);
    ts::pcr_field(&mut out, pcr, false);
    let mut packet = [0xFF; PACKET_BYTES];
    packet[..out.len()].copy_from_slice(&out);
    // An adaptation field alone, which fills the packet.
    packet[3] = 0x20 | counter;
    packet[4] = (PACKET_BYTES - 5) as u8;
    debug_assert_eq!(out.len(), 4 + PCR_FIELD_BYTES);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_packets_match_the_plan() {
        let spec = ContentSpec { mode: RateMode::Cbr, rate_bit_per_s: 376_000, ..Default::default() };
        let step = pcr_step(&spec).expect("constant");
        assert_eq!(step, 10);
        for packets in 1..100 {
            let clocks = pcr_packets(&spec, packets);
            let mut group = vec![0; (packets - clocks) as usize * PACKET_BYTES];
            insert_pcr_packets(&spec, &mut group, 0, 0);
            let put = group.chunks(PACKET_BYTES).enumerate().filter(|(_, p)| p[3] == 0x20);
            let put: Vec<usize> = put.map(|(i, _)| i).collect();
            assert!(put.iter().all(|i| i % 10 == 0) && !put.contains(&0));
            // One less where the last would have ended the picture.
            assert!((group.len() / PACKET_BYTES) as u64 + 1 >= packets, "{packets}");
            assert!(put.last().is_none_or(|&last| last + 1 < group.len() / PACKET_BYTES));
        }
        assert_eq!(pcr_packets(&ContentSpec::default(), 1000), 0);
    }
}
