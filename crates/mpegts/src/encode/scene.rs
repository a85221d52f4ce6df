//! What the pictures show: colour bars, a grey ramp, the name, what the content is, its time code and a
//! moving bar.
//!
//! Only the time code and the moving bar change, so an encoder may keep what it made for all other rows.

use super::canvas::{Area, Canvas, Colour, text_height, text_width};
use crate::spec::{ContentSpec, FrameRate};

const PANEL: Colour = Colour::grey(24);
const TRACK: Colour = Colour::grey(44);
const BRIGHT: Colour = Colour::grey(232);
const QUIET: Colour = Colour::grey(160);
const MARK: Colour = Colour { luma: 160, cb: 60, cr: 172 };
/// SMPTE colour bars of 75 % after ITU-R BT.709, rounded (see `canvas`).
const BARS: [Colour; 7] = [
    Colour { luma: 180, cb: 128, cr: 128 },
    Colour { luma: 168, cb: 44, cr: 136 },
    Colour { luma: 144, cb: 146, cr: 44 },
    Colour { luma: 132, cb: 62, cr: 52 },
    Colour { luma: 64, cb: 194, cr: 204 },
    Colour { luma: 52, cb: 110, cr: 212 },
    Colour { luma: 28, cb: 212, cr: 120 },
];
/// The bar moves one macroblock every other frame and is this many blocks wide.
const MARK_BLOCKS: usize = 8;

/// The moving test picture.
#[derive(Debug)]
pub(super) struct Scene {
    canvas: Canvas,
    /// The canvas as it was one frame before.
    before: Canvas,
    frame_rate: FrameRate,
    columns: usize,
    clock: Option<(Area, usize)>,
    track: Area,
    live_rows: Vec<bool>,
}

impl Scene {
    /// The picture of `spec`, at frame 0.
    pub(super) fn new(spec: &ContentSpec) -> Self {
        let mut canvas = Canvas::new(spec.width, spec.height, PANEL);
        // Visible blocks only: blocks of the coded picture beyond the shown one stay dark.
        let (columns, rows) = (spec.width as usize / 8, spec.height as usize / 8);
        let bars_end = rows / 2 / 2 * 2;
        let ramp_end = bars_end + (rows / 16 / 2 * 2).max(2);
        paint_bars(&mut canvas, columns, bars_end, ramp_end);

        let panel =
            Area { x: columns / 40, y: ramp_end, width: columns - columns / 40 * 2, height: rows - ramp_end };
        let track_height = (panel.height / 12 / 2 * 2).max(2);
        let track = Area {
            x: 0,
            y: ((rows - track_height - panel.height / 12) / 2 * 2).max(ramp_end),
            width: columns,
            height: track_height,
        };
        let title_scale = paint_title(&mut canvas, spec, panel);
        let text_top = panel.y + panel.height / 12 + text_height(title_scale);
        let clock = place_clock(columns, text_top, track.y);
        let live_rows = (0..canvas.mb_rows())
            .map(|row| clock.iter().map(|(area, _)| area).chain([&track]).any(|a| touches(*a, row)))
            .collect();
        let mut scene = Self {
            before: canvas.clone(),
            canvas,
            frame_rate: spec.frame_rate,
            columns,
            clock,
            track,
            live_rows,
        };
        scene.show(0);
        scene
    }

    /// Moves on to frame `frame`; the picture until now becomes the one before.
    pub(super) fn show(&mut self, frame: u64) {
        std::mem::swap(&mut self.canvas, &mut self.before);
        self.canvas.clone_from(&self.before);
        if let Some((area, scale)) = self.clock {
            self.canvas.fill(area, PANEL);
            self.canvas.text(area.x, area.y, scale, BRIGHT, &time_code(frame, self.frame_rate));
        }
        self.canvas.fill(self.track, TRACK);
        let steps = (self.columns / 2).max(1);
        let at = (frame as usize / 2 % steps) * 2;
        let width = MARK_BLOCKS.min(self.columns - at);
        self.canvas.fill(Area { x: at, width, ..self.track }, MARK);
    }

    pub(super) fn canvas(&self) -> &Canvas {
        &self.canvas
    }

    pub(super) fn before(&self) -> &Canvas {
        &self.before
    }

    /// Whether row `row` of macroblocks can ever change.
    pub(super) fn is_live(&self, row: usize) -> bool {
        self.live_rows[row]
    }
}

fn touches(area: Area, mb_row: usize) -> bool {
    area.y < mb_row * 2 + 2 && mb_row * 2 < area.y + area.height
}

fn paint_bars(canvas: &mut Canvas, columns: usize, bars_end: usize, ramp_end: usize) {
    for x in 0..columns {
        // Chroma is kept by macroblock: bars begin at even blocks.
        let bar = x / 2 * 2 * BARS.len() / columns.max(1);
        canvas.fill(Area { x, y: 0, width: 1, height: bars_end }, BARS[bar.min(BARS.len() - 1)]);
        let grey = 16 + (x * 220 / columns.max(1)) as u8 / 4 * 4;
        canvas.fill(Area { x, y: bars_end, width: 1, height: ramp_end - bars_end }, Colour::grey(grey));
    }
}

/// Writes the name and what the content is, each only where there is room; returns the scale of the name.
fn paint_title(canvas: &mut Canvas, spec: &ContentSpec, panel: Area) -> usize {
    let title = "kagiri";
    let scale = if panel.width >= text_width(title, 2) * 3 && panel.height >= 48 { 2 } else { 1 };
    let top = panel.y + panel.height / 12;
    if panel.height < text_height(scale) {
        return 0;
    }
    if text_width(title, scale) <= panel.width {
        canvas.text(panel.x, top, scale, BRIGHT, title);
    }
    let rate = format!("{} Mbit/s {}", spec.rate_bit_per_s as f64 / 1e6, spec.mode);
    let size = format!("{} {}x{} {} fps", spec.codec, spec.width, spec.height, spec.frame_rate);
    for (i, line) in [size, rate].iter().enumerate() {
        let (width, y) = (text_width(line, 1), top + i * (text_height(1) + 2));
        let room = panel.width.saturating_sub(text_width(title, scale) + 4);
        if width <= room && (i + 1) * (text_height(1) + 2) <= text_height(scale) + 4 {
            canvas.text(panel.x + panel.width - width, y, 1, QUIET, line);
        }
    }
    scale
}

/// The place and scale of the time code: as large as there is room, or nowhere.
fn place_clock(columns: usize, top: usize, bottom: usize) -> Option<(Area, usize)> {
    let text = "00:00:00:00";
    let room = bottom.saturating_sub(top);
    let scale =
        (1..=4).rev().find(|&scale| text_width(text, scale) <= columns && text_height(scale) + 2 <= room)?;
    let (width, height) = (text_width(text, scale), text_height(scale));
    Some((Area { x: (columns - width) / 2, y: top + (room - height) / 2, width, height }, scale))
}

/// `hh:mm:ss:ff` of frame `frame`: whole seconds of the media time, and the frame within the second.
pub(super) fn time_code(frame: u64, rate: FrameRate) -> String {
    let (h, m, s, f) = time_parts(frame, rate);
    format!("{:02}:{m:02}:{s:02}:{f:02}", h % 100)
}

/// Hours, minutes, seconds and frame of the media time of frame `frame`.
pub(super) fn time_parts(frame: u64, rate: FrameRate) -> (u64, u64, u64, u64) {
    let (num, den) = (u64::from(rate.num.max(1)), u64::from(rate.den.max(1)));
    let seconds = frame * den / num;
    let first = (seconds * num).div_ceil(den);
    (seconds / 3600, seconds / 60 % 60, seconds % 60, frame - first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_code_counts_frames_within_the_second() {
        for (frame, rate, text) in [
            (0, FrameRate::FPS_25, "00:00:00:00"),
            (24, FrameRate::FPS_25, "00:00:00:24"),
            (25, FrameRate::FPS_25, "00:00:01:00"),
            (25 * 3661 + 7, FrameRate::FPS_25, "01:01:01:07"),
            (29, FrameRate::FPS_29_97, "00:00:00:29"),
            (30, FrameRate::FPS_29_97, "00:00:01:00"),
        ] {
            assert_eq!(time_code(frame, rate), text);
        }
    }

    #[test]
    fn only_live_rows_change_and_colours_are_exact() {
        for (width, height) in [(1920, 1080), (1440, 1080), (720, 576), (320, 180), (64, 64)] {
            let spec = ContentSpec { width, height, ..Default::default() };
            let mut scene = Scene::new(&spec);
            let mut changed = 0;
            for frame in 1..200 {
                scene.show(frame);
                for row in 0..scene.canvas().mb_rows() {
                    let same = scene.canvas().row(row) == scene.before().row(row);
                    assert!(same || scene.is_live(row), "{width}x{height} row {row} frame {frame}");
                    changed += u32::from(!same);
                    for mb in scene.canvas().row(row) {
                        assert!(mb.luma.iter().all(|l| l % 4 == 0) && mb.cb % 2 == 0 && mb.cr % 2 == 0);
                    }
                }
            }
            assert!(changed > 0, "{width}x{height} does not move");
        }
    }
}
