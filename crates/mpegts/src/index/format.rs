//! The index as a file, `NAME.ts.kgi` beside `NAME.ts`.
//!
//! All numbers are little-endian. `g` groups and `f` frames make a file of `68 + 16 g + 8 f` bytes:
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | magic `6B 67 69 0D 0A 1A 0A 00` ("kgi", then bytes that text tools damage) |
//! | 8 | 2 | version, 1 |
//! | 10 | 1 | codec: 1 MPEG-2, 2 H.264, 3 HEVC |
//! | 11 | 1 | origin: 0 scanned, 1 made with a variable rate, 2 made with a constant rate |
//! | 12 | 2 | PID of the pictures |
//! | 14 | 2 | 0 |
//! | 16 | 4 | frames ... |
//! | 20 | 4 | ... in this number of seconds |
//! | 24 | 8 | size of the content, bytes |
//! | 32 | 8 | nominal rate, bit/s (0 when scanned) |
//! | 40 | 4 | picture width, pixels (0 when scanned) |
//! | 44 | 4 | picture height, pixels (0 when scanned) |
//! | 48 | 8 | seed (0 when scanned) |
//! | 56 | 4 | f, at most 2^26 |
//! | 60 | 4 | g, 1 to f |
//! | 64 | 16 g | per group: start offset (8), first frame (4), CRC32C of its bytes (4) |
//! | 64 + 16 g | 8 f | per frame: bytes (4) and ticks of 90 kHz (4) since the frame before |
//! | 64 + 16 g + 8 f | 4 | CRC32C of all bytes before |
//!
//! The bytes of frame 0 count from the first group's start. The unit tests contain an index as a test vector.

use std::path::{Path, PathBuf};

use super::builder::ContentInfo;
use super::{ContentIndex, IndexBuilder, Made};
use crate::error::IndexError;
use crate::spec::{Codec, ContentSpec, FrameRate, RateMode};

/// The version of index files that this program writes, and the newest it reads.
pub const INDEX_VERSION: u16 = 1;

const MAGIC: [u8; 8] = *b"kgi\r\n\x1a\n\0";
const HEADER_BYTES: usize = 64;
const GOP_BYTES: usize = 16;
const FRAME_BYTES: usize = 8;
const CRC_BYTES: usize = 4;

/// The largest index file that can be: every frame its own group.
pub(crate) const FILE_BYTES_MAX: u64 =
    (HEADER_BYTES + CRC_BYTES + ContentSpec::FRAMES_MAX as usize * (GOP_BYTES + FRAME_BYTES)) as u64;

/// The path of the index of `content`: its name plus `.kgi`.
pub fn index_path(content: &Path) -> PathBuf {
    let mut name = content.as_os_str().to_owned();
    name.push(".kgi");
    PathBuf::from(name)
}

impl ContentIndex {
    /// The bytes of the index file.
    /// Errors: [`IndexError::Table`] when a frame of 4 GiB or more, or a gap of 13 hours, does not fit the
    /// format.
    pub fn to_bytes(&self) -> Result<Vec<u8>, IndexError> {
        let length =
            HEADER_BYTES + self.gop_count() * GOP_BYTES + self.frame_count() * FRAME_BYTES + CRC_BYTES;
        let mut out = Vec::with_capacity(length);
        self.put_header(&mut out);
        for gop in self.gops() {
            out.extend_from_slice(&gop.start_offset.to_le_bytes());
            out.extend_from_slice(&(gop.first_frame as u32).to_le_bytes());
            out.extend_from_slice(&gop.crc32c.to_le_bytes());
        }
        let mut previous = (self.gop_starts[0], 0);
        for (at, (&end, &dts)) in self.frame_ends.iter().zip(&self.frame_dts_ticks).enumerate() {
            for (difference, why) in [
                (end - previous.0, "is too large for an index"),
                (dts - previous.1, "is too late for an index"),
            ] {
                let small = u32::try_from(difference).map_err(|_| IndexError::Table {
                    table: "frame",
                    at: at as u64,
                    why,
                })?;
                out.extend_from_slice(&small.to_le_bytes());
            }
            previous = (end, dts);
        }
        out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
        Ok(out)
    }

    fn put_header(&self, out: &mut Vec<u8>) {
        let codec = match self.codec {
            Codec::Mpeg2 => 1,
            Codec::H264 => 2,
            Codec::Hevc => 3,
        };
        let origin = match self.made.map(|m| m.mode) {
            None => 0,
            Some(RateMode::Vbr) => 1,
            Some(RateMode::Cbr) => 2,
        };
        let made = self.made.unwrap_or(Made {
            rate_bit_per_s: 0,
            mode: RateMode::Vbr,
            width: 0,
            height: 0,
            seed: 0,
        });
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&INDEX_VERSION.to_le_bytes());
        out.extend_from_slice(&[codec, origin]);
        out.extend_from_slice(&self.video_pid.to_le_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&self.frame_rate.num.to_le_bytes());
        out.extend_from_slice(&self.frame_rate.den.to_le_bytes());
        out.extend_from_slice(&self.total_bytes.to_le_bytes());
        out.extend_from_slice(&made.rate_bit_per_s.to_le_bytes());
        out.extend_from_slice(&made.width.to_le_bytes());
        out.extend_from_slice(&made.height.to_le_bytes());
        out.extend_from_slice(&made.seed.to_le_bytes());
        out.extend_from_slice(&(self.frame_count() as u32).to_le_bytes());
        out.extend_from_slice(&(self.gop_count() as u32).to_le_bytes());
    }

    /// Reads the bytes of an index file. Takes at most three times the memory of `bytes`.
    pub fn read(bytes: &[u8]) -> Result<Self, IndexError> {
        let header = Header::read(bytes)?;
        let expected = header.file_bytes();
        if bytes.len() as u64 != expected {
            return Err(IndexError::Length { found: bytes.len() as u64, expected });
        }
        let (body, crc) = bytes.split_at(bytes.len() - CRC_BYTES);
        if crc32c::crc32c(body) != u32_at(crc, 0) {
            return Err(IndexError::Checksum);
        }
        // The length matches the counts.
        let (gops, frames) = body[HEADER_BYTES..].split_at(header.gops as usize * GOP_BYTES);
        let mut builder = IndexBuilder::with_capacity(header.frames as usize, header.gops as usize);
        for gop in gops.chunks_exact(GOP_BYTES) {
            builder.gop_starts.push(u64_at(gop, 0));
            builder.gop_first_frames.push(u32_at(gop, 8));
            builder.gop_crcs.push(u32_at(gop, 12));
        }
        let (mut end, mut dts) = (builder.gop_starts.first().copied().unwrap_or(0), 0_u64);
        for (at, frame) in frames.chunks_exact(FRAME_BYTES).enumerate() {
            // At most 2^26 steps of 32 bits: only `end` can overflow, from a wrong start.
            end = end.checked_add(u32_at(frame, 0).into()).ok_or(IndexError::Table {
                table: "frame",
                at: at as u64,
                why: "ends beyond any file",
            })?;
            dts += u64::from(u32_at(frame, 4));
            builder.push_frame(end, dts);
        }
        builder.finish(header.info)
    }
}

/// The fixed part of the file, checked.
struct Header {
    info: ContentInfo,
    frames: u32,
    gops: u32,
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Self, IndexError> {
        let known = bytes.len().min(MAGIC.len());
        if bytes[..known] != MAGIC[..known] || bytes.is_empty() {
            return Err(IndexError::Magic);
        }
        let cut_off = IndexError::Length { found: bytes.len() as u64, expected: HEADER_BYTES as u64 };
        if bytes.len() < 10 {
            return Err(cut_off);
        }
        let version = u16_at(bytes, 8);
        if version > INDEX_VERSION {
            return Err(IndexError::Newer { found: version, known: INDEX_VERSION });
        }
        if version == 0 {
            return Err(IndexError::Field { field: "version", value: 0 });
        }
        if bytes.len() < HEADER_BYTES {
            return Err(cut_off);
        }
        let codec = match bytes[10] {
            1 => Codec::Mpeg2,
            2 => Codec::H264,
            3 => Codec::Hevc,
            other => return Err(IndexError::Field { field: "codec", value: other.into() }),
        };
        let info = ContentInfo {
            codec,
            frame_rate: FrameRate { num: u32_at(bytes, 16), den: u32_at(bytes, 20) },
            video_pid: u16_at(bytes, 12),
            total_bytes: u64_at(bytes, 24),
            made: Self::made(bytes)?,
        };
        let header = Self { info, frames: u32_at(bytes, 56), gops: u32_at(bytes, 60) };
        if header.frames == 0 || header.frames > ContentSpec::FRAMES_MAX {
            return Err(IndexError::Field { field: "frame count", value: header.frames.into() });
        }
        if header.gops == 0 || header.gops > header.frames {
            return Err(IndexError::Field { field: "GOP count", value: header.gops.into() });
        }
        Ok(header)
    }

    fn made(bytes: &[u8]) -> Result<Option<Made>, IndexError> {
        let mode = match bytes[11] {
            0 => return Ok(None),
            1 => RateMode::Vbr,
            2 => RateMode::Cbr,
            other => return Err(IndexError::Field { field: "origin", value: other.into() }),
        };
        Ok(Some(Made {
            rate_bit_per_s: u64_at(bytes, 32),
            mode,
            width: u32_at(bytes, 40),
            height: u32_at(bytes, 44),
            seed: u64_at(bytes, 48),
        }))
    }

    fn file_bytes(&self) -> u64 {
        let tables = u64::from(self.gops) * GOP_BYTES as u64 + u64::from(self.frames) * FRAME_BYTES as u64;
        (HEADER_BYTES + CRC_BYTES) as u64 + tables
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
