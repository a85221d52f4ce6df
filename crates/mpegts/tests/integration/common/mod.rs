//! What the tests of content share.
#![allow(dead_code, reason = "each test file uses its own part")]

use mpegts::{Codec, ContentIndex, ContentSpec, FrameRate, Progress, RateMode, make_file};
use std::ops::ControlFlow;
use std::process::{Command, Stdio};

/// Kinds of content, by name.
pub const VARIANTS: [&str; 8] = [
    "hd mpeg2 vbr",
    "hd mpeg2 cbr",
    "hd h264 vbr",
    "hd h264 cbr",
    "1440 mpeg2 ntsc",
    "1440 h264 ntsc",
    "small mpeg2 odd",
    "small h264 odd",
];

/// Four seconds of the content with that name.
pub fn spec_named(name: &str) -> ContentSpec {
    let codec = if name.contains("h264") { Codec::H264 } else { Codec::Mpeg2 };
    let mode = if name.contains("cbr") { RateMode::Cbr } else { RateMode::Vbr };
    let spec = ContentSpec { codec, mode, duration_s: 4.0, ..Default::default() };
    if name.starts_with("1440") {
        ContentSpec { width: 1440, frame_rate: FrameRate::FPS_29_97, rate_bit_per_s: 18_000_000, ..spec }
    } else if name.starts_with("small") {
        // No multiple of 16, a last group that is not whole, few bytes a picture.
        let frame_rate = FrameRate { num: 24_000, den: 1001 };
        ContentSpec { width: 322, height: 182, rate_bit_per_s: 400_000, duration_s: 3.3, frame_rate, ..spec }
    } else {
        spec
    }
}

pub struct Made {
    pub index: ContentIndex,
    pub path: String,
    _directory: tempfile::TempDir,
}

pub fn made(spec: &ContentSpec) -> Made {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.ts");
    let index = make_file(spec, &path, &mut go_on).expect("content");
    Made { index, path: path.to_str().expect("UTF-8").to_owned(), _directory: directory }
}

pub fn go_on(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// What a program says on both outputs; `None`, with a message, when it is not installed.
pub fn run(program: &str, arguments: &[&str]) -> Option<String> {
    match Command::new(program).args(arguments).stdin(Stdio::null()).output() {
        Ok(out) => {
            let said = [out.stdout, out.stderr].concat();
            Some(String::from_utf8_lossy(&said).into_owned())
        }
        Err(e) => {
            features::skip(&format!("{program}: {e}"));
            None
        }
    }
}
