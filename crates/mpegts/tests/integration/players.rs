//! What real decoders make of the content. Skipped where ffmpeg is not installed.

use crate::common;
use common::{VARIANTS, made, run, spec_named};
use mpegts::{Codec, ContentSpec, FrameRate, RateMode};

#[test]
fn ffmpeg_decodes_every_frame_without_warnings() {
    for (name, spec) in VARIANTS.map(|name| (name, spec_named(name))) {
        let content = made(&spec);
        let Some(said) = run("ffmpeg", &["-v", "warning", "-i", &content.path, "-f", "null", "-"]) else {
            return;
        };
        assert_eq!(said, "", "{name}");
        let counted = run(
            "ffprobe",
            &[
                "-v",
                "error",
                "-count_frames",
                "-select_streams",
                "v",
                "-show_entries",
                "stream=nb_read_frames,width,height,r_frame_rate,codec_name",
                "-of",
                "default=nw=1:nk=1",
                &content.path,
            ],
        );
        let codec = if spec.codec == Codec::Mpeg2 { "mpeg2video" } else { "h264" };
        let FrameRate { num, den } = spec.frame_rate;
        let wanted = format!("{codec}\n{}\n{}\n{num}/{den}\n{}\n", spec.width, spec.height, spec.frames());
        assert_eq!(counted.as_deref().map(last_lines), Some(wanted.as_str()), "{name}");
    }
}

/// ffprobe prints the stream once for its program and once by itself.
fn last_lines(all: &str) -> &str {
    let from = all.rmatch_indices('\n').nth(5).map_or(0, |(at, _)| at + 1);
    &all[from..]
}

#[test]
fn ffprobe_reports_duration_times_and_rate() {
    for mode in [RateMode::Vbr, RateMode::Cbr] {
        let spec = ContentSpec { mode, duration_s: 20.0, ..spec_named("hd mpeg2 vbr") };
        let content = made(&spec);
        let entries = "format=duration,bit_rate,size";
        let Some(said) = run(
            "ffprobe",
            &["-v", "error", "-show_entries", entries, "-of", "default=nw=1:nk=1", &content.path],
        ) else {
            return;
        };
        let numbers: Vec<f64> = said.lines().map(|l| l.parse().expect("a number")).collect();
        assert!((numbers[0] - 20.0).abs() < 0.05, "{said}");
        assert_eq!(numbers[1] as u64, content.index.total_bytes());
        let rate = content.index.total_bytes() as f64 * 8.0 / 20.0;
        assert!((rate / spec.rate_bit_per_s as f64 - 1.0).abs() < 1e-3, "{mode}: {rate}");
    }
}

#[test]
fn decoded_pictures_show_the_scene() {
    // A pixel in the white bar, the yellow bar and the grey ramp, in both codecs and at the end of a group of
    // P pictures: exactly the colours that were painted.
    for name in ["hd mpeg2 vbr", "hd h264 vbr"] {
        let content = made(&ContentSpec { duration_s: 0.48, ..spec_named(name) });
        let raw = content.path.replace(".ts", ".yuv");
        let arguments = ["-v", "error", "-i", &content.path, "-f", "rawvideo", "-pix_fmt", "yuv420p", &raw];
        let Some(said) = run("ffmpeg", &arguments) else { return };
        assert_eq!(said, "");
        let frames = std::fs::read(&raw).expect("written by ffmpeg");
        let size = 1920 * 1080 * 3 / 2;
        assert_eq!(frames.len(), 12 * size);
        for frame in frames.chunks(size) {
            let luma = |x: usize, y: usize| frame[y * 1920 + x];
            let cb = |x: usize, y: usize| frame[1920 * 1080 + y / 2 * 960 + x / 2];
            assert_eq!((luma(40, 40), cb(40, 40)), (180, 128), "{name}: white");
            assert_eq!((luma(400, 40), cb(400, 40)), (168, 44), "{name}: yellow");
            assert_eq!((luma(1900, 500), cb(1900, 500)), (28, 212), "{name}: blue");
        }
        assert_ne!(frames[..size], frames[11 * size..], "{name}: it moves");
    }
}
