//! What the fuzz targets share: cutting an input into the pieces in which a network would bring it, and
//! making transport streams whose tables have the right checksum, which no fuzzer guesses.

/// Bytes in a transport packet.
pub const PACKET_BYTES: usize = 188;
/// The PID of the pictures in [`stream`].
pub const PID_VIDEO: u16 = 0x100;
const PID_PMT: u16 = 0x1000;

/// The first byte of an input and the rest; the byte chooses how the rest is used.
pub fn choice(data: &[u8]) -> (u8, &[u8]) {
    data.split_first().map_or((0, data), |(first, rest)| (*first, rest))
}

/// `data` in pieces whose lengths follow from `seed`: 1 to 16 bytes, or now and then hundreds.
pub fn pieces(data: &[u8], seed: u8) -> impl Iterator<Item = &[u8]> {
    let (mut at, mut state) = (0, u32::from(seed) + 1);
    std::iter::from_fn(move || {
        // A linear congruential generator: the same input is always cut the same way.
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let drawn = (state >> 16) as usize;
        let length = if drawn.is_multiple_of(8) { drawn % 700 + 1 } else { drawn % 16 + 1 };
        let end = data.len().min(at + length);
        let piece = data.get(at..end).filter(|piece| !piece.is_empty());
        at = end;
        piece
    })
}

/// A transport stream that `script` describes: tables that announce a stream of pictures of a type that the
/// script's first byte chooses, then a packet for every few bytes of the script: which PID, which flags, how
/// it begins.
pub fn stream(script: &[u8]) -> Vec<u8> {
    let (codec, mut script) = choice(script);
    let mut out = Vec::new();
    tables(&mut out, codec);
    while let [what, length, rest @ ..] = script {
        let (head, after) = rest.split_at(rest.len().min(usize::from(*length % 32)));
        script = after;
        match what & 7 {
            0 => tables(&mut out, codec),
            // Bytes that belong to no packet.
            1 => out.extend_from_slice(head),
            2 => packet(&mut out, 0x1FFF, *what, &[]),
            _ => packet(&mut out, PID_VIDEO, *what, head),
        }
    }
    out
}

/// A packet; bits 3 to 5 of `flags` say whether a unit starts in it, an adaptation field allows random
/// access, and the payload begins with a PES header. Whether a picture is a key frame is left to `head`.
fn packet(out: &mut Vec<u8>, pid: u16, flags: u8, head: &[u8]) {
    let (starts, key, pes) = (flags & 8 != 0, flags & 16 != 0, flags & 32 != 0);
    let end = out.len() + PACKET_BYTES;
    out.extend_from_slice(&[
        0x47,
        u8::from(starts) << 6 | (pid >> 8) as u8,
        pid as u8,
        0x10 | u8::from(key) << 5 | flags >> 6,
    ]);
    if key {
        out.extend_from_slice(&[1, 0x40]);
    }
    if pes {
        out.extend_from_slice(&[0, 0, 1, 0xE0, 0, 0, 0x80]);
    }
    out.extend_from_slice(head);
    out.resize(end, 0xFF);
}

fn tables(out: &mut Vec<u8>, codec: u8) {
    let stream_type = [0x02, 0x1B, 0x24, 0x01][usize::from(codec & 3)];
    let pid = |pid: u16| (0xE000 | pid).to_be_bytes();
    let pat = [&[0, 0xB0, 13, 0, 1, 0xC1, 0, 0, 0, 1][..], &pid(PID_PMT)].concat();
    let pmt = [
        &[2, 0xB0, 18, 0, 1, 0xC1, 0, 0][..],
        &pid(PID_VIDEO),
        &[0xF0, 0, stream_type],
        &pid(PID_VIDEO),
        &[0xF0, 0],
    ]
    .concat();
    for (pid, section) in [(0, pat), (PID_PMT, pmt)] {
        let payload = [&[0][..], &section, &crc32(&section).to_be_bytes()].concat();
        packet(out, pid, 8, &payload);
    }
}

/// The CRC of sections (ISO/IEC 13818-1, annex A), bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte) << 24, |crc, _| {
            crc << 1 ^ if crc >> 31 == 1 { 0x04C1_1DB7 } else { 0 }
        })
    })
}

/// A message of builders or sources out of these bytes: whatever they say, with magic, version and checksum
/// put right. The kind and the header's length are such that they can be, mostly.
pub fn daq_message(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    bytes.resize(bytes.len().max(64), 0);
    bytes[..5].copy_from_slice(b"KGDQ\x01");
    bytes[5] %= 9;
    let longer = if bytes[7] < 128 { 0 } else { u16::from(bytes[7] % 32) };
    bytes[6..8].copy_from_slice(&(64 + longer).to_be_bytes());
    let crc = crc32c::crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// Messages of sources one after another, as a script describes them: kind, flags and length of the payload
/// of each; the payloads are what follows in the script.
pub fn daq_messages(mut script: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let [kind, flags, length, rest @ ..] = script {
        let (payload, after) = rest.split_at(rest.len().min(usize::from(*length)));
        script = after;
        let mut head = [0; 64];
        // A hello, a fragment, an answer; now and then something that a source does not say.
        head[5] = [5, 6, 6, 6, 7, *kind][usize::from(*kind) % 6];
        head[13] = *flags;
        head[28..32].copy_from_slice(&(payload.len() as u32).to_be_bytes());
        let mut head = daq_message(&head);
        // What is cut short is what a connection that breaks leaves.
        if *flags == 255 {
            head.truncate(usize::from(*length) % 64);
        }
        out.extend_from_slice(&head);
        out.extend_from_slice(payload);
    }
    out
}
