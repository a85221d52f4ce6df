//! Encodes the test pictures: flat blocks, so that a few bits code a whole picture without loss.

mod bits;
mod canvas;
mod cavlc;
mod font;
mod h264;
mod mpeg2;
mod scene;

use self::h264::H264Encoder;
use self::mpeg2::Mpeg2Encoder;
use self::scene::Scene;
use crate::spec::{Codec, ContentSpec};

/// Encodes the frames of one content in order.
#[derive(Debug)]
pub(crate) struct Encoder {
    scene: Scene,
    codec: CodecEncoder,
}

#[derive(Debug)]
enum CodecEncoder {
    Mpeg2(Mpeg2Encoder),
    H264(H264Encoder),
}

impl Encoder {
    pub(crate) fn new(spec: &ContentSpec) -> Self {
        let scene = Scene::new(spec);
        let codec = match spec.codec {
            Codec::H264 => CodecEncoder::H264(H264Encoder::new(spec, &scene)),
            Codec::Mpeg2 | Codec::Hevc => CodecEncoder::Mpeg2(Mpeg2Encoder::new(spec, &scene)),
        };
        Self { scene, codec }
    }

    /// Appends frame `frame`, the `in_gop`-th of its group (0: the key frame), to `out`.
    pub(crate) fn encode(&mut self, frame: u64, in_gop: u32, out: &mut Vec<u8>) {
        if frame > 0 {
            self.scene.show(frame);
        }
        match &mut self.codec {
            CodecEncoder::Mpeg2(encoder) => encoder.encode(&self.scene, frame, in_gop, out),
            CodecEncoder::H264(encoder) => encoder.encode(&self.scene, in_gop, out),
        }
    }

    /// What follows the last picture, so that decoders show all that they hold.
    pub(crate) fn end_of_sequence(&self) -> &'static [u8] {
        match self.codec {
            // sequence_end_code; zero bytes may follow.
            CodecEncoder::Mpeg2(_) => &[0, 0, 1, 0xB7],
            // Pictures are shown as they come, and no filler could follow an end.
            CodecEncoder::H264(_) => &[],
        }
    }
}
