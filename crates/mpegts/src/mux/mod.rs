//! Makes content: encoded pictures in a transport stream with its tables and clock.

mod frame_sizes;
pub(crate) mod pes;
mod timing;
pub(crate) mod ts;

use std::io::Write;
use std::ops::ControlFlow;

use self::frame_sizes::{SizeModel, cumulative_packets};
use self::pes::Packetiser;
use self::ts::{PACKET_BYTES, PID_VIDEO};
use crate::encode::Encoder;
use crate::error::ContentError;
use crate::index::{ContentIndex, ContentInfo, IndexBuilder, Made};
use crate::spec::ContentSpec;

/// Progress of making or scanning content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub bytes_done: u64,
    /// `None` when unknown.
    pub bytes_total: Option<u64>,
    pub frames_done: u64,
}

/// Called about every half second of content; breaks to stop.
pub type ProgressCallback<'a> = dyn FnMut(Progress) -> ControlFlow<()> + 'a;

/// The tables repeat after this many frames.
const TABLE_FRAMES: u32 = 3;
/// Largest share of the nominal rate for pictures without padding.
const PICTURE_SHARE_MAX: f64 = 0.6;

/// Writes content to `out` and returns its index.
///
/// One write to `out` per group of pictures, no flush. Constant content has a true constant mux rate: PCR is
/// the byte's offset divided by the rate, without null packets.
/// Errors: [`ContentError::Spec`] and [`ContentError::RateTooLow`] before the first byte;
/// [`ContentError::Stopped`] when `on_progress` breaks; [`ContentError::Io`] when `out` fails.
pub fn write_content(
    spec: &ContentSpec,
    out: &mut dyn Write,
    on_progress: &mut ProgressCallback<'_>,
) -> Result<ContentIndex, ContentError> {
    spec.validate()?;
    let total = u64::from(spec.frames());
    let in_group = u64::from(spec.gop_frames());
    // A last group of less than half the length, mostly key frame, is merged into the one before.
    let groups = ((total + in_group / 2) / in_group).max(1);
    let mut muxer = Muxer::new(spec);
    let mut builder = IndexBuilder::with_capacity(total as usize, groups as usize);
    for group in 0..groups {
        let first = group * in_group;
        let end = if group + 1 == groups { total } else { first + in_group };
        let packets = muxer.plan_group(first, end, groups - group);
        muxer.write_group(first, end, packets, &mut builder);
        if group == 0 {
            muxer.check_rate(end)?;
        }
        builder.push_gop_crc(crc32c::crc32c(&muxer.group));
        out.write_all(&muxer.group).map_err(|source| ContentError::Io { action: "write", source })?;
        let progress =
            Progress { bytes_done: muxer.position, bytes_total: Some(spec.total_bytes()), frames_done: end };
        if on_progress(progress).is_break() {
            return Err(ContentError::Stopped);
        }
    }
    Ok(builder.finish(ContentInfo {
        codec: spec.codec,
        frame_rate: spec.frame_rate,
        video_pid: PID_VIDEO,
        total_bytes: muxer.position,
        made: Some(Made {
            rate_bit_per_s: spec.rate_bit_per_s,
            mode: spec.mode,
            width: spec.width,
            height: spec.height,
            seed: spec.seed,
        }),
    })?)
}

/// Muxes one group of pictures after the other.
struct Muxer<'a> {
    spec: &'a ContentSpec,
    encoder: Encoder,
    sizes: SizeModel,
    packetiser: Packetiser,
    tables: [[u8; PACKET_BYTES]; 2],
    table_counter: u8,
    picture: Vec<u8>,
    group: Vec<u8>,
    position: u64,
    /// Packets that the pictures of this group need without padding.
    needed_packets: u64,
}

impl<'a> Muxer<'a> {
    fn new(spec: &'a ContentSpec) -> Self {
        Self {
            spec,
            encoder: Encoder::new(spec),
            sizes: SizeModel::new(spec),
            packetiser: Packetiser::new(spec.codec),
            tables: [ts::pat(), ts::pmt(spec.codec)],
            table_counter: 0,
            picture: Vec::new(),
            group: Vec::new(),
            position: 0,
            needed_packets: 0,
        }
    }

    /// The packets for frames `first` to `end` with their tables.
    fn plan_group(&mut self, first: u64, end: u64, groups_left: u64) -> u64 {
        let due = self.spec.nominal_bytes(first);
        let until = self.spec.nominal_bytes(end);
        let later = self.spec.nominal_bytes(self.spec.frames().into()) - until;
        self.sizes.group_packets(until - due, self.position as i64 - due as i64, groups_left, later)
    }

    fn write_group(&mut self, first: u64, end: u64, packets: u64, builder: &mut IndexBuilder) {
        let frames = end - first;
        let table_packets = 2 * frames.div_ceil(TABLE_FRAMES.into());
        let video_packets = packets.saturating_sub(table_packets);
        let start = self.position;
        let mut used = 0;
        self.group.clear();
        self.needed_packets = table_packets;
        builder.push_gop(start);
        for frame in first..end {
            let in_group = (frame - first) as u32;
            if in_group.is_multiple_of(TABLE_FRAMES) {
                self.write_tables();
            }
            self.picture.clear();
            self.encoder.encode(frame, in_group, &mut self.picture);
            if frame + 1 == u64::from(self.spec.frames()) {
                self.picture.extend_from_slice(self.encoder.end_of_sequence());
            }
            let times = timing::frame_times(self.spec, frame, start + self.group.len() as u64);
            self.needed_packets += Packetiser::packets_min(self.picture.len(), times);
            let wanted =
                cumulative_packets(video_packets, frames, u64::from(in_group) + 1).saturating_sub(used);
            let before = self.group.len();
            let picture_packets = wanted - timing::pcr_packets(self.spec, wanted);
            self.packetiser.write(&mut self.group, &mut self.picture, picture_packets, times, in_group == 0);
            timing::insert_pcr_packets(self.spec, &mut self.group, before, start);
            used += ((self.group.len() - before) / PACKET_BYTES) as u64;
            self.position = start + self.group.len() as u64;
            builder.push_frame(self.position, self.spec.frame_rate.ticks(frame));
        }
    }

    fn write_tables(&mut self) {
        for table in &mut self.tables {
            table[3] = 0x10 | self.table_counter;
            self.group.extend_from_slice(table);
        }
        self.table_counter = (self.table_counter + 1) & 15;
    }

    /// Rejects a rate that leaves too little room beside the pictures.
    fn check_rate(&self, frames: u64) -> Result<(), ContentError> {
        let needed = (self.needed_packets * PACKET_BYTES as u64) as f64 / PICTURE_SHARE_MAX;
        let given = self.spec.nominal_bytes(frames) as f64;
        if needed <= given {
            return Ok(());
        }
        let least = self.spec.rate_bit_per_s as f64 * needed / given.max(1.0);
        Err(ContentError::RateTooLow {
            rate_bit_per_s: self.spec.rate_bit_per_s,
            // Rounded up to a number to type.
            least_bit_per_s: (least / 10_000.0).ceil() as u64 * 10_000,
            width: self.spec.width,
            height: self.spec.height,
        })
    }
}
