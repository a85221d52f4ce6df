//! The scanner against the writer, against ffmpeg, and against what no scanner wants to see.

use crate::common;
use common::{VARIANTS, go_on, made, run, spec_named};
use mpegts::{
    Codec, ContentError, ContentIndex, ContentSpec, PACKET_BYTES, index_file, load_index, scan, write_content,
};
use proptest::prelude::*;
use std::ops::ControlFlow;
use std::path::Path;

fn scanned(bytes: &[u8]) -> Result<ContentIndex, ContentError> {
    scan(&mut &*bytes, None, &mut go_on)
}

/// Everything that can be measured.
fn facts(index: &ContentIndex) -> impl PartialEq + std::fmt::Debug {
    let frames: Vec<_> = (0..index.frame_count()).map(|f| (index.end_offset(f), index.dts_ns(f))).collect();
    let whole = (index.codec(), index.frame_rate(), index.video_pid(), index.total_bytes());
    (whole, frames, index.gops().collect::<Vec<_>>())
}

#[test]
fn scan_finds_what_the_writer_wrote() {
    for name in VARIANTS {
        let content = made(&spec_named(name));
        let bytes = std::fs::read(&content.path).expect("content");
        let found = scanned(&bytes).expect(name);
        assert_eq!(facts(&found), facts(&content.index), "{name}");
        assert!(found.made().is_none() && content.index.made().is_some());
        for gop in found.gops() {
            let part = &bytes[gop.start_offset as usize..gop.end_offset as usize];
            assert_eq!(crc32c::crc32c(part), gop.crc32c, "{name}");
            // A player that begins here gets the tables first.
            assert_eq!(part[..3], [0x47, 0x40, 0x00], "{name}");
        }
    }
}

#[test]
fn scanned_index_is_saved_and_loaded() {
    let content = made(&spec_named("small mpeg2"));
    let path = Path::new(&content.path);
    assert_eq!(load_index(path).expect("made with the content"), content.index);
    let found = index_file(path, &mut go_on).expect("indexed");
    assert_eq!(load_index(path).expect("saved"), found);
}

/// What ffprobe says about each frame: DTS in ticks, where it begins, whether it is a key frame.
fn probed(path: &str) -> Option<Vec<(i64, u64, bool)>> {
    let entries = "packet=dts,pos,flags";
    let said = run(
        "ffprobe",
        &["-v", "error", "-select_streams", "v:0", "-show_entries", entries, "-of", "csv=p=0", path],
    )?;
    let frame = |line: &str| {
        let mut fields = line.split(',');
        let dts = fields.next()?.parse().ok()?;
        let pos = fields.next()?.parse().ok()?;
        Some((dts, pos, fields.next()?.starts_with('K')))
    };
    Some(
        said.lines()
            .filter(|line| !line.is_empty())
            .map(|line| frame(line).unwrap_or_else(|| panic!("unexpected: {line}")))
            .collect(),
    )
}

fn agrees_with_ffprobe(codec: Codec, encoder: &[&str]) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.ts");
    let path = path.to_str().expect("UTF-8");
    let source = ["-v", "error", "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25:duration=6"];
    let sound = ["-f", "lavfi", "-i", "sine=duration=6"];
    let Some(said) = run("ffmpeg", &[&source[..], &sound, encoder, &["-f", "mpegts", path]].concat()) else {
        return;
    };
    if said.contains("Unknown encoder") {
        return features::skip(&said);
    }
    let Some(frames) = probed(path) else { return };
    let bytes = std::fs::read(path).expect("written by ffmpeg");
    let index = scanned(&bytes).unwrap_or_else(|e| panic!("{e} {said}"));
    assert_eq!((index.codec(), index.frame_count()), (codec, frames.len()));
    assert_eq!(index.frame_rate().per_s(), 25.0);
    let mut keys = Vec::new();
    for (k, (dts, pos, key)) in frames.iter().enumerate() {
        // ffprobe unwraps times itself, but not always upwards.
        let ticks = (dts - frames[0].0).rem_euclid(1 << 33) as u64;
        assert_eq!(index.dts_ns(k).map(|ns| ns * 9 / 100_000), Some(ticks), "frame {k}");
        let before = if k == 0 { 0 } else { index.end_offset(k - 1).expect("exists") };
        assert!(before <= *pos && *pos < index.end_offset(k).expect("exists"), "frame {k}");
        if *key {
            keys.push(k);
        }
    }
    assert_eq!(index.gops().map(|g| g.first_frame).collect::<Vec<_>>(), keys);
    for gop in index.gops() {
        let part = &bytes[gop.start_offset as usize..gop.end_offset as usize];
        assert_eq!(crc32c::crc32c(part), gop.crc32c);
    }
}

#[test]
fn ffmpeg_files_are_indexed_as_ffprobe_reads_them() {
    agrees_with_ffprobe(Codec::H264, &["-c:v", "libx264", "-preset", "fast", "-g", "25", "-bf", "2"]);
    agrees_with_ffprobe(Codec::Mpeg2, &["-c:v", "mpeg2video", "-b:v", "2M", "-g", "12", "-bf", "2"]);
    agrees_with_ffprobe(Codec::H264, &["-c:v", "libx264", "-g", "50", "-muxrate", "4M", "-b:v", "1M"]);
    // Its times wrap after about three seconds.
    agrees_with_ffprobe(Codec::H264, &["-c:v", "libx264", "-g", "25", "-output_ts_offset", "95440.5"]);
    agrees_with_ffprobe(Codec::Hevc, &["-c:v", "libx265", "-x265-params", "log-level=none:keyint=25"]);
}

fn small() -> Vec<u8> {
    let mut bytes = Vec::new();
    write_content(&spec_named("small mpeg2"), &mut bytes, &mut go_on).expect("content");
    bytes
}

/// Without `random_access_indicator`, so that pictures must be looked at.
fn unmarked(mut bytes: Vec<u8>) -> Vec<u8> {
    for packet in bytes.chunks_mut(PACKET_BYTES).filter(|p| p[3] & 0x20 != 0) {
        packet[5] &= !0x40;
    }
    bytes
}

#[test]
fn key_frames_are_found_without_random_access_indicator() {
    for name in ["small mpeg2", "small h264", "hd mpeg2", "hd h264"] {
        let mut bytes = Vec::new();
        let spec = spec_named(name);
        write_content(&spec, &mut bytes, &mut go_on).expect("content");
        let marked = scanned(&bytes).expect("content");
        let unmarked = scanned(&unmarked(bytes)).expect("content");
        let starts = |i: &ContentIndex| i.gops().map(|g| (g.start_offset, g.first_frame)).collect::<Vec<_>>();
        assert_eq!(starts(&unmarked), starts(&marked), "{name}");
    }
}

#[test]
fn frames_before_the_first_key_frame_are_skipped() {
    let bytes = small();
    let whole = scanned(&bytes).expect("content");
    let second = whole.gop(1).expect("has more");
    // Begin in the middle of the first group, and not even at a packet.
    let cut = whole.end_offset(3).expect("exists") as usize + 100;
    let index = scanned(&bytes[cut..]).expect("content");
    assert_eq!(index.frame_count(), whole.frame_count() - second.first_frame);
    let first = index.gop(0).expect("exists");
    assert_eq!(first.start_offset, second.start_offset - cut as u64);
    assert_eq!((first.crc32c, index.dts_ns(0)), (second.crc32c, Some(0)));
}

#[test]
fn damaged_packets_are_skipped() {
    let mut bytes = small();
    let whole = scanned(&bytes).expect("content");
    // Inside frame 14, away from frame starts: bytes that no packet has.
    let at = whole.end_offset(13).expect("exists") as usize + 2 * PACKET_BYTES + 50;
    bytes.splice(at..at, [0x11; 333]);
    let index = scanned(&bytes).expect("content");
    assert_eq!(index.frame_count(), whole.frame_count());
    assert_eq!(index.total_bytes(), whole.total_bytes() + 333);
    assert_eq!(index.end_offset(12), whole.end_offset(12));
    assert_eq!(index.end_offset(20), whole.end_offset(20).map(|e| e + 333));
    for gop in index.gops() {
        assert_eq!(crc32c::crc32c(&bytes[gop.start_offset as usize..gop.end_offset as usize]), gop.crc32c);
    }
}

#[test]
fn each_unusable_file_has_its_own_error() {
    let bytes = small();
    let packets = |keep: fn(&[u8]) -> bool| -> Vec<u8> {
        bytes.chunks(PACKET_BYTES).filter(|p| keep(p)).flatten().copied().collect()
    };
    let only_inter = {
        let index = scanned(&bytes).expect("content");
        let end = |frame| index.end_offset(frame).expect("exists") as usize;
        // The tables, then frames 1 to 6.
        [&bytes[..2 * PACKET_BYTES], &bytes[end(0)..end(6)]].concat()
    };
    let wide: Vec<u8> = bytes.chunks(PACKET_BYTES).flat_map(|p| [&[0, 0, 0, 0], p].concat()).collect();
    for (name, file, words) in [
        ("empty", Vec::new(), "no packets"),
        ("noise", vec![0x12; 200_000], "no packets in its first 64 KiB"),
        ("sync bytes only", vec![0x47; 100_000], "no program tables"),
        ("192 bytes", wide, "192 bytes"),
        ("no tables", packets(|p| p[1] & 0x1F == 1), "no program tables"),
        ("no map", packets(|p| p[1] & 0x1F != 0x10), "names no such stream"),
        ("no pictures", packets(|p| p[1] & 0x1F != 1), "is empty"),
        ("no key frame", only_inter, "none of the 6 frames is a key frame"),
        ("cut off", bytes[..bytes.len() - 10].to_vec(), "inside a packet (178 of 188 bytes"),
    ] {
        let error = scanned(&file).expect_err(name).to_string();
        assert!(error.contains(words), "{name}: {error}");
    }
}

#[test]
fn scan_stops_on_request() {
    let bytes = small();
    let stopped = scan(&mut &bytes[..], None, &mut |_| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(ContentError::Stopped)));
}

#[test]
fn scan_is_independent_of_read_sizes() {
    struct Slow<'a>(&'a [u8], usize);
    impl std::io::Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            self.1 = self.1 * 7 % 1009 + 1;
            let now = self.1.min(into.len()).min(self.0.len());
            into[..now].copy_from_slice(&self.0[..now]);
            self.0 = &self.0[now..];
            Ok(now)
        }
    }
    let mut bytes = Vec::new();
    let spec = ContentSpec { duration_s: 2.0, ..spec_named("hd mpeg2") };
    let index = write_content(&spec, &mut bytes, &mut go_on).expect("content");
    let found = scan(&mut Slow(&bytes, 5), None, &mut go_on).expect("content");
    assert_eq!(facts(&found), facts(&index));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..5000)) {
        prop_assert!(scanned(&noise).is_err());
    }

    #[test]
    fn damaged_content_never_panics(
        hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..400),
        cut in any::<prop::sample::Index>(),
        h264 in any::<bool>(),
    ) {
        let mut bytes = Vec::new();
        let name = if h264 { "small h264" } else { "small mpeg2" };
        let spec = ContentSpec { duration_s: 1.0, ..spec_named(name) };
        write_content(&spec, &mut bytes, &mut go_on).expect("content");
        let whole = bytes.len();
        for (at, byte) in hits {
            let at = at.index(whole);
            bytes[at] = byte;
        }
        // Often cut at a packet, so that the rest is looked at.
        bytes.truncate(cut.index(whole) / PACKET_BYTES * PACKET_BYTES);
        if let Ok(index) = scanned(&bytes) {
            for gop in index.gops() {
                let part = &bytes[gop.start_offset as usize..gop.end_offset as usize];
                prop_assert_eq!(crc32c::crc32c(part), gop.crc32c);
            }
            prop_assert!(ContentIndex::read(&index.to_bytes().expect("fits")).is_ok());
        }
    }
}
