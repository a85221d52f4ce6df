//! What content to make.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

use super::error::ContentError;

/// Video codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// MPEG-2 video (ISO/IEC 13818-2): every player reads it at its bit rate.
    #[default]
    Mpeg2,
    /// H.264 (ISO/IEC 14496-10): some players read it faster than its bit rate.
    H264,
    /// H.265, ITU-T H.265: can be indexed, not made.
    #[schemars(skip)]
    Hevc,
}

impl Codec {
    /// The name in settings, options and file names.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Mpeg2 => "mpeg2",
            Self::H264 => "h264",
            Self::Hevc => "hevc",
        }
    }
}

impl FromStr for Codec {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let known = [Self::Mpeg2, Self::H264, Self::Hevc].into_iter().find(|codec| codec.word() == text);
        known.ok_or_else(|| format!("'{text}' is no known codec; use mpeg2 or h264"))
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mpeg2 => "MPEG-2",
            Self::H264 => "H.264",
            Self::Hevc => "HEVC",
        })
    }
}

/// How sizes vary over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RateMode {
    /// Groups of pictures vary in size (lognormal), the mean is the nominal rate.
    Vbr,
    /// Every second has the same size, and PCR runs with the bytes: a true constant mux rate.
    Cbr,
}

impl fmt::Display for RateMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vbr => "VBR",
            Self::Cbr => "CBR",
        })
    }
}

/// Frames per second as a fraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FrameRate {
    pub num: u32,
    pub den: u32,
}

impl FrameRate {
    /// 25 frames per second.
    pub const FPS_25: Self = Self { num: 25, den: 1 };
    /// 29.97 frames per second.
    pub const FPS_29_97: Self = Self { num: 30_000, den: 1001 };
    /// The rates that MPEG-2 video can name, in the order of `frame_rate_code` 1 to 8
    /// (ISO/IEC 13818-2, table 6-4).
    pub const NAMED: [Self; 8] = [
        Self { num: 24_000, den: 1001 },
        Self { num: 24, den: 1 },
        Self::FPS_25,
        Self::FPS_29_97,
        Self { num: 30, den: 1 },
        Self { num: 50, den: 1 },
        Self { num: 60_000, den: 1001 },
        Self { num: 60, den: 1 },
    ];

    /// The time of frame `frame` after frame 0, in ticks of 90 kHz, rounded down.
    pub fn ticks(self, frame: u64) -> u64 {
        (u128::from(frame) * 90_000 * u128::from(self.den) / u128::from(self.num.max(1))) as u64
    }

    pub fn per_s(self) -> f64 {
        f64::from(self.num) / f64::from(self.den)
    }

    /// The rate at which `frames` frames take `span_ticks` ticks of 90 kHz: a named rate when one is within
    /// 0.05 %, else the plain fraction. `None` when either is zero or the fraction is out of range.
    pub fn from_span(frames: u64, span_ticks: u64) -> Option<Self> {
        if frames == 0 || span_ticks == 0 {
            return None;
        }
        let seen = frames as f64 * 90_000.0 / span_ticks as f64;
        if let Some(named) = Self::NAMED.into_iter().find(|r| (r.per_s() / seen - 1.0).abs() < 5e-4) {
            return Some(named);
        }
        let (milli_hz, den) = ((seen * 1000.0).round(), 1000);
        (1.0..=1e9).contains(&milli_hz).then_some(Self { num: milli_hz as u32, den })
    }
}

impl fmt::Display for FrameRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.num.is_multiple_of(self.den.max(1)) {
            write!(f, "{}", self.num / self.den.max(1))
        } else {
            write!(f, "{:.2}", self.per_s())
        }
    }
}

/// The content to make. The same specification always makes the same bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContentSpec {
    /// How pictures are coded: MPEG-2 or H.264.
    pub codec: Codec,
    /// The rate of the whole transport stream over the whole file, bit/s.
    pub rate_bit_per_s: u64,
    /// How long it plays, seconds; rounded to whole frames.
    pub duration_s: f64,
    /// Frames per second; one of [`FrameRate::NAMED`].
    pub frame_rate: FrameRate,
    /// How sizes vary.
    pub mode: RateMode,
    /// Picture width, pixels, even.
    pub width: u32,
    /// Picture height, pixels, even.
    pub height: u32,
    /// Seed of the sizes.
    pub seed: u64,
}

impl Default for ContentSpec {
    /// Ten minutes of HD, 25 Mbit/s, 25 frames per second, MPEG-2.
    fn default() -> Self {
        Self {
            codec: Codec::Mpeg2,
            rate_bit_per_s: 25_000_000,
            duration_s: 600.0,
            frame_rate: FrameRate::FPS_25,
            mode: RateMode::Vbr,
            width: 1920,
            height: 1080,
            seed: 1,
        }
    }
}

impl ContentSpec {
    /// The most frames one content may have: a month at 25 per second.
    pub const FRAMES_MAX: u32 = 1 << 26;

    pub fn frames(&self) -> u32 {
        (self.duration_s * self.frame_rate.per_s()).round().clamp(0.0, f64::from(u32::MAX)) as u32
    }

    /// Frames in a group of pictures: half a second, in whole thirds so that the tables, sent every three
    /// frames, fall on its start.
    pub fn gop_frames(&self) -> u32 {
        ((self.frame_rate.per_s() / 2.0) as u32 / 3 * 3).max(3)
    }

    /// The size that frames 0 to `frames` should have together, bytes.
    pub fn nominal_bytes(&self, frames: u64) -> u64 {
        let numerator =
            u128::from(frames) * u128::from(self.rate_bit_per_s) * u128::from(self.frame_rate.den);
        (numerator / (8 * u128::from(self.frame_rate.num.max(1)))) as u64
    }

    /// The size of the whole content, bytes, to within a packet or two.
    pub fn total_bytes(&self) -> u64 {
        self.nominal_bytes(self.frames().into())
    }

    pub fn validate(&self) -> Result<(), ContentError> {
        let wrong = |what: String, advice: &str| Err(ContentError::Spec { what, advice: advice.to_owned() });
        if self.codec == Codec::Hevc {
            return wrong("HEVC can be indexed but not made".into(), "choose mpeg2 or h264");
        }
        if !FrameRate::NAMED.contains(&self.frame_rate) {
            return wrong(
                format!("{}/{} frames per second is no video rate", self.frame_rate.num, self.frame_rate.den),
                "choose 23.976, 24, 25, 29.97, 30, 50, 59.94 or 60",
            );
        }
        if !(64..=1920).contains(&self.width) || !(64..=1088).contains(&self.height) {
            return wrong(
                format!("pictures of {}x{} pixels are out of range", self.width, self.height),
                "choose 64x64 to 1920x1088",
            );
        }
        if !self.width.is_multiple_of(2) || !self.height.is_multiple_of(2) {
            return wrong(format!("{}x{} is odd", self.width, self.height), "choose even width and height");
        }
        if !(1_000..=10_000_000_000).contains(&self.rate_bit_per_s) {
            return wrong(
                format!("{} bit/s is out of range", self.rate_bit_per_s),
                "choose 1 kbit/s to 10 Gbit/s",
            );
        }
        if !self.duration_s.is_finite() || self.frames() == 0 || self.frames() > Self::FRAMES_MAX {
            return wrong(
                format!("a duration of {} s is out of range", self.duration_s),
                "choose one frame to a month",
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codec_name_is_the_same_everywhere() {
        for codec in [Codec::Mpeg2, Codec::H264, Codec::Hevc] {
            assert_eq!(serde_json::to_value(codec).unwrap(), codec.word());
            assert_eq!(codec.word().parse(), Ok(codec));
        }
        assert!("MPEG-2".parse::<Codec>().unwrap_err().contains("use mpeg2 or h264"));
    }

    #[test]
    fn group_is_half_a_second_in_whole_thirds() {
        let groups =
            FrameRate::NAMED.map(|frame_rate| ContentSpec { frame_rate, ..Default::default() }.gop_frames());
        assert_eq!(groups, [9, 12, 12, 12, 15, 24, 27, 30]);
    }

    #[test]
    fn frame_rates_are_recognised_from_time_spans() {
        for rate in FrameRate::NAMED {
            assert_eq!(FrameRate::from_span(100, rate.ticks(100)), Some(rate), "{rate}");
        }
        assert_eq!(FrameRate::from_span(10, 90_000), Some(FrameRate { num: 10_000, den: 1000 }));
        assert_eq!(FrameRate::from_span(0, 90_000), None);
        assert_eq!(FrameRate::from_span(1, 0), None);
        assert_eq!(FrameRate::from_span(u64::MAX, 1), None);
    }

    #[test]
    fn each_invalid_field_is_named() {
        let good = ContentSpec::default();
        assert!(good.validate().is_ok());
        for (spec, word) in [
            (ContentSpec { codec: Codec::Hevc, ..good.clone() }, "HEVC"),
            (ContentSpec { frame_rate: FrameRate { num: 0, den: 0 }, ..good.clone() }, "frames per second"),
            (ContentSpec { width: 4096, ..good.clone() }, "4096x1080"),
            (ContentSpec { height: 71, ..good.clone() }, "1920x71"),
            (ContentSpec { rate_bit_per_s: 0, ..good.clone() }, "0 bit/s"),
            (ContentSpec { duration_s: f64::NAN, ..good.clone() }, "NaN"),
            (ContentSpec { duration_s: -1.0, ..good.clone() }, "-1"),
            (ContentSpec { duration_s: 1e12, ..good.clone() }, "1000000000000"),
        ] {
            let message = spec.validate().expect_err(word).to_string();
            assert!(message.contains(word), "{message}");
        }
    }

    #[test]
    fn default_is_the_reference_content() {
        let spec = ContentSpec::default();
        assert_eq!((spec.frames(), spec.total_bytes()), (15_000, 1_875_000_000));
    }
}
