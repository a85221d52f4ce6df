//! Making content.

use std::io::Write;
use std::ops::ControlFlow;

use super::error::ContentError;
use super::h264::H264Coder;
use super::index::{ContentIndex, IndexBuilder, Made, Whole};
use super::mpeg2::Mpeg2Coder;
use super::pes::Packetiser;
use super::scene::Scene;
use super::size::{SizeModel, share};
use super::spec::{Codec, ContentSpec};
use super::timing;
use super::ts::{self, PACKET_BYTES, PID_VIDEO};

/// How far the making or scanning of content has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes written or read.
    pub bytes_done: u64,
    /// Bytes there will be; `None` when it is not known.
    pub bytes_total: Option<u64>,
    /// Frames written or seen.
    pub frames_done: u64,
}

/// Is told about progress about every half second of content, and answers whether to go on.
pub type Watch<'a> = dyn FnMut(Progress) -> ControlFlow<()> + 'a;

/// The tables come with every so many frames.
const TABLE_FRAMES: u32 = 3;
/// The share of the nominal rate that pictures may need without their padding.
const PICTURE_SHARE_MAX: f64 = 0.6;

/// Writes content to `out` and returns its index.
///
/// `out` gets one write per group of pictures and is not flushed. Constant content is a true constant mux rate: PCR
/// is the byte's offset divided by the rate, no null packets are needed.
///
/// # Errors
/// [`ContentError::Spec`] and [`ContentError::RateTooLow`] before the first byte; [`ContentError::Stopped`] when
/// `watch` breaks; [`ContentError::Io`] when `out` fails.
pub fn write_content(
    spec: &ContentSpec,
    out: &mut dyn Write,
    watch: &mut Watch<'_>,
) -> Result<ContentIndex, ContentError> {
    spec.validate()?;
    let total = u64::from(spec.frames());
    let in_group = u64::from(spec.gop_frames());
    // A last group of less than half the length would be mostly key frame: the one before takes it.
    let groups = ((total + in_group / 2) / in_group).max(1);
    let mut maker = Maker::new(spec);
    let mut build = IndexBuilder::with_capacity(total as usize, groups as usize);
    for group in 0..groups {
        let first = group * in_group;
        let end = if group + 1 == groups { total } else { first + in_group };
        let packets = maker.plan(first, end, groups - group);
        maker.make_group(first, end, packets, &mut build);
        if group == 0 {
            maker.check_rate(end)?;
        }
        build.gop_crc(crc32c::crc32c(&maker.group));
        out.write_all(&maker.group).map_err(|source| ContentError::Io { action: "write", source })?;
        let progress =
            Progress { bytes_done: maker.position, bytes_total: Some(spec.total_bytes()), frames_done: end };
        if watch(progress).is_break() {
            return Err(ContentError::Stopped);
        }
    }
    Ok(build.finish(Whole {
        codec: spec.codec,
        frame_rate: spec.frame_rate,
        video_pid: PID_VIDEO,
        total_bytes: maker.position,
        made: Some(Made {
            rate_bit_per_s: spec.rate_bit_per_s,
            mode: spec.mode,
            width: spec.width,
            height: spec.height,
            seed: spec.seed,
        }),
    })?)
}

#[derive(Debug)]
enum Coder {
    Mpeg2(Mpeg2Coder),
    H264(H264Coder),
}

/// What ends the last picture, so that decoders show all that they hold.
fn end_of_sequence(codec: Codec) -> &'static [u8] {
    match codec {
        // sequence_end_code; zero bytes may follow it as they may any other.
        Codec::Mpeg2 | Codec::Hevc => &[0, 0, 1, 0xB7],
        // Pictures are shown as they come, and no filler could follow an end.
        Codec::H264 => &[],
    }
}

/// Makes one group of pictures after the other.
struct Maker<'a> {
    spec: &'a ContentSpec,
    scene: Scene,
    coder: Coder,
    sizes: SizeModel,
    packetiser: Packetiser,
    tables: [[u8; PACKET_BYTES]; 2],
    table_counter: u8,
    /// The picture in work.
    picture: Vec<u8>,
    /// The packets of the group in work.
    group: Vec<u8>,
    /// Bytes made so far.
    position: u64,
    /// Packets that the pictures of this group need without padding.
    needed_packets: u64,
}

impl<'a> Maker<'a> {
    fn new(spec: &'a ContentSpec) -> Self {
        let scene = Scene::new(spec);
        let coder = match spec.codec {
            Codec::H264 => Coder::H264(H264Coder::new(spec, &scene)),
            Codec::Mpeg2 | Codec::Hevc => Coder::Mpeg2(Mpeg2Coder::new(spec, &scene)),
        };
        Self {
            spec,
            coder,
            scene,
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
    fn plan(&mut self, first: u64, end: u64, groups_left: u64) -> u64 {
        let due = self.spec.nominal_bytes(first);
        let until = self.spec.nominal_bytes(end);
        let later = self.spec.nominal_bytes(self.spec.frames().into()) - until;
        self.sizes.group_packets(until - due, self.position as i64 - due as i64, groups_left, later)
    }

    fn make_group(&mut self, first: u64, end: u64, packets: u64, build: &mut IndexBuilder) {
        let frames = end - first;
        let table_packets = 2 * frames.div_ceil(TABLE_FRAMES.into());
        let video_packets = packets.saturating_sub(table_packets);
        let start = self.position;
        let mut used = 0;
        self.group.clear();
        self.needed_packets = table_packets;
        build.gop(start);
        for frame in first..end {
            let in_group = (frame - first) as u32;
            if in_group.is_multiple_of(TABLE_FRAMES) {
                self.put_tables();
            }
            self.picture.clear();
            if frame > 0 {
                self.scene.show(frame);
            }
            match &mut self.coder {
                Coder::Mpeg2(coder) => coder.encode(&self.scene, frame, in_group, &mut self.picture),
                Coder::H264(coder) => coder.encode(&self.scene, in_group, &mut self.picture),
            }
            if frame + 1 == u64::from(self.spec.frames()) {
                self.picture.extend_from_slice(end_of_sequence(self.spec.codec));
            }
            let times = timing::times(self.spec, frame, start + self.group.len() as u64);
            self.needed_packets += Packetiser::packets_min(self.picture.len(), times);
            let wished = share(video_packets, frames, u64::from(in_group) + 1).saturating_sub(used);
            let before = self.group.len();
            let with_picture = wished - timing::clock_packets(self.spec, wished);
            self.packetiser.write(&mut self.group, &mut self.picture, with_picture, times, in_group == 0);
            timing::put_clocks(self.spec, &mut self.group, before, start);
            used += ((self.group.len() - before) / PACKET_BYTES) as u64;
            self.position = start + self.group.len() as u64;
            build.frame(self.position, self.spec.frame_rate.ticks(frame));
        }
    }

    fn put_tables(&mut self) {
        for table in &mut self.tables {
            table[3] = 0x10 | self.table_counter;
            self.group.extend_from_slice(table);
        }
        self.table_counter = (self.table_counter + 1) & 15;
    }

    /// Refuses a rate that leaves too little room beside the pictures themselves.
    fn check_rate(&self, frames: u64) -> Result<(), ContentError> {
        let needed = (self.needed_packets * PACKET_BYTES as u64) as f64 / PICTURE_SHARE_MAX;
        let given = self.spec.nominal_bytes(frames) as f64;
        if needed <= given {
            return Ok(());
        }
        let least = self.spec.rate_bit_per_s as f64 * needed / given.max(1.0);
        Err(ContentError::RateTooLow {
            rate_bit_per_s: self.spec.rate_bit_per_s,
            // Rounded up to a number that one would type.
            least_bit_per_s: (least / 10_000.0).ceil() as u64 * 10_000,
            width: self.spec.width,
            height: self.spec.height,
        })
    }
}
