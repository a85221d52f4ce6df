//! Indexes any transport stream.

mod frame;
mod tables;

use std::io::{self, Read};

use self::frame::{Clock, Packet, is_key, pes_header};
use self::tables::Tables;
use super::error::ContentError;
use super::index::{ContentIndex, ContentInfo, IndexBuilder};
use super::spec::{Codec, FrameRate};
use crate::mux::ts::{PACKET_BYTES, PID_PAT, SYNC};
use crate::mux::{Progress, ProgressCallback};

const BUFFER_BYTES: usize = 1 << 20;
/// Packets in a row with a sync byte that prove sync.
const SYNC_PACKETS: usize = 5;
/// Bytes searched for the first packet.
const START_BYTES: u64 = 64 << 10;
/// Bytes without a packet after which the scan fails.
const LOST_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a picture searched for its type.
const PROBE_BYTES: usize = 4096;

/// Indexes a transport stream with MPEG-2, H.264 or HEVC pictures.
///
/// The pictures are those of the first program that has any. A frame is one PES packet of their PID; it ends
/// with its last transport packet. A frame is a key frame by `random_access_indicator`, else by its first
/// picture type or NAL unit (I, IDR, IRAP). Frames before the first key frame are left out. A group begins
/// with the last PAT after the frame before, where there is one, else with its key frame. Bytes that are no
/// packets are skipped, and belong to the group they are in.
///
/// `total_bytes` is for the progress only. Memory: 1 MiB, and 16 bytes a frame and a group.
/// Errors: [`ContentError::NotTs`], [`ContentError::NoVideo`], [`ContentError::NoKeyFrame`],
/// [`ContentError::Truncated`]; [`ContentError::Stopped`] when `on_progress` breaks; [`ContentError::Io`]
/// when reading fails.
pub fn scan(
    reader: &mut dyn Read,
    total_bytes: Option<u64>,
    on_progress: &mut ProgressCallback<'_>,
) -> Result<ContentIndex, ContentError> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let (mut filled, mut offset) = (0, 0);
    let mut scanner = Scanner::default();
    let mut skipped = 0;
    loop {
        let read = read_full(reader, &mut buffer[filled..])?;
        filled += read;
        let at_end = filled < BUFFER_BYTES;
        let used = scanner.packets(&buffer[..filled], offset, at_end, &mut skipped)?;
        scanner.crc.feed(&buffer[scanner.summed..used]);
        scanner.summed = 0;
        offset += used as u64;
        buffer.copy_within(used..filled, 0);
        filled -= used;
        let progress = Progress {
            bytes_done: offset + filled as u64,
            bytes_total: total_bytes,
            frames_done: scanner.frames,
        };
        if on_progress(progress).is_break() {
            return Err(ContentError::Stopped);
        }
        if at_end {
            return scanner.finish(offset, filled);
        }
    }
}

fn read_full(reader: &mut dyn Read, into: &mut [u8]) -> Result<usize, ContentError> {
    let mut filled = 0;
    while filled < into.len() {
        match reader.read(&mut into[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(ContentError::Io { action: "read", source }),
        }
    }
    Ok(filled)
}

/// A checksum in two parts: up to the last possible start of a group, and since.
#[derive(Debug, Default)]
struct SplitCrc {
    before: u32,
    since: u32,
    since_bytes: usize,
}

impl SplitCrc {
    fn feed(&mut self, bytes: &[u8]) {
        self.since = crc32c::crc32c_append(self.since, bytes);
        self.since_bytes += bytes.len();
    }

    fn cut(&mut self) {
        self.before = crc32c::crc32c_combine(self.before, self.since, self.since_bytes);
        (self.since, self.since_bytes) = (0, 0);
    }

    /// A group begins at the last cut: returns the checksum of the bytes before it.
    fn take_before(&mut self) -> u32 {
        std::mem::take(&mut self.before)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Yes,
    No,
    /// More of the picture must be seen.
    Unknown,
}

#[derive(Debug)]
struct OpenFrame {
    /// Where a group begins if this is a key frame.
    start: u64,
    raw_time: Option<u64>,
    key: Key,
}

#[derive(Debug, Default)]
struct Scanner {
    tables: Tables,
    builder: IndexBuilder,
    clock: Clock,
    crc: SplitCrc,
    /// Bytes of the buffer that the checksum covers.
    summed: usize,
    open: Option<OpenFrame>,
    /// The first bytes of the open frame while its type is unknown.
    probe: Vec<u8>,
    /// The last PAT, when no packet of pictures came after it.
    last_pat: Option<u64>,
    video_end: u64,
    packets: u64,
    frames: u64,
}

impl Scanner {
    /// Handles the complete packets in `buffer`, which begins at `offset` of the file. Returns their bytes.
    fn packets(
        &mut self,
        buffer: &[u8],
        offset: u64,
        at_end: bool,
        skipped: &mut u64,
    ) -> Result<usize, ContentError> {
        let mut at = 0;
        while let Some(packet) = buffer[at..].first_chunk::<PACKET_BYTES>() {
            // At the start, and after damage, one sync byte is no proof.
            let is_in_sync = self.packets > 0 && *skipped == 0;
            if packet[0] == SYNC && (is_in_sync || in_sync(&buffer[at..], at_end).is_some_and(|yes| yes)) {
                self.packet(packet, buffer, at, offset + at as u64);
                self.packets += 1;
                *skipped = 0;
                at += PACKET_BYTES;
            } else if packet[0] == SYNC && in_sync(&buffer[at..], at_end).is_none() {
                break;
            } else {
                *skipped += 1;
                at += 1;
                self.check_lost(*skipped, buffer)?;
            }
        }
        Ok(at)
    }

    fn check_lost(&self, skipped: u64, buffer: &[u8]) -> Result<(), ContentError> {
        if self.packets == 0 && skipped > START_BYTES {
            let long = |bytes| (0..bytes).any(|s| (0..8).all(|i| buffer.get(s + i * bytes) == Some(&SYNC)));
            let why = if long(192) {
                "its packets have 192 bytes, as on Blu-ray discs and in some cameras"
            } else if long(204) {
                "its packets have 204 bytes, as from some tuners"
            } else {
                "no packets in its first 64 KiB"
            };
            return Err(ContentError::NotTs { why });
        }
        if skipped > LOST_BYTES_MAX {
            return Err(ContentError::NotTs { why: "more than 1 MiB without a packet in the middle" });
        }
        Ok(())
    }

    fn packet(&mut self, bytes: &[u8; PACKET_BYTES], buffer: &[u8], at: usize, offset: u64) {
        let packet = Packet::read(bytes);
        match self.tables.video() {
            Some((pid, codec)) if packet.pid == pid => {
                if packet.starts_unit {
                    self.start_frame(packet, codec, buffer, at, offset);
                } else {
                    self.last_pat = None;
                    self.probe_type(packet.payload, codec);
                }
                self.video_end = offset + PACKET_BYTES as u64;
            }
            _ => {
                // While the open frame may be a key frame, its start must be kept.
                let undecided = self.open.as_ref().is_some_and(|f| f.key == Key::Unknown);
                if packet.pid == PID_PAT && packet.starts_unit && !undecided {
                    self.cut(buffer, at);
                    self.last_pat = Some(offset);
                }
                self.tables.feed(packet.pid, packet.starts_unit, packet.payload);
            }
        }
    }

    fn cut(&mut self, buffer: &[u8], at: usize) {
        self.crc.feed(&buffer[self.summed..at]);
        self.crc.cut();
        self.summed = at;
    }

    fn start_frame(&mut self, packet: Packet<'_>, codec: Codec, buffer: &[u8], at: usize, offset: u64) {
        self.close_frame();
        let start = self.last_pat.take().unwrap_or_else(|| {
            self.cut(buffer, at);
            offset
        });
        let (raw_time, data) = pes_header(packet.payload);
        let key = if packet.random_access { Key::Yes } else { Key::Unknown };
        self.open = Some(OpenFrame { start, raw_time, key });
        self.frames += 1;
        self.probe.clear();
        if key == Key::Yes {
            self.start_gop(start);
        } else {
            self.probe_type(packet.payload.get(data..).unwrap_or_default(), codec);
        }
    }

    /// Looks for the type of the open frame in its next bytes.
    fn probe_type(&mut self, payload: &[u8], codec: Codec) {
        let Some(frame) = self.open.as_mut().filter(|f| f.key == Key::Unknown) else { return };
        self.probe.extend_from_slice(payload);
        let start = frame.start;
        match is_key(codec, &self.probe) {
            Some(true) => {
                frame.key = Key::Yes;
                self.start_gop(start);
            }
            Some(false) => frame.key = Key::No,
            None if self.probe.len() > PROBE_BYTES => frame.key = Key::No,
            None => {}
        }
    }

    fn start_gop(&mut self, start: u64) {
        let before = self.crc.take_before();
        if self.builder.has_gop() {
            self.builder.push_gop_crc(before);
        }
        self.builder.push_gop(start);
    }

    fn close_frame(&mut self) {
        if let Some(frame) = self.open.take()
            && self.builder.has_gop()
        {
            self.builder.push_frame(self.video_end, self.clock.next(frame.raw_time));
        }
    }

    fn finish(mut self, offset: u64, over_bytes: usize) -> Result<ContentIndex, ContentError> {
        if self.packets == 0 {
            return Err(ContentError::NotTs { why: "no packets" });
        }
        self.close_frame();
        let Some((video_pid, codec)) = self.tables.video() else {
            let why = if self.tables.has_program() {
                "its program names no such stream"
            } else {
                "it has no program tables"
            };
            return Err(ContentError::NoVideo { why });
        };
        if over_bytes > 0 {
            return Err(ContentError::Truncated { over_bytes });
        }
        if self.frames == 0 {
            return Err(ContentError::NoVideo { why: "the stream that its tables name is empty" });
        }
        if !self.builder.has_gop() {
            return Err(ContentError::NoKeyFrame { frames: self.frames });
        }
        self.crc.cut();
        self.builder.push_gop_crc(self.crc.take_before());
        let steps = self.builder.frames() as u64 - 1;
        // A single frame has no rate; it is shown for 1/25 s.
        let frame_rate = FrameRate::from_span(steps, self.builder.span_ticks()).unwrap_or(FrameRate::FPS_25);
        Ok(self.builder.finish(ContentInfo {
            codec,
            frame_rate,
            video_pid,
            total_bytes: offset,
            made: None,
        })?)
    }
}

/// Whether `bytes` are consecutive packets; `None` when more bytes are needed.
fn in_sync(bytes: &[u8], at_end: bool) -> Option<bool> {
    let mut sync_bytes = (0..SYNC_PACKETS).map(|i| bytes.get(i * PACKET_BYTES));
    if sync_bytes.clone().flatten().any(|&b| b != SYNC) {
        return Some(false);
    }
    if sync_bytes.all(|p| p.is_some()) || at_end { Some(true) } else { None }
}
